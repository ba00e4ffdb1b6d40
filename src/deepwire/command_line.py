"""The command as the user has typed it, for records and for hints that repeat it with a small change."""

from __future__ import annotations

import os
import shlex
from collections.abc import Sequence

_typed: list[str] = []


def remember(arguments: Sequence[str]) -> None:
    """Keep the arguments of the command that begins, without the name of the program."""
    _typed[:] = arguments


def again(*added: str, without: Sequence[str] = (), processes: int | None = None) -> str:
    """The user's command with a change, quoted for a shell.

    Args:
        added: Arguments to add.
        without: Arguments to leave out.
        processes: How many torchrun is to start on this machine; None = started as it was.

    Returns:
        The command; empty where none was typed, as in a Python program.
    """
    if not _typed:
        return ""
    end = _typed.index("--") if "--" in _typed else len(_typed)
    kept = [argument for argument in _typed[:end] if argument not in (*added, *without)]
    return shlex.join([*_program(processes), *kept, *added, *_typed[end:]])


def _program(processes: int | None) -> list[str]:
    here, everywhere = (os.environ.get(name, "1") for name in ("LOCAL_WORLD_SIZE", "WORLD_SIZE"))
    if processes is None and ("TORCHELASTIC_RUN_ID" not in os.environ or everywhere == "1"):
        return ["deepwire"]
    # How several machines find each other is not known here.
    how = ["--nproc-per-node", str(processes or here)] if here == everywhere else ["..."]
    return ["torchrun", *how, "-m", "deepwire"]
