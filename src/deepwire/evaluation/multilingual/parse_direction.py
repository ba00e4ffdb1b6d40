"""Directions as people name them."""

from __future__ import annotations

from collections.abc import Iterable

from deepwire.data.languages import Direction
from deepwire.errors import UsageError


def parse_direction(text: str) -> Direction:
    """Read ``de-en``.

    Raises:
        UsageError: It is no direction.
    """
    try:
        return Direction.parse(text)
    except ValueError as error:
        raise UsageError(str(error), "write source and target language, like de-en or en-zh_CN") from None


def parse_directions(text: str) -> list[Direction]:
    """Read a list of directions with commas between them; each counts once.

    Raises:
        UsageError: One of them is no direction, or there is none.
    """
    directions = [parse_direction(part.strip()) for part in text.split(",") if part.strip()]
    if not directions:
        raise UsageError("no direction is named", "write them like en-de,de-en")
    return list(dict.fromkeys(directions))


def languages_of(directions: Iterable[Direction]) -> list[str]:
    """All languages of some directions, sorted."""
    return sorted({language for direction in directions for language in direction})
