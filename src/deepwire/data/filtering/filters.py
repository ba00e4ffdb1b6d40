"""Which pairs training leaves out, and why."""

from __future__ import annotations

import re

import numpy as np
from numpy.typing import NDArray

from deepwire.data.data_config import FilterConfig
from deepwire.data.text.reader import Lines

REASONS = {
    "one_side_empty": "one side is empty or only spaces, the other is not",
    "both_empty": "both sides are empty or only spaces",
    "too_short": "a side has fewer than min_characters characters",
    "too_long": "a side is longer than max_characters or max_length",
    "ratio": "one side is more than max_ratio times as long as the other",
    "nul": "a side holds a NUL character",
    "bad_utf8": "a side is not UTF-8",
    "copy": "both sides are the same",
    "duplicate": "the same pair came before",
}
"""Every reason a pair can be dropped for, with what it means."""

RATIO_FREE_CHARACTERS = 20
"""Pairs with no longer side pass the ratio: "Ja." for "Yes, of course." is a translation."""

_WIDE_LETTERS = 3
_WIDE = re.compile("[\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]")
"""Ideographs, kana, hangul: letters that stand for about three of an alphabet."""


NAMES = ("", *REASONS)
"""The reasons by their numbers; 0 keeps a pair."""
NUMBERS = {name: number for number, name in enumerate(NAMES)}

Reasons = NDArray[np.uint8]


class PairFilter:
    """Decides about each pair by itself: everything but duplicates.

    Lengths are counted in characters, so that scripts without spaces are treated like others.
    """

    def __init__(self, filters: FilterConfig) -> None:
        self._shortest, self._longest = filters.min_characters, filters.max_characters
        self._ratio = filters.max_ratio
        self._drop_copies = filters.drop_copies

    def reasons(self, lines: Lines) -> Reasons:
        """`[pairs]`: why each is dropped, a place in `NAMES`; 0 keeps it."""
        sides, lengths, count = (lines.sources, lines.targets), lines.lengths, len(lines.sources)
        blank = [np.fromiter(map(str.isspace, side), np.bool_, count) for side in sides] | (lengths == 0)
        shorter, longer = lengths.min(axis=0), lengths.max(axis=0)
        reasons = np.select(
            [blank.all(axis=0), blank.any(axis=0), longer > self._longest, shorter < self._shortest],
            [NUMBERS[name] for name in ("both_empty", "one_side_empty", "too_long", "too_short")],
            0,
        ).astype(np.uint8)
        # Counting wide letters can change the ratio by 3 at most, and most pairs are far from the limit.
        suspects = (reasons == 0) & (longer * _WIDE_LETTERS > shorter * self._ratio)
        for place in np.flatnonzero(suspects).tolist():
            if self._absurd_ratio(sides[0][place], sides[1][place]):
                reasons[place] = NUMBERS["ratio"]
        if self._drop_copies:
            same = np.fromiter(map(str.__eq__, *sides), np.bool_, count)
            reasons[same & (reasons == 0)] = NUMBERS["copy"]
        for place, fault in lines.faults.items():
            reasons[place] = NUMBERS[fault]
        return reasons

    def _absurd_ratio(self, source: str, target: str) -> bool:
        shorter, longer = sorted((_letters(source), _letters(target)))
        return longer > RATIO_FREE_CHARACTERS and longer > shorter * self._ratio


def _letters(text: str) -> int:
    """Length of `text` in letters of an alphabet: each wide letter counts as three."""
    if text.isascii():
        return len(text)
    return len(text) + (_WIDE_LETTERS - 1) * len(_WIDE.findall(text))
