"""``deepwire analyze compare``."""

from __future__ import annotations

from typing import Annotated

import typer

from deepwire.cli.analyses.options import (
    DirectionName,
    FindingOutputs,
    Html,
    Json,
    Output,
    Plots,
    Reference,
    Runs,
    Sentences,
    Source,
)
from deepwire.cli.analyses.scoring import read_direction, tell
from deepwire.cli.decoding_options import Device, Precision

Paired = Annotated[
    str, typer.Option(help="Test of the differences to the first: bootstrap or randomization.")
]
Samples = Annotated[
    int | None, typer.Option(min=1, help="Resamples (default 1000) or shuffles (default 10000).")
]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the test.")]
Examples = Annotated[int, typer.Option(min=0, help="How many of the sentences that differ most to show.")]
NoTranslation = Annotated[
    bool, typer.Option("--no-translation", help="Settings, curves and sizes only: nothing is translated.")
]


def compare(
    runs: Runs,
    source: Source = None,
    reference: Reference = None,
    sentences: Sentences = None,
    direction: DirectionName = None,
    paired: Paired = "bootstrap",
    samples: Samples = None,
    seed: Seed = 12345,
    examples: Examples = 10,
    no_translation: NoTranslation = False,
    device: Device = "auto",
    precision: Precision = "auto",
    as_json: Json = False,
    html: Html = None,
    plots: Plots = None,
    output: Output = None,
) -> None:
    """Runs side by side: settings, learning curves, size, speed, BLEU and chrF with tests, examples.

    deepwire analyze compare runs/a runs/b runs/c@avg5 --html compare.html
    """
    from deepwire.analysis.compare.run_comparison import ComparisonRequest, compare_runs
    from deepwire.evaluation.comparison import PairedTest

    outputs = FindingOutputs(as_json, html, plots, output)
    request = ComparisonRequest(
        models=runs,
        source=source,
        reference=reference,
        sentences=sentences,
        direction=read_direction(direction),
        paired=PairedTest(paired, 0, samples, seed),
        examples=examples,
        translate=not no_translation,
        device=device,
        precision=precision,
    )
    outputs.write([compare_runs(request, tell)])
