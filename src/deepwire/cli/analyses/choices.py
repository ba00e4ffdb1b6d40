"""Options with a few named values."""

from __future__ import annotations

from typing import TypeVar

from deepwire.errors import UsageError

Choice = TypeVar("Choice", bound=str)
ALL = "both"


def one_of(written: str, choices: tuple[Choice, ...], option: str) -> Choice:
    """The choice that was written.

    Raises:
        UsageError: It is not one of the choices.
    """
    for choice in choices:
        if choice == written:
            return choice
    raise _unknown(written, choices, option)


def one_or_all(written: str, choices: tuple[Choice, ...], option: str) -> tuple[Choice, ...]:
    """The choice that was written, or all of them for ``both``.

    Raises:
        UsageError: It is not one of the choices.
    """
    if written not in (*choices, ALL):
        raise _unknown(written, (*choices, ALL), option)
    return tuple(choice for choice in choices if written in (choice, ALL))


def _unknown(written: str, choices: tuple[str, ...], option: str) -> UsageError:
    return UsageError(f"{option}: unknown choice {written!r}", f"choose one of {', '.join(choices)}")
