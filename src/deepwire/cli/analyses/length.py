"""``deepwire analyze length``: BLEU and decoding speed by length of the source."""

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
from deepwire.cli.analyses.scoring import numbers, open_scorers, read_direction, tell
from deepwire.cli.decoding_options import BatchTokens, Beam, Device, Precision, Threads

Bounds = Annotated[
    str | None,
    typer.Option(
        metavar="15,30,45",
        help="Longest source of each part but the last, in words (in a script without spaces, characters). "
        "Default: parts of equal size.",
    ),
]
Parts = Annotated[int, typer.Option(min=1, help="Number of parts, where --bounds is not given.")]
Rounds = Annotated[int, typer.Option(min=1, help="Times that each part is translated; the fastest counts.")]


def length(
    models: Runs,
    bounds: Bounds = None,
    parts: Parts = 4,
    rounds: Rounds = 2,
    source: Source = None,
    reference: Reference = None,
    sentences: Sentences = None,
    direction: DirectionName = None,
    beam: Beam = None,
    batch_tokens: BatchTokens = None,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
    as_json: Json = False,
    html: Html = None,
    plots: Plots = None,
    output: Output = None,
) -> None:
    """BLEU and decoding speed by length of the source, models beside each other.

    deepwire analyze length runs/transformer runs/mhplstm --bounds 15,30,45 --plots plots
    """
    from deepwire.analysis.source_length import cut, equal_bounds, source_length_finding
    from deepwire.analysis.subject.model_and_text import read_pairs
    from deepwire.analysis.text_length import text_lengths, unit_of
    from deepwire.cli.line_by_line import use_threads

    outputs = FindingOutputs(as_json, html, plots, output)
    use_threads(threads)
    way = read_direction(direction)
    pairs = read_pairs(models[0], source, reference, sentences, way)
    lengths = text_lengths(pairs.source.lines, unit_of(pairs.source.lines))
    chosen = equal_bounds(lengths, parts) if bounds is None else numbers(bounds, "--bounds")
    buckets = cut(lengths, chosen)
    changes: dict[str, object] = {"beam": beam, "batch_tokens": batch_tokens}
    scorers = open_scorers(models, pairs, changes, device, precision, way)
    outputs.write([source_length_finding(scorers, buckets, rounds, tell)])
