"""A direction with texts that lose words: for tables of many directions, and tests of their finding."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from deepwire.data.languages import Direction
from deepwire.evaluation.multilingual.direction_table import DirectionFacts
from deepwire.evaluation.texts import Text

REFERENCE = [f"The small dog number {number} sleeps on the old roof of the house." for number in range(40)]


def worse(lines: Sequence[str], every: int) -> list[str]:
    """Every so-many-th line loses words."""
    return [
        line.replace("sleeps on the old", "is at") if place % every == 0 else line
        for place, line in enumerate(lines)
    ]


@pytest.fixture
def translated() -> Callable[..., tuple[DirectionFacts, Text, Text, Text | None]]:
    """A direction with texts that lose words in every so-many-th line: what ``DirectionTable.add`` takes."""

    def make(
        direction: str, ours: int = 3, theirs: int | None = None, **more: Any
    ) -> tuple[DirectionFacts, Text, Text, Text | None]:
        baseline = None if theirs is None else Text("base", worse(REFERENCE, theirs))
        about = DirectionFacts(Direction.parse(direction), **more)
        return about, Text("ref", REFERENCE), Text("ours", worse(REFERENCE, ours)), baseline

    return make
