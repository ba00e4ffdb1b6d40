"""Patterns of names of parameters and settings, and freezing: parameters that training leaves as they are."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Sequence
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import BeforeValidator
from torch import nn

from deepwire.errors import UsageError


def _as_several(value: object) -> object:
    return [value] if isinstance(value, str) else value


Patterns = Annotated[tuple[str, ...], BeforeValidator(_as_several, json_schema_input_type=str)]
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


def freeze(model: nn.Module, patterns: Sequence[str]) -> dict[str, int]:
    """Let no gradient reach the parameters whose names match a pattern.

    A parameter that several parts share has several names; one of them is enough.

    Args:
        model: The model; its parameters are changed (`requires_grad`).
        patterns: Such as `encoder.*`, `*.table.weight` or `decoder.mixers.[0-3].*`.

    Returns:
        For each pattern, how many numbers it freezes that those before it did not.

    Raises:
        UsageError: A pattern matches no name, or nothing is left to train.
    """
    named = list(model.named_parameters(remove_duplicate=False))
    frozen: dict[str, int] = {}
    for pattern in patterns:
        matched = [parameter for name, parameter in named if matches(name, (pattern,))]
        if not matched:
            near = ", ".join(near_names(pattern, [name for name, _ in named]))
            raise UsageError(f"training.freeze: {pattern} matches no parameter", f"near names: {near}")
        fresh = {id(parameter): parameter for parameter in matched if parameter.requires_grad}
        for parameter in fresh.values():
            parameter.requires_grad_(False)
        frozen[pattern] = sum(parameter.numel() for parameter in fresh.values())
    if patterns and not any(parameter.requires_grad for parameter in model.parameters()):
        raise UsageError("training.freeze: nothing is left to train", "freeze less")
    return frozen
