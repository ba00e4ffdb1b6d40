"""``deepwire analyze alignment``: which attention tells best which words belong together."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deepwire.cli.analyses.options import (
    FindingOutputs,
    Html,
    Json,
    Model,
    Output,
    Plots,
    Reference,
    Sentences,
    Source,
    read_direction,
)
from deepwire.cli.decoding_options import Device, DirectionName

Gold = Annotated[
    Path,
    typer.Option("--gold", "-g", help="Right alignments, a line each: i-j sure, i?j or ipj possible."),
]
FirstWord = Annotated[int, typer.Option("--first-word", min=0, max=1, help="Number of the first word there.")]


def alignment(
    model: Model,
    gold: Gold,
    source: Source = None,
    reference: Reference = None,
    sentences: Sentences = None,
    direction: DirectionName = None,
    first_word: FirstWord = 0,
    device: Device = "auto",
    as_json: Json = False,
    html: Html = None,
    plots: Plots = None,
    output: Output = None,
) -> None:
    """Alignment error rate of each layer and head of the cross-attention, and the options for the best one.

    deepwire analyze alignment runs/a --gold gold.align --source gold.de --reference gold.en
    """
    from deepwire.evaluation.texts import selected_target
    from deepwire.lab.attention_alignments import analyse_alignment
    from deepwire.lab.subject.model_and_text import read_pairs

    outputs = FindingOutputs(as_json, html, plots, output, read=(gold, source, reference), models=[model])
    parsed = read_direction(direction)
    pairs = read_pairs(model, source, reference, direction=parsed)  # the whole text, as the gold alignments
    to = selected_target(model, parsed) or ""
    found = analyse_alignment(model, pairs, gold, first=first_word, sentences=sentences, to=to, device=device)
    outputs.write([found])
