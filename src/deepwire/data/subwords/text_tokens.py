"""Subwords found in the text that they were made of, and the words that each belongs to."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher
from typing import NamedTuple

from deepwire.data.subwords.base import Vocabulary

Span = tuple[int, int]
"""Begin and end in a text."""

_WORD = re.compile(r"\S+")


class TextTokens(NamedTuple):
    """A text and the subwords that a model reads or writes for it.

    `spans` say where each subword stands in the text; an empty span is that of one that is not seen.
    """

    text: str
    tokens: tuple[str, ...]
    spans: tuple[Span, ...]

    @classmethod
    def of(cls, vocabulary: Vocabulary, ids: Sequence[int], text: str) -> TextTokens:
        """The subwords `ids` (no BOS, tags or EOS) in a text that differs only in spaces and spelling."""
        said = vocabulary.decode(ids)
        places = _places(said, text)
        spans = [_covered(places[begin:end]) for begin, end in vocabulary.spans(ids)]
        return cls(text, tuple(vocabulary.pieces(ids)), tuple(spans))

    def within(self, text: str, at: int) -> TextTokens:
        """The same in a longer text, where this one begins at `at`."""
        return self._replace(text=text, spans=tuple((begin + at, end + at) for begin, end in self.spans))


def words_of(text: str) -> list[Span]:
    """Where the words of a text are, the parts between spaces."""
    return [match.span() for match in _WORD.finditer(text)]


def owners(spans: Sequence[Span], words: Sequence[Span]) -> list[range]:
    """The words that each span has something of."""
    begins, ends = [begin for begin, _ in words], [end for _, end in words]
    return [
        range(bisect_right(ends, begin), bisect_left(begins, end)) if begin < end else range(0)
        for begin, end in spans
    ]


def _covered(places: Sequence[Span | None]) -> Span:
    """From the first to the last place; nothing for none."""
    there = [place for place in places if place is not None]
    return (there[0][0], there[-1][1]) if there else (0, 0)


def _places(said: str, text: str) -> list[Span | None]:
    """Where each character of `said` stands in a text that differs in spaces and spelling."""
    owners = [place for place, letter in enumerate(said) if not letter.isspace()]
    seen = [place for place, letter in enumerate(text) if not letter.isspace()]
    letters, shown = "".join(said.split()), "".join(text.split())
    spans: list[Span | None] = [None] * len(said)
    for letter, shown_letter in _matched(letters, shown):
        owner, at = owners[letter], seen[shown_letter]
        begin = spans[owner]
        spans[owner] = (at if begin is None else begin[0], at + 1)
    return spans


def _matched(letters: str, shown: str) -> Iterable[tuple[int, int]]:
    """Pairs of places in two texts, ascending; what differs goes in its order, as far as it goes."""
    at = shown.find(letters)
    if at >= 0:
        yield from ((place, place + at) for place in range(len(letters)))
        return
    for _, begin, end, first, last in SequenceMatcher(None, letters, shown, autojunk=False).get_opcodes():
        count = end - begin
        for place in range(count if last > first else 0):
            # Of a part that has another length, the parts of its parts.
            yield begin + place, first + place * (last - first) // count
            if last - first > count and place == count - 1:
                yield begin + place, last - 1
