"""Importing code of other packages: whatever is wrong with it becomes one line that says where."""

from __future__ import annotations

import importlib
import traceback
from pathlib import Path


class PluginImportError(Exception):
    """A module cannot be imported: why, on one line, and what helps.

    Attributes:
        hint: The latter; may be empty.
    """

    def __init__(self, message: str, hint: str) -> None:
        super().__init__(message)
        self.hint = hint


def import_module(module: str) -> object:
    """Import a module of another package, by its dotted name.

    Raises:
        PluginImportError: Whatever is wrong in it.
    """
    try:
        return importlib.import_module(module)
    except (Exception, SystemExit) as error:  # whatever is wrong in it is the plugin's
        missing = isinstance(error, ModuleNotFoundError) and f"{module}.".startswith(f"{error.name}.")
        package = module.partition(".")[0]
        text = str(error) if missing else f"{_reason(error)}{_source_line(error, package)}"
        hint = "is it installed, or its folder on PYTHONPATH?" if missing else ""
        raise PluginImportError(" ".join(f"cannot be imported: {text}".split()), hint) from error


def _reason(error: BaseException) -> str:
    text = error.msg if isinstance(error, SyntaxError) else str(error)
    return ": ".join(part for part in (type(error).__name__, text) if part)


def _source_line(error: BaseException, package: str) -> str:
    """Where a package failed to be imported; empty where none of its lines was reached."""
    if isinstance(error, SyntaxError) and error.filename:
        return f" ({error.filename}:{error.lineno})"
    places = [
        f" ({frame.filename}:{frame.lineno})"
        for frame in traceback.extract_tb(error.__traceback__)
        if package in Path(frame.filename).with_suffix("").parts
    ]
    return places[-1] if places else ""
