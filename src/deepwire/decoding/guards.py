"""Translations that are clearly wrong: those that repeat themselves, and those that do not end."""

from __future__ import annotations

from collections.abc import Sequence

from deepwire.data.text.pairs import is_blank
from deepwire.data.text.placeholders import has_letters
from deepwire.errors import Tell

_LONGEST_LOOP = 8
_TIMES = 4
"""So many times in a row, something was not meant."""
NO_REPEAT = 3
"""The second try has no n-gram of this size twice."""
_ENOUGH_LINES = 5
_NEARLY_ALL = 0.9


def loops(ids: Sequence[int]) -> bool:
    """Whether some subwords, eight at most, come four times in a row; a single one five times."""
    for size in range(1, _LONGEST_LOOP + 1):
        same = 0
        for place in range(size, len(ids)):
            same = same + 1 if ids[place] == ids[place - size] else 0
            if same >= size * (_TIMES - 1) and (size > 1 or same >= _TIMES):
                return True
    return False


def is_degenerate(source: Sequence[int], translation: Sequence[int], limit: int) -> bool:
    """Whether a translation repeats itself as its source does not, or was stopped at its limit.

    Args:
        source: Subwords of the source.
        translation: Subwords of the translation.
        limit: Most subwords that it could have.
    """
    return len(translation) >= limit or (loops(translation) and not loops(source))


def nothing_to_translate(text: str) -> bool:
    """Whether a line has no letters but those of placeholders: it is its own translation."""
    return not is_blank(text) and not has_letters(text)


class EmptyTranslations:
    """Counts empty translations of lines that are not empty, and warns where nearly all are.

    Args:
        warn: Receives the warning.
    """

    def __init__(self, warn: Tell) -> None:
        self._warn, self._lines, self._empty = warn, 0, 0

    def see(self, source: str, translation: str) -> None:
        """Count a line."""
        if not is_blank(source):
            self._lines += 1
            self._empty += is_blank(translation)

    def end(self) -> None:
        """Warn, if it must be, after all lines."""
        if self._lines >= _ENOUGH_LINES and self._empty >= _NEARLY_ALL * self._lines:
            self._warn(
                f"{self._empty} of {self._lines} translations are empty: the model was perhaps trained too "
                "little, or is asked for a language that it does not know"
            )
