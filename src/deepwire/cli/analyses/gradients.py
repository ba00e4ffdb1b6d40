"""``deepwire analyze gradients``."""

from __future__ import annotations

from deepwire.cli.analyses.options import FindingOutputs, Html, Json, Model, Output, Plots


def gradients(
    run: Model,
    as_json: Json = False,
    html: Html = None,
    plots: Plots = None,
    output: Output = None,
) -> None:
    """The norm of each layer's gradient during training, as recorded with training.record.gradients=N."""
    from deepwire.analysis.internals.gradient_norms import analyse_gradients

    outputs = FindingOutputs(as_json, html, plots, output)
    outputs.write([analyse_gradients(run)])
