"""``deepwire analyze signal``."""

from __future__ import annotations

from typing import Annotated

import typer

from deepwire.cli.analyses.options import FindingOutputs, Html, Json, Output, Plots
from deepwire.cli.decoding_options import Device, Threads

Subject = Annotated[
    str,
    typer.Argument(metavar="RUNFILE|RECIPE|MODEL", help="Before training, or the model of a run."),
]
Overrides = Annotated[
    list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help="Changes to the run file or recipe.")
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
    from deepwire.analysis.internals.signal_propagation import analyse_signal
    from deepwire.cli.decoding_options import use_threads

    outputs = FindingOutputs(as_json, html, plots, output)
    use_threads(threads)
    outputs.write([analyse_signal(subject, overrides or (), seeds=seeds, tokens=tokens, device=device)])
