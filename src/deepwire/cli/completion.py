"""Shell completion: the shell starts ``deepwire`` with a variable set and reads what may come next."""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Collection, Iterable
from pathlib import Path
from typing import Any, NoReturn

import typer

from deepwire import recipes

VARIABLE = "_DEEPWIRE_COMPLETE"
"""The shell sets it; typer derives the name from that of the command."""
KEYS = Path(__file__).with_name("keys.txt")
"""The settings of a run file, which its classes would take seconds to tell; a test compares them."""
_LINES = ("COMP_WORDS", "_TYPER_COMPLETE_ARGS")
"""What was typed so far: for bash, and for the other shells."""


def known_keys() -> list[str]:
    """The dotted keys of a run file."""
    return KEYS.read_text(encoding="utf-8").splitlines()


def is_asked() -> bool:
    """Whether a shell started this process for what may stand at the cursor."""
    return VARIABLE in os.environ


def complete(build_app: Callable[[str | None], typer.Typer], commands: Collection[str]) -> NoReturn:
    """Answer the shell and exit; only the command that was typed is loaded."""
    typed = next((os.environ[name] for name in _LINES if name in os.environ), "")
    verb = next((word for word in typed.split()[1:] if word in commands), None)
    command: Any = typer.main.get_command(build_app(verb))
    for each in (command, *getattr(command, "commands", {}).values()):
        for inner in (each, *getattr(each, "commands", {}).values()):
            for parameter in inner.params:
                if _choices(parameter):
                    vars(parameter)["_custom_shell_complete"] = _matching
    command.main([], prog_name="deepwire", complete_var=VARIABLE)
    raise SystemExit(1)


def _choices(parameter: Any) -> Iterable[str]:
    """The values that the placeholder of a parameter stands for: ``a|b|c`` says it, others are known here."""
    metavar = parameter.metavar or ""
    if "RUN.yaml" in metavar or "RECIPE" in metavar:
        return [*recipes.names(), *map(str, Path().glob("*.yaml"))]
    if metavar == "[KEY=VALUE]...":
        return [f"{key}=" for key in known_keys()]
    return metavar.split("|") if re.fullmatch(r"[a-z][\w+-]*(\|[a-z][\w+-]*)+", metavar) else ()


def _matching(_context: object, parameter: Any, typed: str) -> list[str]:
    return [choice for choice in _choices(parameter) if choice.startswith(typed)]
