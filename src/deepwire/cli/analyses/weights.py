"""``deepwire analyze weights``."""

from __future__ import annotations

from typing import Annotated

import typer

from deepwire.cli.analyses.options import FindingOutputs, Html, Json, Model, Output, Plots

Layer = Annotated[
    int | None,
    typer.Option(min=0, help="Follow the output of this layer through all that read it; 0 is the embedding."),
]
AllWeights = Annotated[
    bool,
    typer.Option("--all-weights", help="Leave no field of DLCL's heat map blank: see small weights too."),
]


def weights(
    model: Model,
    layer: Layer = None,
    all_weights: AllWeights = False,
    as_json: Json = False,
    html: Html = None,
    plots: Plots = None,
    output: Output = None,
) -> None:
    """How a model weighs what comes from different depths: DLCL, GTrans, transparent attention, ReZero, ...

    For a run directory, also over training: as recorded with training.record.depth_weights=N, or in the
    checkpoints that the run kept.
    """
    from deepwire.analysis.internals.connection_weights import analyse_weights

    outputs = FindingOutputs(as_json, html, plots, output)
    outputs.write([analyse_weights(model, layer, blank=not all_weights)])
