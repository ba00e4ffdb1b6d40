"""``deepwire analyze weights``, ``gates``, ``gradients``, ``signal``, and ``report`` of all that apply."""

from __future__ import annotations

from typing import Annotated

import typer

from deepwire.cli.analyses.options import Findings, Reference, Runs, Sentences, Source, analysis
from deepwire.cli.line_by_line import tell
from deepwire.cli.options import Device, DirectionName, Model, Overrides, Threads, use_threads
from deepwire.errors import UsageError


@analysis
def weights(
    model: Model,
    source: Source = None,
    reference: Reference = None,
    sentences: Sentences = 500,
    direction: DirectionName = None,
    device: Device = "auto",
) -> Findings:
    """How a model weighs what comes from different depths: DLCL, GTrans, lanes, attention residuals, ...

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
    """How open the gates over depth are over text, and how far back a layer's output reaches.

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
    """Every analysis that needs nothing but the model, in one report.

    deepwire analyze report runs/a runs/b --html report.html
    """
    from deepwire.lab import analyse_all

    findings = list(analyse_all(models, lambda line: tell(f"left out: {line}")))
    if not findings:
        raise UsageError("none of the analyses applies", "see 'deepwire analyze --help' for what each needs")
    return findings


Subject = Annotated[
    str, typer.Argument(metavar="RUNFILE|RECIPE|MODEL", help="Before training, or the model of a run.")
]
Seeds = Annotated[int | None, typer.Option(min=1, help="Models to draw of a run file. [default: 3]")]
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
    """How large signals and gradients are in every layer, in the first forward pass or after training.

    deepwire analyze signal demo model.initialization=xavier --seeds 5

    deepwire analyze signal runs/demo
    """
    from deepwire.lab.signals import analyse_signal

    use_threads(threads)
    return [analyse_signal(subject, overrides or (), seeds=seeds, tokens=tokens, device=device)]
