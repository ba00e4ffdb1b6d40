"""``deepwire analyze``: what a trained model does inside, as text, JSON, plots or one HTML page.

A new analysis is a module in ``deepwire.analysis`` that gives a finding, its command in
``deepwire.cli.analyses``, and its line in the table below.
"""

from __future__ import annotations

from collections.abc import Callable

import typer

from deepwire.cli.analyses.agreement import agreement
from deepwire.cli.analyses.all_analyses import report
from deepwire.cli.analyses.compare import compare
from deepwire.cli.analyses.coordinate_check import coordinate_check
from deepwire.cli.analyses.depth import depth
from deepwire.cli.analyses.gates import gates
from deepwire.cli.analyses.gradients import gradients
from deepwire.cli.analyses.length import length
from deepwire.cli.analyses.linearise import linearise
from deepwire.cli.analyses.signal import signal
from deepwire.cli.analyses.speed import speed
from deepwire.cli.analyses.weights import weights

COMMANDS: tuple[Callable[..., None], ...] = (
    weights,
    gates,
    gradients,
    signal,
    coordinate_check,
    agreement,
    compare,
    linearise,
    depth,
    length,
    speed,
    report,
)

app = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})
for command in COMMANDS:
    app.command()(command)
