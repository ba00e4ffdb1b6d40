"""``deepwire analyze gates``."""

from __future__ import annotations

from deepwire.cli.analyses.options import (
    DirectionName,
    FindingOutputs,
    Html,
    Json,
    Model,
    Output,
    Plots,
    Reference,
    Sentences,
    Source,
)
from deepwire.cli.analyses.scoring import read_direction
from deepwire.cli.decoding_options import Device


def gates(
    model: Model,
    source: Source = None,
    reference: Reference = None,
    sentences: Sentences = 500,
    direction: DirectionName = None,
    device: Device = "auto",
    as_json: Json = False,
    html: Html = None,
    plots: Plots = None,
    output: Output = None,
) -> None:
    """How open the gates over depth are over text, and how far back a layer's output reaches.

    For depth-wise LSTMs, Runge-Kutta gates, self-dependency units, collaboration, attention over layers.
    """
    from deepwire.analysis.internals.gates import analyse_gates

    outputs = FindingOutputs(as_json, html, plots, output)
    outputs.write([analyse_gates(model, source, reference, sentences, device, read_direction(direction))])
