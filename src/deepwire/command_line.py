"""The command as the user has typed it, for records and for hints that repeat it with a small change."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

_typed: list[str] = []


def remember(arguments: Sequence[str]) -> None:
    """Keep the arguments of the command that begins, without the name of the program."""
    _typed[:] = arguments


def again(*added: str, without: Sequence[str] = ()) -> str:
    """The user's command with a change, quoted for a shell.

    Args:
        added: Arguments to add.
        without: Arguments to leave out.

    Returns:
        The command; empty where none was typed, as in a Python program.
    """
    if not _typed:
        return ""
    end = _typed.index("--") if "--" in _typed else len(_typed)
    kept = [argument for argument in _typed[:end] if argument not in (*added, *without)]
    several = "TORCHELASTIC_RUN_ID" in os.environ and os.environ.get("WORLD_SIZE", "1") != "1"
    program = ["torchrun", "...", "-m"] if several else []
    return shlex.join([*program, "deepwire", *kept, *added, *_typed[end:]])
