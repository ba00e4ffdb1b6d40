"""Patterns of names of parameters and settings; parameters that training leaves as they are (freezing), and
those that learn at other rates than the schedule's."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Mapping, Sequence
from fnmatch import fnmatchcase
from typing import Annotated

from pydantic import BeforeValidator
from torch import nn

from deepwire.errors import UsageError
from deepwire.model.parametrization import UpdateScale


def _as_several(value: object) -> object:
    return [value] if isinstance(value, str) else value


Patterns = Annotated[tuple[str, ...], BeforeValidator(_as_several, json_schema_input_type=str)]
"""Patterns in a run file; one may stand without brackets."""


def matches(name: str, patterns: Sequence[str]) -> bool:
    """Whether one of the patterns is that of the whole name."""
    return any(fnmatchcase(name, pattern) for pattern in patterns)


def near_names(pattern: str, names: Iterable[str]) -> list[str]:
    """Suggestions: up to three names, or parts as `encoder.*`; else the largest parts."""
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
    frozen: dict[str, int] = {}
    for pattern in patterns:
        fresh = {id(parameter): parameter for parameter in _learning(model, pattern, "freeze")}
        for parameter in fresh.values():
            parameter.requires_grad_(False)
        frozen[pattern] = sum(parameter.numel() for parameter in fresh.values())
    if patterns and not any(parameter.requires_grad for parameter in model.parameters()):
        raise UsageError("training.freeze: nothing is left to train", "freeze less")
    return frozen


def with_rate_factors(
    scales: Mapping[str, UpdateScale], model: nn.Module, factors: Mapping[str, float]
) -> dict[str, UpdateScale]:
    """The factors of parameters, with those of `training.rate_factors`.

    Args:
        scales: By name of the parameter, those of the parametrisation; 1 for the others.
        model: The model, in which frozen parameters have been marked.
        factors: Of the learning rate, by patterns of names; where several match, the last one counts.

    Raises:
        UsageError: A pattern matches no parameter, or only frozen ones.
    """
    chosen: dict[int, float] = {}
    for pattern, factor in factors.items():
        learning = _learning(model, pattern, "rate_factors")
        if not learning:
            raise UsageError(
                f"training.rate_factors: all parameters that {pattern} matches are frozen",
                "leave it out, or change training.freeze",
            )
        chosen |= dict.fromkeys(map(id, learning), factor)
    plain = UpdateScale()
    return {
        name: scale._replace(rate=scale.rate * chosen.get(id(parameter), 1.0))
        for name, parameter in model.named_parameters()
        if (scale := scales.get(name, plain)) != plain or id(parameter) in chosen
    }


def _learning(model: nn.Module, pattern: str, setting: str) -> list[nn.Parameter]:
    """The parameters that a pattern of a setting matches and that are not frozen."""
    named = list(model.named_parameters(remove_duplicate=False))
    matched = [parameter for name, parameter in named if matches(name, (pattern,))]
    if not matched:
        near = ", ".join(near_names(pattern, [name for name, _ in named]))
        raise UsageError(f"training.{setting}: {pattern} matches no parameter", f"near names: {near}")
    return [parameter for parameter in matched if parameter.requires_grad]
