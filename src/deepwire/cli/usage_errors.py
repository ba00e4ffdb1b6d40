"""Errors of the parser of options in the words of deepwire: what is wrong, and what to do about it."""

from __future__ import annotations

import difflib
import re
from pathlib import Path
from typing import Any

import typer

KEYS = Path(__file__).with_name("keys.txt")
"""The settings of a run file, which its classes would take seconds to tell; a test compares them."""


def leave_reading_to_commands(command: Any) -> None:
    """Have the parser not ask whether a path may be read: the command that reads it knows what it is."""
    for parameter in command.params:
        # Only a parameter of ours has one, and nothing public leads there.
        info = getattr(getattr(parameter, "type_descriptor", None), "parameter_info", None)
        if info is not None:
            info.readable = False
    for inside in getattr(command, "commands", {}).values():
        leave_reading_to_commands(inside)


def described(error: typer.TyperException, verb: str) -> tuple[list[str], str, int]:
    """(lines, hint, exit code) of a wrong option or command; the parser's suggestion becomes the hint."""
    text = " ".join(error.format_message().split()).replace("Value error, ", "")
    if error.__cause__ is not None and hasattr(error.__cause__, "errors"):  # pydantic's
        fault = error.__cause__.errors()[0]
        if fault["type"] != "value_error":
            must = fault["msg"].replace("Input should", "must")
            text = text.replace(fault["msg"], f"{must}, not {fault['input']}")
    match = re.search(r"\s*\(Possible options: (.+)\)$|\.?\s*Did you mean (.+)\?$", text)
    guesses = [] if match is None else [name.strip() for name in (match[1] or match[2]).split(",")]
    text = text if match is None else text[: match.start()]
    context = getattr(error, "ctx", None)
    path = f"deepwire {verb}".strip() if context is None else context.command_path
    typed = re.search(r"No such option: --?([^\s=]+?)\.?(\s|=|$)", text)
    if typed:  # dashes, which all have in common, make no name similar
        guesses = [
            f"--{near}" for near in difflib.get_close_matches(typed[1], [name[2:] for name in guesses])
        ]
    hint = f"did you mean {', '.join(guesses)}?" if guesses else f"see {path} --help"
    words = {str(each.metavar) for each in (context.command.params if context else ())}
    if typed and any("[KEY=VALUE]" in word for word in words):
        keys = _settings(typed[1], "" if "[KEY=VALUE]..." in words else "decoding.")
        hint = f"settings have no dashes: {' or '.join(f'{key}=VALUE' for key in keys)}" if keys else hint
    return ([text.rstrip(".")] if text else []), hint, error.exit_code


def _settings(typed: str, section: str) -> list[str]:
    """The settings below a section that an option may have been meant to be: the outermost of its name."""
    name = "_" + re.sub(r"[-.]", "_", typed)
    known = KEYS.read_text(encoding="utf-8").splitlines()
    below = [key.removeprefix(section) for key in known if key.startswith(section)]
    found = [key for key in below if f"_{key}".replace(".", "_").endswith(name)]
    exact = [key for key in found if f"_{key.rpartition('.')[2]}" == name] or found
    least = min((key.count(".") for key in exact), default=0)
    return [key for key in exact if key.count(".") == least]
