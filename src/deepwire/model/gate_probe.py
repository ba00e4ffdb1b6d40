"""Where the values of gates can be seen while a stack runs, as its sockets show them to analyses.

A probe names a module and how to read gates off one call of it. Analyses put forward hooks there; the modules
know nothing of being watched, so training and decoding are the same with this file and without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from torch import Tensor, nn

ReadGates = Callable[[tuple[Tensor, ...], object], Mapping[str, Tensor]]
"""The gates by name, each `[B, T, ...]`, from the inputs and the output of one call of a module."""


class Place(NamedTuple):
    """Where in depth a gate stands.

    Attributes:
        order: Its number from the bottom of the stack; gates of one place work together.
        name: For people: ``3``, or ``3 cross`` where a layer has several.
    """

    order: int
    name: str


@dataclass(frozen=True)
class GateProbe:
    """A module whose calls show gates.

    Attributes:
        family: What the gates belong to: ``depth-wise LSTM``.
        module: It is called once for each place within one pass over the stack.
        places: In the order of these calls.
        read: Takes the gates from a call.
        meaning: What it means that a gate is 1, by the gate's name.
        keeps: The gate whose product over places says how much of a state is still there; None without one.
        shares_of: Where the gates of a place are shares that sum to 1, what their names stand for; None where
            each gate is open or closed by itself.
    """

    family: str
    module: nn.Module
    places: tuple[Place, ...]
    read: ReadGates
    meaning: Mapping[str, str]
    keeps: str | None = None
    shares_of: str | None = None
