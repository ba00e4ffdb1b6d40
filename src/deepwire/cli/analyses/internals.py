"""The commands under ``deepwire analyze`` that look inside a model, and ``report`` of all that apply."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated, Literal

import typer

from deepwire.cli.analyses.options import (
    Beam,
    Findings,
    Reference,
    Runs,
    Sentences,
    Source,
    analysis,
    open_scorers,
)
from deepwire.cli.line_by_line import tell
from deepwire.cli.options import Device, DirectionName, Model, Overrides, Precision, Threads, use_threads
from deepwire.errors import UsageError

if TYPE_CHECKING:
    from deepwire.model.stack_spec import Side


@analysis
def weights(
    model: Model,
    source: Source = None,
    reference: Reference = None,
    sentences: Sentences = 500,
    direction: DirectionName = None,
    device: Device = "auto",
) -> Findings:
    """Learned weights over depth: DLCL, GTrans, lanes, attention residuals, ...

    Weights that depend on the text are averaged over the run's data.test, or over --source and --reference.
    For a run directory, also over training, as recorded with training.record.depth_weights=N.
    """
    from deepwire.lab.weights import analyse_weights

    return [analyse_weights(model, source, reference, sentences, device, direction)]


@analysis
def gates(
    model: Model,
    source: Source = None,
    reference: Reference = None,
    sentences: Sentences = 500,
    direction: DirectionName = None,
    device: Device = "auto",
) -> Findings:
    """How open the gates over depth are, and how far back a layer's output reaches.

    For depth-wise LSTMs, Runge-Kutta gates, self-dependency units, collaboration, attention over layers.
    """
    from deepwire.lab.gates import analyse_gates

    return [analyse_gates(model, source, reference, sentences, device, direction)]


@analysis
def gradients(run: Model) -> Findings:
    """The norm of each layer's gradient during training, as recorded with training.record.gradients=N."""
    from deepwire.lab.signals import analyse_gradients

    return [analyse_gradients(run)]


@analysis
def report(models: Runs) -> Findings:
    """All analyses that need nothing but the model, in one report.

    deepwire analyze report runs/a runs/b --html report.html
    """
    from deepwire.lab import analyse_all

    findings = list(analyse_all(models, lambda line: tell(f"left out: {line}")))
    if not findings:
        raise UsageError("none of the analyses applies", "see 'deepwire analyze --help' for what each needs")
    return findings


Subject = Annotated[
    str, typer.Argument(metavar="RUNFILE|RECIPE|MODEL", help="Run file or recipe (untrained), or model.")
]
Seeds = Annotated[int | None, typer.Option(min=1, help="Random initializations of a run file. [default: 3]")]
Tokens = Annotated[int, typer.Option(min=1, help="Target tokens of the training text to read.")]


@analysis
def signal(
    subject: Subject,
    overrides: Overrides = None,
    seeds: Seeds = None,
    tokens: Tokens = 2048,
    device: Device = "auto",
    threads: Threads = None,
) -> Findings:
    """Size of activations and gradients in every layer, at initialization or after training.

    deepwire analyze signal demo model.initialization=xavier --seeds 5

    deepwire analyze signal runs/demo
    """
    from deepwire.lab.signals import analyse_signal

    use_threads(threads)
    return [analyse_signal(subject, overrides or (), seeds=seeds, tokens=tokens, device=device)]


SideName = Annotated[Literal["encoder", "decoder", "both"], typer.Option(help="Stack to look at.")]


def _sides(name: Side | Literal["both"]) -> tuple[Side, ...]:
    return ("encoder", "decoder") if name == "both" else (name,)


@analysis
def depth(
    models: Runs,
    side: SideName = "both",
    source: Source = None,
    reference: Reference = None,
    sentences: Sentences = None,
    direction: DirectionName = None,
    beam: Beam = None,
    device: Device = "auto",
    precision: Precision = "auto",
    threads: Threads = None,
) -> Findings:
    """BLEU without the top layers, and with single fusion groups and ranges of groups.

    deepwire analyze depth runs/gtrans --plots plots
    """
    from deepwire.evaluation.texts import selected_targets
    from deepwire.lab.layers import fewer_layers_finding
    from deepwire.lab.subject import read_pairs

    use_threads(threads)
    selected_targets(models, direction)  # before the first one is measured
    pairs = read_pairs(models[0], source, reference, sentences, direction)
    # One after the other: only one has to fit into memory.
    scorers = (open_scorers([name], pairs, beam, device, precision, direction)[0] for name in models)
    return [fewer_layers_finding(scorer, _sides(side), tell) for scorer in scorers]


@analysis
def similarity(
    model: Model,
    side: SideName = "both",
    source: Source = None,
    reference: Reference = None,
    sentences: Sentences = 500,
    direction: DirectionName = None,
    device: Device = "auto",
    threads: Threads = None,
) -> Findings:
    """Similarity of the residual stream at different depths, and the loss without each layer.

    deepwire analyze similarity runs/deep --plots plots
    """
    from deepwire.lab.layers import analyse_similarity

    use_threads(threads)
    text = (source, reference, sentences, device, direction)
    return [analyse_similarity(model, *text, sides=_sides(side), tell=tell)]


Updates = Annotated[int, typer.Option(min=1, help="Updates of training text to fit the maps on.")]
UpdateTokens = Annotated[int, typer.Option(min=1, help="Target tokens of an update.")]
Bleu = Annotated[bool, typer.Option("--bleu", help="Also compute BLEU with each layer linear.")]


@analysis
def linearise(
    model: Model,
    side: SideName = "both",
    updates: Updates = 200,
    update_tokens: UpdateTokens = 4096,
    bleu: Bleu = False,
    source: Source = None,
    reference: Reference = None,
    sentences: Sentences = 500,
    direction: DirectionName = None,
    device: Device = "auto",
    threads: Threads = None,
) -> Findings:
    """Loss with one layer at a time replaced by its nearest linear map, all else unchanged.

    The map is fitted on the run's training text (2020 preprint of the depth-wise LSTM paper, section 4 and
    Tables 6 and 7, which have BLEU).

    deepwire analyze linearise runs/demo --updates 100 --bleu
    """
    from deepwire.lab.layers import analyse_linearity
    from deepwire.lab.subject import read_pairs

    use_threads(threads)
    text = (source, reference, sentences, device, direction)
    scorer = None
    if bleu:
        pairs = read_pairs(model, source, reference, sentences, direction)
        (scorer,) = open_scorers([model], pairs, None, device, "fp32", direction)
    sides = _sides(side)
    finding = analyse_linearity(
        model, *text, sides=sides, updates=updates, tokens=update_tokens, scorer=scorer, tell=tell
    )
    return [finding]
