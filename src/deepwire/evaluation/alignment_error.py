"""Gold alignments, and how far others are from them (Och and Ney 2003)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import NamedTuple

from deepwire.data.text.files import display, read_lines
from deepwire.errors import DataError

Link = tuple[int, int]
"""A word of the source and one of the target, from 0."""

_LINK = re.compile(r"(\d{1,6})([-?p])(\d{1,6})")
_HINT = "write i-j for a sure link and i?j or ipj for a possible one: source word, then target word"


class GoldAlignment(NamedTuple):
    """The links that people gave to a pair: those that an alignment should have, and all that it may have."""

    sure: frozenset[Link]
    possible: frozenset[Link]


@dataclass(frozen=True)
class AlignmentCounts:
    """Counted links A of a text and its gold ones, sure S and possible P; two add up."""

    found: int = 0
    sure: int = 0
    found_sure: int = 0
    found_possible: int = 0

    @classmethod
    def of(cls, links: Iterable[Link], gold: GoldAlignment) -> AlignmentCounts:
        """Counts of one pair."""
        predicted = set(links)
        return cls(len(predicted), len(gold.sure), len(predicted & gold.sure), len(predicted & gold.possible))

    def __add__(self, other: AlignmentCounts) -> AlignmentCounts:
        return AlignmentCounts(*map(sum, zip(astuple(self), astuple(other), strict=True)))

    @property
    def error_rate(self) -> float:
        """AER = 1 - (|A and S| + |A and P|) / (|A| + |S|), from 0 (none) to 1."""
        return 1 - (self.found_sure + self.found_possible) / max(1, self.found + self.sure)

    @property
    def precision(self) -> float:
        """|A and P| / |A|."""
        return self.found_possible / max(1, self.found)

    @property
    def recall(self) -> float:
        """|A and S| / |S|."""
        return self.found_sure / max(1, self.sure)


def read_gold(path: Path, words: Sequence[tuple[int, int]], first: int = 0) -> list[GoldAlignment]:
    """Reads `0-0 1?2 2p2` lines of pairs with so many words on both sides, counted from `first`.

    Raises:
        DataError: A line is none, or names words that a pair has not; or there are more or fewer lines.
    """
    lines = list(map(str, read_lines(path)))
    if len(lines) != len(words):
        raise DataError(f"{display(path)}: {len(lines)} lines, but the text has {len(words)}")
    return [
        _gold(f"{display(path)}:{number}", line, sizes, first)
        for number, (line, sizes) in enumerate(zip(lines, words, strict=True), 1)
    ]


def _gold(where: str, line: str, words: tuple[int, int], first: int) -> GoldAlignment:
    sure, possible = set[Link](), set[Link]()
    for part in line.split():
        match = _LINK.fullmatch(part)
        if match is None:
            raise DataError(f"{where}: no link: {part[:40]!r}", _HINT)
        link = int(match[1]) - first, int(match[3]) - first
        if not (0 <= link[0] < words[0] and 0 <= link[1] < words[1]):
            raise DataError(
                f"{where}: {part}, but the pair has {words[0]} and {words[1]} words, counted from {first}",
                _HINT,
            )
        possible.add(link)
        if match[2] == "-":
            sure.add(link)
    return GoldAlignment(frozenset(sure), frozenset(possible))
