"""Directions as people name them, and groups of languages whose directions are averaged."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepwire.data.languages import Direction
from deepwire.errors import DataError, UsageError
from deepwire.io.regular_files import read_regular


def parse_direction(text: str) -> Direction:
    """Read ``de-en``.

    Raises:
        UsageError: It is no direction.
    """
    try:
        return Direction.parse(str(text))  # Python callers may give a `Direction`, or what is none
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


HIGH = 900_000
LOW = 100_000
"""OPUS-100 has at most a million pairs a language: 45 of its 94 have more than HIGH."""


@dataclass(frozen=True)
class Group:
    """Directions that are averaged together: all between ``centre`` and one of the languages.

    Attributes:
        name: What tables call it.
        languages: Its languages, without the centre.
    """

    name: str
    languages: frozenset[str]

    def has(self, direction: Direction, centre: str) -> bool:
        """Whether a direction belongs to the group: every language of it but the centre does."""
        return all(language in self.languages for language in direction if language != centre)

    def check(self, directions: Iterable[Direction]) -> None:
        """Check that each of its languages is in the table: the average would be of fewer than it says.

        Raises:
            UsageError: One is in none of the directions.
        """
        known = {language for direction in directions for language in direction}
        missing = sorted(self.languages - known)
        if missing:
            raise UsageError(
                f"group {self.name}: no direction of the table has {', '.join(missing)}",
                f"it has {', '.join(sorted(known))}",
            )


def parse_group(text: str) -> Group:
    """Read ``NAME=de,fr`` or ``de,fr``, which is its own name.

    Raises:
        UsageError: It names no language.
    """
    name, _, members = text.rpartition("=")
    languages = [part.strip() for part in members.split(",") if part.strip()]
    if not languages:
        raise UsageError(f"group {text!r} names no language", "write NAME=de,fr,cs or de,fr,cs")
    return Group(name.strip() or ", ".join(languages), frozenset(languages))


def resource_groups(
    sizes: Mapping[Direction, int], centre: str, *, high: int = HIGH, low: int = LOW
) -> list[Group]:
    """High-, medium- and low-resource languages, by the training pairs between each and the centre.

    High has at least ``high`` pairs, low less than ``low``. Of two counts of a language (one for each
    direction) the larger decides. Groups without a language are left out.

    Raises:
        UsageError: ``low`` is above ``high``.
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
    """Training pairs of directions from a JSON object of numbers: ``{"de-en": 1000000, "br": 153447}``.

    A language stands for both of its directions with the centre.

    Raises:
        DataError: The file is missing, or is not such an object.
    """
    try:
        record = json.loads(read_regular(path))
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror or error}") from None
    except (ValueError, RecursionError) as error:
        raise DataError(f"{path}: not JSON: {error}") from None
    if not isinstance(record, dict):
        raise DataError(f"{path}: not a JSON object", 'write {"de-en": 1000000, "br": 153447}')
    for name, size in record.items():
        if isinstance(size, bool) or not isinstance(size, int) or size < 0:
            raise DataError(f"{path}: the size of {name} is not a number of pairs: {size!r}")
    sizes: dict[Direction, int] = {}
    for direction in directions:
        names = [str(direction), *(language for language in direction if language != centre)]
        size = next((record[name] for name in names if name in record), None)
        if size is not None and (str(direction) in record or centre in direction):
            sizes[direction] = size
    return sizes
