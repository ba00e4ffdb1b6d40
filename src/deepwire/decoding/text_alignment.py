"""Which parts of a translation come from which parts of its source: subwords found in texts, and words."""

from __future__ import annotations

import re
from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import SequenceMatcher
from typing import Literal, NamedTuple

from deepwire.data.vocabulary import Vocabulary

Span = tuple[int, int]
"""Begin and end in a text."""
Link = tuple[int, int]
"""A unit of the source and one of the translation, counted from 0."""
Units = Literal["words", "subwords"]

_WORD = re.compile(r"\S+")


def pharaoh(links: Iterable[Link]) -> str:
    """Links as `0-0 1-2`: the n-th unit of the source, a hyphen, that of the translation, from 0."""
    return " ".join(f"{source}-{target}" for source, target in links)


class TextTokens(NamedTuple):
    """A text and the subwords that a model reads or writes for it.

    Attributes:
        text: As a user sees it.
        tokens: The subwords, as the vocabulary writes them; none for a text that no model saw.
        spans: Where each stands in the text; empty where it writes nothing that is seen.
    """

    text: str
    tokens: tuple[str, ...]
    spans: tuple[Span, ...]

    @classmethod
    def of(
        cls, vocabulary: Vocabulary, ids: Sequence[int], text: str, values: Mapping[str, str] | None = None
    ) -> TextTokens:
        """The subwords `ids` in a text that is what they say, but for spaces and spelling.

        Args:
            vocabulary: Theirs.
            ids: Without BOS, tags and EOS.
            text: What a user sees.
            values: What symbols of placeholders stand for.
        """
        said = vocabulary.decode(ids)
        places = _places(said, text, values or {})
        spans = [_covered(places[begin:end]) for begin, end in vocabulary.spans(ids)]
        return cls(text, tuple(vocabulary.pieces(ids)), tuple(spans))

    def within(self, text: str, at: int) -> TextTokens:
        """The same in a longer text, where this one begins at `at`."""
        return self._replace(text=text, spans=tuple((begin + at, end + at) for begin, end in self.spans))


@dataclass(frozen=True)
class TextAlignment:
    """A text, its translation, and which subwords of both belong together.

    Attributes:
        source, target: The texts; subwords are counted along their `spans`.
        subword_links: Sorted.
        units: What `links` counts.
    """

    source: TextTokens
    target: TextTokens
    subword_links: tuple[Link, ...]
    units: Units = "words"

    @classmethod
    def copied(cls, text: str, units: Units = "words") -> TextAlignment:
        """Of a text that is its own translation: each word belongs to itself."""
        words = TextTokens(text, (), tuple(_words(text)))
        return cls(words, words, tuple((place, place) for place in range(len(words.spans))), units)

    @property
    def links(self) -> tuple[Link, ...]:
        """Links of words or subwords, as `units` says, sorted; of subwords where a model saw the text."""
        if self.units == "words":
            return self.word_links
        return self.subword_links if self.source.tokens else ()

    @property
    def word_links(self) -> tuple[Link, ...]:
        """Links of words, the parts between spaces: they are linked if any of their subwords are.

        So are words without a link that both texts have once, such as a placeholder that was put back.
        """
        source, target = _words(self.source.text), _words(self.target.text)
        owners = _owners(self.source.spans, source), _owners(self.target.spans, target)
        links = {
            (i, j) for one, other in self.subword_links for i in owners[0][one] for j in owners[1][other]
        }
        return tuple(sorted(links | set(_equal_words(self, source, target, links))))

    def pharaoh(self) -> str:
        """`links` as text."""
        return pharaoh(self.links)


def joined(source: str, target: str, parts: Sequence[tuple[TextAlignment, int, int]]) -> TextAlignment:
    """The alignment of texts from those of their parts, each with its place in both texts."""
    tokens: tuple[list[TextTokens], list[TextTokens]] = ([], [])
    links: list[Link] = []
    counts = [0, 0]
    for part, *places in parts:
        links += [(one + counts[0], other + counts[1]) for one, other in part.subword_links]
        sides = part.source, part.target
        for side, (text, at) in enumerate(zip((source, target), places, strict=True)):
            tokens[side].append(sides[side].within(text, at))
            counts[side] += len(sides[side].spans)
    both = [
        TextTokens(
            text,
            tuple(token for one in own for token in one.tokens),
            tuple(span for one in own for span in one.spans),
        )
        for text, own in zip((source, target), tokens, strict=True)
    ]
    units = parts[0][0].units if parts else "words"
    return TextAlignment(both[0], both[1], tuple(sorted(links)), units)


def composed(first: TextAlignment, second: TextAlignment) -> TextAlignment:
    """From a text by way of its translation, the source of `second`, to the translation of that; in words."""
    onward: dict[int, list[int]] = {}
    for middle, target in second.word_links:
        onward.setdefault(middle, []).append(target)
    links = {(source, target) for source, middle in first.word_links for target in onward.get(middle, ())}
    sides = [TextTokens(text, (), tuple(_words(text))) for text in (first.source.text, second.target.text)]
    return replace(second, source=sides[0], target=sides[1], subword_links=tuple(sorted(links)))


def _words(text: str) -> list[Span]:
    return [match.span() for match in _WORD.finditer(text)]


def _owners(spans: Sequence[Span], words: Sequence[Span]) -> list[range]:
    """The words that each span has something of."""
    begins, ends = [begin for begin, _ in words], [end for _, end in words]
    return [
        range(bisect_right(ends, begin), bisect_left(begins, end)) if begin < end else range(0)
        for begin, end in spans
    ]


def _equal_words(
    alignment: TextAlignment, source: Sequence[Span], target: Sequence[Span], links: Iterable[Link]
) -> Iterable[Link]:
    texts = [
        [side.text[begin:end] for begin, end in words]
        for side, words in ((alignment.source, source), (alignment.target, target))
    ]
    linked = [set(side) for side in zip(*links, strict=True)] or [set(), set()]
    counts = [Counter(words) for words in texts]
    places = {word: place for place, word in enumerate(texts[0])}
    for place, word in enumerate(texts[1]):
        once = counts[0][word] == counts[1][word] == 1
        if once and place not in linked[1] and places[word] not in linked[0]:
            yield places[word], place


def _covered(places: Sequence[Span | None]) -> Span:
    """From the first to the last place; nothing for none."""
    there = [place for place in places if place is not None]
    return (there[0][0], there[-1][1]) if there else (0, 0)


def _places(said: str, text: str, values: Mapping[str, str]) -> list[Span | None]:
    """Where each character of `said` stands in a text that differs in spaces, spelling and placeholders."""
    written = [(place, letter) for place, one in enumerate(said) for letter in values.get(one, one)]
    owners = [place for place, letter in written if not letter.isspace()]
    letters = "".join(letter for _, letter in written if not letter.isspace())
    seen = [place for place, letter in enumerate(text) if not letter.isspace()]
    shown = "".join(text[place] for place in seen)
    found: list[Span | None] = [None] * len(said)
    for one, other in _matched(letters, shown):
        own, at = owners[one], seen[other]
        begin = found[own]
        found[own] = (at if begin is None else begin[0], at + 1)
    return found


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
