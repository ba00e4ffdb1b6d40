"""Shell patterns of names of parameters and settings: `encoder.*`, `*.table.weight`, `*.mixers.[0-3].*`."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import BeforeValidator


def _as_several(value: object) -> object:
    return [value] if isinstance(value, str) else value


Patterns = Annotated[tuple[str, ...], BeforeValidator(_as_several)]
"""Patterns in a run file; one may stand without brackets."""


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns is that of the whole name."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def near_names(pattern: str, names: Iterable[str]) -> list[str]:
    """What may have been meant: up to three names, or parts as `encoder.*`; else the largest parts."""
    every = dict.fromkeys(names)
    parts = {
        f"{name.rsplit('.', depth)[0]}.*": None for name in every for depth in range(1, name.count(".") + 1)
    }
    choices = [*parts, *every]
    near = difflib.get_close_matches(pattern, choices, n=3, cutoff=0.5)
    return near or sorted(part for part in parts if part.count(".") == 1)[:6]
