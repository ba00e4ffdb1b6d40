"""Freezing: parameters that training leaves as they are, chosen by patterns of their names."""

from __future__ import annotations

from collections.abc import Sequence

from torch import nn

from deepwire.errors import UsageError
from deepwire.training.patterns import matches, near_names


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
