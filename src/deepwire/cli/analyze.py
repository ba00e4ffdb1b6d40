"""``deepwire analyze``: what a trained model does inside, as text, JSON, plots or one HTML page.

A new analysis is a module in ``deepwire.lab`` that gives a finding, its command in
``deepwire.cli.analyses``, and its line in the table below.
"""

from __future__ import annotations

from collections.abc import Callable

import typer

from deepwire.cli.analyses.internals import (
    depth,
    gates,
    gradients,
    linearise,
    report,
    signal,
    similarity,
    weights,
)
from deepwire.cli.analyses.speed import speed
from deepwire.cli.analyses.translations import agreement, alignment, compare, length

COMMANDS: tuple[Callable[..., None], ...] = (
    weights,
    gates,
    gradients,
    signal,
    agreement,
    alignment,
    compare,
    linearise,
    depth,
    similarity,
    length,
    speed,
    report,
)

app = typer.Typer(no_args_is_help=True, context_settings={"help_option_names": ["-h", "--help"]})
for command in COMMANDS:
    app.command()(command)
