"""``deepwire analyze weights``, ``gates``, ``gradients``, ``signal``, and ``report`` of all that apply."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from deepwire.cli.analyses.options import (
    FindingOutputs,
    Html,
    Json,
    Model,
    Output,
    Overrides,
    Plots,
    Reference,
    Sentences,
    Source,
    read_direction,
)
from deepwire.cli.decoding_options import Device, DirectionName, Threads
from deepwire.errors import UsageError

if TYPE_CHECKING:
    from deepwire.lab.report.finding import Finding

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
    """How a model weighs what comes from different depths: DLCL, GTrans, lanes, attention residuals, ...

    Weights that depend on the text are averaged over the run's data.test, or over --source and --reference.
    For a run directory, also over training: as recorded with training.record.depth_weights=N, or in the
    checkpoints that the run kept.
    """
    from deepwire.lab.internals.connection_weights import analyse_weights

    outputs = FindingOutputs(as_json, html, plots, output, read=(source, reference), models=[model])
    parsed = read_direction(direction)
    text = (source, reference, sentences, device, parsed)
    outputs.write([analyse_weights(model, layer, *text, blank=not all_weights)])


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
    from deepwire.lab.internals.gates import analyse_gates

    outputs = FindingOutputs(as_json, html, plots, output, read=(source, reference), models=[model])
    outputs.write([analyse_gates(model, source, reference, sentences, device, read_direction(direction))])


def gradients(
    run: Model,
    as_json: Json = False,
    html: Html = None,
    plots: Plots = None,
    output: Output = None,
) -> None:
    """The norm of each layer's gradient during training, as recorded with training.record.gradients=N."""
    from deepwire.lab.internals.gradient_norms import analyse_gradients

    outputs = FindingOutputs(as_json, html, plots, output)
    outputs.write([analyse_gradients(run)])


Subjects = Annotated[
    list[str],
    typer.Argument(metavar="MODEL|FINDINGS.json...", help="Models, and files that --json wrote before."),
]


def report(
    subjects: Subjects,
    as_json: Json = False,
    html: Html = None,
    plots: Plots = None,
    output: Output = None,
) -> None:
    """Every analysis that needs nothing but the model, and findings made before, in one report.

    deepwire analyze report runs/a runs/b speed.json --html report.html
    """
    from deepwire.lab import analyse_all
    from deepwire.lab.report.pages import read_findings

    outputs = FindingOutputs(as_json, html, plots, output, read=[*map(Path, subjects)])
    findings: list[Finding] = []
    for subject in subjects:
        if Path(subject).suffix == ".json":
            findings += read_findings(Path(subject))
        else:
            findings += analyse_all([subject], lambda line: print(f"left out: {line}", file=sys.stderr))
    if not findings:
        raise UsageError("none of the analyses applies", "see 'deepwire analyze --help' for what each needs")
    outputs.write(findings, f"Analyses of {', '.join(subjects)}")


Subject = Annotated[
    str,
    typer.Argument(metavar="RUNFILE|RECIPE|MODEL", help="Before training, or the model of a run."),
]
Seeds = Annotated[
    int | None,
    typer.Option(min=1, help="Models to draw of a run file, with its seed and the next. [default: 3]"),
]
Tokens = Annotated[int, typer.Option(min=1, help="Target tokens of the training text to read.")]


def signal(
    subject: Subject,
    overrides: Overrides = None,
    seeds: Seeds = None,
    tokens: Tokens = 2048,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
    html: Html = None,
    plots: Plots = None,
    output: Output = None,
) -> None:
    """How large signals and gradients are in every layer, in the first forward pass or after training.

    deepwire analyze signal demo model.initialization=xavier --seeds 5

    deepwire analyze signal runs/demo
    """
    from deepwire.cli.decoding_options import use_threads
    from deepwire.lab.internals.signal_propagation import analyse_signal

    outputs = FindingOutputs(as_json, html, plots, output, read=[Path(subject)])
    use_threads(threads)
    outputs.write([analyse_signal(subject, overrides or (), seeds=seeds, tokens=tokens, device=device)])
