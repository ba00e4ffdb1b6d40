"""Directions as people name them, and groups of languages whose directions are averaged."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepwire.data.languages import Direction
from deepwire.errors import DataError, ModelError, UsageError
from deepwire.io.regular_files import read_json


def parse_direction(text: str) -> Direction:
    """Reads `de-en`; a UsageError for what is no direction."""
    try:
        return Direction.parse(str(text))  # Python callers may give a `Direction`, or what is none
    except ValueError as error:
        raise UsageError(str(error), "write source and target language, like de-en or en-zh_CN") from None


def parse_directions(text: str) -> list[Direction]:
    """Reads directions with commas between them, each once; a UsageError where one is none, or for none."""
    directions = [parse_direction(part.strip()) for part in text.split(",") if part.strip()]
    if not directions:
        raise UsageError("no direction is named", "write them like en-de,de-en")
    return list(dict.fromkeys(directions))


def languages_of(directions: Iterable[Direction]) -> list[str]:
    """All languages of some directions, sorted."""
    return sorted({language for direction in directions for language in direction})


HIGH = 900_000
LOW = 100_000
"""OPUS-100 has at most a million pairs a language: 45 of its 94 have more than HIGH."""


@dataclass(frozen=True)
class Group:
    """Directions that are averaged together: all whose languages, but for the centre, are in the group."""

    name: str
    languages: frozenset[str]

    def has(self, direction: Direction, centre: str) -> bool:
        """Whether a direction belongs to the group."""
        return all(language in self.languages for language in direction if language != centre)

    def check(self, directions: Iterable[Direction]) -> None:
        """Raises a UsageError where a language is in no direction: the average would be of fewer."""
        known = languages_of(directions)
        missing = sorted(self.languages.difference(known))
        if missing:
            raise UsageError(
                f"group {self.name}: no direction of the table has {', '.join(missing)}",
                f"it has {', '.join(known)}",
            )


def parse_group(text: str) -> Group:
    """Reads `NAME=de,fr` or `de,fr`, which is its own name; a UsageError where it names no language."""
    name, _, members = text.rpartition("=")
    languages = [part.strip() for part in members.split(",") if part.strip()]
    if not languages:
        raise UsageError(f"group {text!r} names no language", "write NAME=de,fr,cs or de,fr,cs")
    return Group(name.strip() or ", ".join(languages), frozenset(languages))


def resource_groups(
    sizes: Mapping[Direction, int], centre: str, *, high: int = HIGH, low: int = LOW
) -> list[Group]:
    """High-, medium- and low-resource languages by training pairs with the centre: from `high`, below `low`.

    Of two counts of a language, one for each direction, the larger decides. Groups without a language are
    left out.

    Raises:
        UsageError: `low` is above `high`.
    """
    if low > high:
        raise UsageError(f"--low {low} is above --high {high}", "high-resource means more text, not less")
    pairs: dict[str, int] = {}
    for direction, size in sizes.items():
        if centre in direction:
            other = direction.source if direction.target == centre else direction.target
            pairs[other] = max(size, pairs.get(other, 0))
    members = {
        f"high (from {high:,} pairs)": {name for name, size in pairs.items() if size >= high},
        "medium": {name for name, size in pairs.items() if low <= size < high},
        f"low (below {low:,} pairs)": {name for name, size in pairs.items() if size < low},
    }
    return [Group(name, frozenset(languages)) for name, languages in members.items() if languages]


def read_sizes(path: Path, directions: Sequence[Direction], centre: str) -> dict[Direction, int]:
    """Training pairs of directions from a JSON object of numbers: `{"de-en": 1000000, "br": 153447}`.

    A language stands for both of its directions with the centre.

    Raises:
        DataError: The file is missing, or is not such an object.
    """
    try:
        record = read_json(path)
    except ModelError as error:
        raise DataError(error.message, 'write {"de-en": 1000000, "br": 153447}') from None
    counts: dict[str, int] = {}
    for name, size in record.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise DataError(f"{path}: the size of {name} is not a number of pairs: {size!r}")
        counts[name] = size
    sizes: dict[Direction, int] = {}
    for direction in directions:
        languages = [language for language in direction if language != centre] if centre in direction else []
        names = [name for name in (str(direction), *languages) if name in counts]
        if names:
            sizes[direction] = counts[names[0]]
    return sizes
