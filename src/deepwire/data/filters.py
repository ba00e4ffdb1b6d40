"""Which pairs training leaves out, and why."""

from __future__ import annotations

import re

from deepwire.data.config import FilterConfig
from deepwire.data.corpus import Pair
from deepwire.data.duplicates import DigestSet

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


class PairFilter:
    """Decides pair by pair, in order; remembers the kept pairs where duplicates are dropped.

    Lengths are counted in characters, so that scripts without spaces are treated like others. Duplicates cost
    13 to 27 bytes for each kept pair (`duplicates.DigestSet`).
    """

    def __init__(self, filters: FilterConfig) -> None:
        self._shortest, self._longest = filters.min_characters, filters.max_characters
        self._ratio = filters.max_ratio
        self._drop_copies = filters.drop_copies
        self._seen = DigestSet() if filters.drop_duplicates else None

    def reason(self, pair: Pair) -> str | None:
        """Why `pair` is dropped, a key of `REASONS`; None keeps it."""
        if pair.fault:
            return pair.fault
        source, target = pair.source, pair.target
        no_source, no_target = not source or source.isspace(), not target or target.isspace()
        if no_source or no_target:
            return "both_empty" if no_source and no_target else "one_side_empty"
        shorter, longer = len(source), len(target)
        if shorter > longer:
            shorter, longer = longer, shorter
        if longer > self._longest:
            return "too_long"
        if shorter < self._shortest:
            return "too_short"
        # Counting wide letters can change the ratio by 3 at most, and most pairs are far from the limit.
        if longer * _WIDE_LETTERS > shorter * self._ratio and self._absurd_ratio(source, target):
            return "ratio"
        if self._drop_copies and source == target:
            return "copy"
        if self._seen is not None and not self._seen.add(f"{source}\n{target}"):
            return "duplicate"
        return None

    def seen(self, pair: Pair) -> bool:
        """Whether an equal pair was kept before; always False unless duplicates are dropped."""
        return self._seen is not None and f"{pair.source}\n{pair.target}" in self._seen

    def _absurd_ratio(self, source: str, target: str) -> bool:
        shorter, longer = sorted((_letters(source), _letters(target)))
        return longer > RATIO_FREE_CHARACTERS and longer > shorter * self._ratio


def _letters(text: str) -> int:
    """Length of `text` in letters of an alphabet: each wide letter counts as three."""
    if text.isascii():
        return len(text)
    return len(text) + (_WIDE_LETTERS - 1) * len(_WIDE.findall(text))
