"""``deepwire analyze gates``."""

from __future__ import annotations

from typing import Annotated

import typer

from deepwire.cli.analyses.options import (
    Html,
    Json,
    Model,
    Output,
    Outputs,
    Plots,
    Reference,
    Sentences,
    Source,
)
from deepwire.cli.decoding_options import Device

To = Annotated[str, typer.Option(help="Language of the references, for models of several directions.")]


def gates(
    model: Model,
    source: Source = None,
    reference: Reference = None,
    sentences: Sentences = 500,
    to: To = "",
    device: Device = "auto",
    as_json: Json = False,
    html: Html = None,
    plots: Plots = None,
    output: Output = None,
) -> None:
    """How open the gates over depth are over text, and how far back a layer's output reaches.

    For depth-wise LSTMs, Runge-Kutta gates, self-dependency units, collaboration, attention over layers.
    """
    from deepwire.analysis.gates import analyse_gates

    outputs = Outputs(as_json, html, plots, output)
    outputs.write([analyse_gates(model, source, reference, sentences, device, to)])
