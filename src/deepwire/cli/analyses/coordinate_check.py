"""``deepwire analyze coordinate-check``."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from deepwire.cli.analyses.options import FindingOutputs, Html, Json, Output, Overrides, Plots, numbers
from deepwire.cli.decoding_options import Device, Threads
from deepwire.cli.line_by_line import tell

Subject = Annotated[
    str, typer.Argument(metavar="RUNFILE|RECIPE", help="Whose model and settings are checked.")
]
Widths = Annotated[str, typer.Option(metavar="32,64,128", help="Values of d_model; none: --widths ''.")]
Depths = Annotated[str, typer.Option(metavar="2,4,8", help="Layers of both stacks; none: --depths ''.")]
Updates = Annotated[int, typer.Option(min=1, help="Updates that each model takes.")]
Tokens = Annotated[int, typer.Option(min=1, help="Target tokens of an update.")]
Rate = Annotated[
    float | None, typer.Option(help="Learning rate of all updates. [default: the highest of the schedule]")
]
Seeds = Annotated[int, typer.Option(min=1, help="Models of each size, averaged.")]


def coordinate_check(
    subject: Subject,
    overrides: Overrides = None,
    widths: Widths = "32,64,128,256",
    depths: Depths = "",
    updates: Updates = 10,
    tokens: Tokens = 1024,
    rate: Rate = None,
    seeds: Seeds = 1,
    device: Device = "auto",
    threads: Threads = None,
    as_json: Json = False,
    html: Html = None,
    plots: Plots = None,
    output: Output = None,
) -> None:
    """Whether a learning rate carries over to wider or deeper models: how far a few updates move each layer.

    deepwire analyze coordinate-check run.yaml --widths 64,128,256 --depths 3,6,12 --plots plots
    """
    from deepwire.cli.decoding_options import use_threads
    from deepwire.decoding.model_loading import pick_device
    from deepwire.errors import UsageError
    from deepwire.lab.coordinate_check import CoordinateCheck
    from deepwire.lab.coordinate_check import coordinate_check as check
    from deepwire.lab.subject.training_text import open_untrained
    from deepwire.recipes import is_run_file

    outputs = FindingOutputs(as_json, html, plots, output, read=[Path(subject)])
    if rate is not None and not 0 < rate < float("inf"):
        raise UsageError(f"--rate: must be a number above 0, not {rate}")
    wanted = CoordinateCheck(
        widths=numbers(widths, "--widths") if widths else (),
        depths=numbers(depths, "--depths") if depths else (),
        updates=updates,
        tokens=tokens,
        rate=rate,
        seeds=seeds,
    )
    if not is_run_file(subject):
        raise UsageError(
            f"{subject}: is no run file or recipe", "this trains new models: give the run file of the run"
        )
    use_threads(threads)
    outputs.write([check(open_untrained(subject, overrides or ()), wanted, pick_device(device), tell)])
