"""Options with a few named values."""

from __future__ import annotations

from typing import TypeVar

from deepwire.errors import UsageError

Choice = TypeVar("Choice", bound=str)
ALL = "both"


def one_of(written: str, choices: tuple[Choice, ...], option: str) -> Choice:
    """The choice that was written.

    Raises:
        UsageError: It is none.
    """
    for choice in choices:
        if choice == written:
            return choice
    raise UsageError(f"{option}: unknown choice {written!r}", f"choose one of {', '.join(choices)}")


def one_or_all(written: str, choices: tuple[Choice, ...], option: str) -> tuple[Choice, ...]:
    """The choice that was written, or all of them for ``both``.

    Raises:
        UsageError: It is neither.
    """
    return choices if written == ALL else (one_of(written, choices, option),)
