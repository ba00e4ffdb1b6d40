"""Errors that a user can cause, each with the exit code of the command line.

Every one carries what is wrong and where (``message``) and what to do about it (``hint``).
The command line prints them as two lines and exits with ``exit_code``; no traceback.
"""

from __future__ import annotations

import re
from collections.abc import Callable

_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")

LogFn = Callable[[str], None]
"""Receives a line of text for the user: a warning, or how far the work is."""


def harmless(text: str) -> str:
    """Text with escapes for what would change the terminal: it may quote a file or a server."""
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], text)


class DeepwireError(Exception):
    """Base of every error that deepwire raises on purpose.

    Args:
        message: What is wrong and where, on one line; begins with the file and line when there is one.
        hint: What the user can do about it, on one line; empty when the message says it all.
    """

    exit_code = 1

    def __init__(self, message: str, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint

    def __str__(self) -> str:
        return f"{self.message} ({self.hint})" if self.hint else self.message


class UsageError(DeepwireError):
    """A command, run file or setting is wrong (exit code 2)."""

    exit_code = 2


class DataError(DeepwireError):
    """A text or corpus is missing, damaged or unusable (exit code 3)."""

    exit_code = 3


class ModelError(DeepwireError):
    """A model or checkpoint is missing, damaged or does not fit (exit code 4)."""

    exit_code = 4


class DivergedError(DeepwireError):
    """Training produced numbers that are not finite (exit code 5)."""

    exit_code = 5


class ResourceError(DeepwireError):
    """Memory or disk is not sufficient (exit code 6)."""

    exit_code = 6
