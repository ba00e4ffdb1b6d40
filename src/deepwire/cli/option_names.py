"""Errors that call a setting, or an argument in Python, by the name of the option that stands for it."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from deepwire.errors import DeepwireError


@contextmanager
def options_named(names: Mapping[str, str], *kinds: type[DeepwireError]) -> Iterator[None]:
    """Put the options of a command into the message and the hint of an error.

    Args:
        names: What errors say, as regular expressions, and what they say here, as `re.sub` takes both.
        kinds: Of errors; others stay as they are.
    """
    try:
        yield
    except kinds as error:
        for said, here in names.items():
            error.message = re.sub(said, here, error.message)
            error.hint = re.sub(said, here, error.hint)
        raise
