"""Errors that a user can cause, with the exit codes of deepwire."""

from __future__ import annotations


class HostError(ValueError):
    """Base of what ends the program without a traceback.

    Args:
        message: What is wrong and where.
        remedy: What to do about it.
    """

    exit_code = 1

    def __init__(self, message: str, remedy: str) -> None:
        super().__init__(f"{message}; {remedy}")


class UsageError(HostError):
    """An option or setting is wrong."""

    exit_code = 2


class DataError(HostError):
    """A line of the input is wrong."""

    exit_code = 3


class ModelError(HostError):
    """The folder is no exported model, or a file of it is missing or damaged."""

    exit_code = 4


def reason(error: Exception) -> str:
    """The first line of what a library says."""
    return (str(error).splitlines() or [type(error).__name__])[0]
