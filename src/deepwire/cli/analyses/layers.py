"""``deepwire analyze depth``, ``similarity``, ``linearise``: what layers do."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from deepwire.cli.analyses import options as common
from deepwire.cli.analyses.options import numbers
from deepwire.cli.line_by_line import tell
from deepwire.cli.options import Device, DirectionName, Model, Precision, Threads, use_threads

if TYPE_CHECKING:
    from deepwire.model.stack_spec import Side

SideName = Annotated[Literal["encoder", "decoder", "both"], typer.Option(help="Whose layers.")]


def _sides(name: Side | Literal["both"]) -> tuple[Side, ...]:
    return ("encoder", "decoder") if name == "both" else (name,)


@common.analysis
def depth(
    models: common.Runs,
    side: SideName = "both",
    source: common.Source = None,
    reference: common.Reference = None,
    sentences: common.Sentences = None,
    direction: DirectionName = None,
    beam: common.Beam = None,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
) -> common.Findings:
    """BLEU of trained models without their top layers, and with single groups and ranges of groups.

    deepwire analyze depth runs/gtrans --plots plots
    """
    from deepwire.evaluation.texts import selected_targets
    from deepwire.lab.depth.fewer_layers import fewer_layers_finding
    from deepwire.lab.subject.model_and_text import read_pairs

    use_threads(threads)
    selected_targets(models, direction)  # before the first one is measured
    pairs = read_pairs(models[0], source, reference, sentences, direction)
    # One after the other: only one has to fit into memory.
    scorers = (common.open_scorers([name], pairs, beam, device, precision, direction)[0] for name in models)
    return [fewer_layers_finding(scorer, _sides(side), tell) for scorer in scorers]


@common.analysis
def similarity(
    model: Model,
    side: SideName = "both",
    source: common.Source = None,
    reference: common.Reference = None,
    sentences: common.Sentences = 500,
    direction: DirectionName = None,
    device: Device = "auto",
    threads: Threads = None,
) -> common.Findings:
    """How alike the streams at different depths are, and the loss of a trained model without each layer.

    deepwire analyze similarity runs/deep --plots plots
    """
    from deepwire.lab.depth.layer_similarity import analyse_similarity

    use_threads(threads)
    text = (source, reference, sentences, device, direction)
    return [analyse_similarity(model, *text, sides=_sides(side), tell=tell)]


Reading = Annotated[
    Literal["match", "translation", "both"],
    typer.Option(help="Fit the map to the layer's output, train it by the translation loss, or both."),
]
CellName = Annotated[
    Literal["carry", "map"],
    typer.Option(
        help="A depth-wise LSTM's cell goes past the linear layer unchanged, or the map gives it too."
    ),
]
Layers = Annotated[Any, typer.Option(metavar="1,2,...", parser=numbers, help="Only these layers, from 1.")]
Updates = Annotated[int, typer.Option(min=1, help="Updates of training text that each map or model sees.")]
UpdateTokens = Annotated[int, typer.Option(min=1, help="Target tokens of an update.")]
Rate = Annotated[float, typer.Option(min=0.0, help="First learning rate of the translation reading.")]
Seed = Annotated[int, typer.Option(min=0, help="Seed of the order of the training text.")]
Folder = Annotated[Path | None, typer.Option(help="Where finished layers are kept. Default: in the run.")]


@common.analysis
def linearise(
    model: Model,
    reading: Reading = "both",
    cell: CellName = "carry",
    side: SideName = "both",
    layers: Layers = None,
    updates: Updates = 200,
    update_tokens: UpdateTokens = 4096,
    rate: Rate = 1e-3,
    seed: Seed = 1,
    source: common.Source = None,
    reference: common.Reference = None,
    sentences: common.Sentences = None,
    direction: DirectionName = None,
    beam: common.Beam = None,
    device: Device = "auto",
    threads: Threads = None,
    folder: Folder = None,
) -> common.Findings:
    """BLEU with one layer at a time replaced by a linear map, everything else frozen.

    The map is trained on the run's training text (2020 preprint of the depth-wise LSTM paper, section 4).
    Finished layers are kept; the same command goes on after an interruption.

    deepwire analyze linearise runs/demo --updates 100 --html linear.html
    """
    from deepwire.lab.linearisation import (
        READINGS,
        LinearisationSettings,
        layer_scores,
        linearisation_finding,
    )
    from deepwire.lab.subject.model_and_text import read_pairs, run_of
    from deepwire.lab.subject.training_text import training_text

    settings = LinearisationSettings(
        readings=READINGS if reading == "both" else (reading,),
        cell=cell,
        sides=_sides(side),
        layers=None if layers is None else tuple(layers),
        updates=updates,
        batch_tokens=update_tokens,
        rate=rate,
        seed=seed,
    )
    use_threads(threads)
    pairs = read_pairs(model, source, reference, sentences, direction)
    scorer = common.open_scorers([model], pairs, beam, device, "fp32", direction)[0]
    text, run = training_text(model, scorer.loaded.models[0]), run_of(model)
    if folder is None:
        folder = Path("linearise") if run is None else run.path / "analysis" / "linearise"
    whole, scores = layer_scores(scorer, text, settings, folder, tell)
    return [linearisation_finding(scorer, settings, whole, scores)]
