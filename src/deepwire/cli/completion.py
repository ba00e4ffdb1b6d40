"""Shell completion: the shell starts ``deepwire`` with a variable set and reads what may come next."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection
from typing import NoReturn

import typer

VARIABLE = "_DEEPWIRE_COMPLETE"
"""The shell sets it; typer derives the name from that of the command."""
_LINES = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""What was typed so far: for bash, and for the other shells."""


def is_asked() -> bool:
    """Whether a shell started this process for what may stand at the cursor."""
    return VARIABLE in os.environ


def complete(build_app: Callable[[str | None], typer.Typer], commands: Collection[str]) -> NoReturn:
    """Answer the shell and exit; only the command that was typed is loaded."""
    typed = next((os.environ[name] for name in _LINES if name in os.environ), "")
    verb = next((word for word in typed.split()[1:] if word in commands), None)
    typer.main.get_command(build_app(verb)).main([], prog_name="deepwire", complete_var=VARIABLE)
    raise SystemExit(1)
