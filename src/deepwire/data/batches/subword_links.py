"""Links of words as links of the subwords of a batch, however these were cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from deepwire.data.batches.epoch_order import Indices
from deepwire.data.batches.token_store import TokenStore
from deepwire.data.subwords.text_tokens import TextTokens, owners, words_of

if TYPE_CHECKING:
    from deepwire.data.vocabulary import Vocabularies, Vocabulary

_SPACE, _JOINER = "\u2581", "@@"

Rows = tuple[NDArray[np.int64], NDArray[np.int64]]
"""The tokens of all rows one after the other, and the length of each row."""


class SubwordLinks:
    """Makes links of subwords: two belong together if they are of words that do.

    Args:
        store: Pairs with links of words.
        vocabularies: Theirs.
    """

    def __init__(self, store: TokenStore, vocabularies: Vocabularies) -> None:
        self._store = store
        self._sides = _WordFinder(vocabularies.source), _WordFinder(vocabularies.target)

    def of(self, source: Rows, target: Rows, lines: Indices) -> NDArray[np.int64]:
        """Row, target subword and source subword of each link, `[links, 3]`, all from 0; none comes twice.

        Args:
            source: Sources of a batch, no special symbols.
            target: Likewise.
            lines: `[B]`: the pairs in the store.
        """
        ends = np.cumsum(source[1]), np.cumsum(target[1])
        subword_links: list[tuple[int, int, int]] = []
        for row, line in enumerate(lines.tolist()):
            links = self._store.word_links(line).tolist()
            if not links:
                continue
            texts = self._store.source_text(line), self._store.target_text(line)
            first, second = (
                finder.subwords(side[0][end[row] - side[1][row] : end[row]].tolist(), text)
                for finder, side, end, text in zip(self._sides, (source, target), ends, texts, strict=True)
            )
            subword_links += sorted(
                {
                    (row, written, read)
                    for source_word, target_word in links
                    for written in second.get(target_word, ())
                    for read in first.get(source_word, ())
                }
            )
        return np.array(subword_links, np.int64).reshape(-1, 3)


class _WordFinder:
    """Tells which subwords each word of a text has."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        pieces = vocabulary.pieces(range(vocabulary.size))
        spaced = any(piece.startswith(_SPACE) for piece in pieces)
        self._inside = [spaced and not piece.startswith(_SPACE) for piece in pieces]
        self._joined = [not spaced and piece.endswith(_JOINER) for piece in pieces]

    def subwords(self, ids: Sequence[int], text: str) -> dict[int, list[int]]:
        """Of each word of a text its subwords, by their places."""
        numbers, word, goes_on = list[int](), -1, False
        for number in ids:
            if word < 0 or not (goes_on or self._inside[number]):
                word += 1
            numbers.append(word)
            goes_on = self._joined[number]
        subwords_of: dict[int, list[int]] = {}
        if word + 1 == len(text.split()):
            for place, word in enumerate(numbers):
                subwords_of.setdefault(word, []).append(place)
            return subwords_of
        # The vocabulary does not part words as spaces do, or noise has changed them: letter by letter.
        spans = TextTokens.of(self._vocabulary, ids, text).spans
        for place, words in enumerate(owners(spans, words_of(text))):
            for word in words:
                subwords_of.setdefault(word, []).append(place)
        return subwords_of
