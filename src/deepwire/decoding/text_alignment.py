"""Which parts of a translation come from which parts of its source: subwords found in texts, and words."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from deepwire.data.subwords.text_tokens import Span, TextTokens, owners, words_of

Link = tuple[int, int]
"""A unit of the source and one of the translation, counted from 0."""


@dataclass(frozen=True)
class TextAlignment:
    """A text, its translation, and which subwords of both belong together.

    Attributes:
        source, target: The texts; subwords are counted along their `spans`.
        subword_links: Sorted.
    """

    source: TextTokens
    target: TextTokens
    subword_links: tuple[Link, ...]

    @classmethod
    def copied(cls, text: str) -> TextAlignment:
        """The alignment of a text that is its own translation: each word belongs to itself."""
        words = TextTokens(text, (), tuple(words_of(text)))
        return cls(words, words, tuple((place, place) for place in range(len(words.spans))))

    @property
    def links(self) -> tuple[Link, ...]:
        """Links of words, the parts between spaces, sorted: they are linked if any of their subwords are.

        So are words without a link that both texts have once, such as a placeholder that was put back.
        """
        source, target = words_of(self.source.text), words_of(self.target.text)
        owning = owners(self.source.spans, source), owners(self.target.spans, target)
        links = {
            (i, j)
            for source_subword, target_subword in self.subword_links
            for i in owning[0][source_subword]
            for j in owning[1][target_subword]
        }
        return tuple(sorted(links | set(_equalwords_of(self, source, target, links))))

    def pharaoh(self) -> str:
        """`links` as `0-0 1-2`: the n-th word of the source, a hyphen, that of the translation, from 0."""
        return " ".join(f"{source}-{target}" for source, target in self.links)


def joined(source: str, target: str, parts: Sequence[tuple[TextAlignment, int, int]]) -> TextAlignment:
    """The alignment of texts from those of their parts, each with its place in both texts."""
    tokens: tuple[list[TextTokens], list[TextTokens]] = ([], [])
    links: list[Link] = []
    counts = [0, 0]
    for part, *places in parts:
        links += [
            (source_subword + counts[0], target_subword + counts[1])
            for source_subword, target_subword in part.subword_links
        ]
        sides = part.source, part.target
        for side, (text, at) in enumerate(zip((source, target), places, strict=True)):
            tokens[side].append(sides[side].within(text, at))
            counts[side] += len(sides[side].spans)
    both = [
        TextTokens(
            text,
            tuple(token for piece in pieces for token in piece.tokens),
            tuple(span for piece in pieces for span in piece.spans),
        )
        for text, pieces in zip((source, target), tokens, strict=True)
    ]
    return TextAlignment(both[0], both[1], tuple(sorted(links)))


def composed(first: TextAlignment, second: TextAlignment) -> TextAlignment:
    """From a text by way of its translation, the source of `second`, to the translation of that; in words."""
    onward: dict[int, list[int]] = {}
    for middle, target in second.links:
        onward.setdefault(middle, []).append(target)
    links = {(source, target) for source, middle in first.links for target in onward.get(middle, ())}
    sides = [TextTokens(text, (), tuple(words_of(text))) for text in (first.source.text, second.target.text)]
    return replace(second, source=sides[0], target=sides[1], subword_links=tuple(sorted(links)))


def _equalwords_of(
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
