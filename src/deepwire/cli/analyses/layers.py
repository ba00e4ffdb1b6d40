"""``deepwire analyze depth``, ``similarity``, ``linearise``: what layers do."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from deepwire.cli.analyses import options as common
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
    from deepwire.lab.fewer_layers import fewer_layers_finding
    from deepwire.lab.subject import read_pairs

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
    from deepwire.lab.layers import analyse_similarity

    use_threads(threads)
    text = (source, reference, sentences, device, direction)
    return [analyse_similarity(model, *text, sides=_sides(side), tell=tell)]


Updates = Annotated[int, typer.Option(min=1, help="Updates of training text that maps are fitted on.")]
UpdateTokens = Annotated[int, typer.Option(min=1, help="Target tokens of an update.")]


@common.analysis
def linearise(
    model: Model,
    side: SideName = "both",
    updates: Updates = 200,
    update_tokens: UpdateTokens = 4096,
    source: common.Source = None,
    reference: common.Reference = None,
    sentences: common.Sentences = 500,
    direction: DirectionName = None,
    device: Device = "auto",
    threads: Threads = None,
) -> common.Findings:
    """The loss with one layer at a time replaced by the nearest linear map, everything else as it was.

    The map is fitted on the run's training text (2020 preprint of the depth-wise LSTM paper, section 4).

    deepwire analyze linearise runs/demo --updates 100 --html linear.html
    """
    from deepwire.lab.layers import analyse_linearity

    use_threads(threads)
    text = (source, reference, sentences, device, direction)
    return [
        analyse_linearity(model, *text, sides=_sides(side), updates=updates, tokens=update_tokens, tell=tell)
    ]
