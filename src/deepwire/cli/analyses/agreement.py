"""``deepwire analyze agreement``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deepwire.cli.analyses.options import DirectionName, FindingOutputs, Html, Json, Output, Plots, Runs
from deepwire.cli.analyses.scoring import read_direction
from deepwire.cli.decoding_options import Device, Precision

Contrastive = Annotated[
    Path,
    typer.Option(
        "--contrastive",
        "-c",
        help="LingEval97's JSON; or, with --source and --reference, a text with the errors.",
    ),
]
Source = Annotated[Path | None, typer.Option("--source", "-s", help="Plain files: the source, line by line.")]
Reference = Annotated[
    Path | None, typer.Option("--reference", "-r", help="Plain files: the right translations.")
]
Distances = Annotated[
    Path | None, typer.Option(help="Plain files: the distance of each line, a whole number.")
]
Normalize = Annotated[
    bool, typer.Option("--normalize", help="Compare log-probabilities per subword, not of whole sentences.")
]
Longest = Annotated[int, typer.Option(min=1, help="Distances above this are counted together.")]
Sample = Annotated[int | None, typer.Option(min=1, help="Only so many contrasts, drawn at random.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the sample.")]


def agreement(
    models: Runs,
    contrastive: Contrastive,
    source: Source = None,
    reference: Reference = None,
    distances: Distances = None,
    direction: DirectionName = None,
    normalize: Normalize = False,
    longest: Longest = 15,
    sample: Sample = None,
    seed: Seed = 1,
    device: Device = "auto",
    precision: Precision = "auto",
    as_json: Json = False,
    html: Html = None,
    plots: Plots = None,
    output: Output = None,
) -> None:
    """How often a model prefers a translation to the same one with an error: overall, by error, by distance.

    deepwire analyze agreement runs/a runs/b --contrastive lingeval97.json --html agreement.html
    """
    from deepwire.analysis.agreement.contrastive_scoring import analyse_agreement
    from deepwire.analysis.agreement.contrastive_sets import (
        drawn,
        read_lingeval,
        read_plain,
    )
    from deepwire.errors import UsageError

    outputs = FindingOutputs(as_json, html, plots, output)
    if (source is None) != (reference is None):
        raise UsageError("--source and --reference go together", "leave both out for LingEval97's JSON")
    if source is not None and reference is not None:
        contrasts = read_plain(source, reference, contrastive, distances)
    elif distances is not None:
        raise UsageError(
            "--distances is for plain files", "the JSON of LingEval97 holds the distances itself"
        )
    else:
        contrasts = read_lingeval(contrastive)
    name = str(contrastive)
    if sample is not None and sample < len(contrasts):
        name += f" (a sample of {len(contrasts):,}, seed {seed})"
        contrasts = drawn(contrasts, sample, seed)
    outputs.write(
        [
            analyse_agreement(
                models,
                contrasts,
                name,
                normalize=normalize,
                longest=longest,
                direction=read_direction(direction),
                device=device,
                precision=precision,
            )
        ]
    )
