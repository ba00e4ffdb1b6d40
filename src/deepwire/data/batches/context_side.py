"""One side of a store as a model with document context reads it: previous sentences in front of each."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from deepwire.data.batches.token_store import Integers, Sentences, StoreSide, TokenStore
from deepwire.data.context import ContextConfig, separator_of
from deepwire.data.languages import Languages
from deepwire.data.subwords.base import id_dtype
from deepwire.errors import DataError

_AT_ONCE = 16384
"""Sentences whose lengths are read between two times of giving pages back."""


class ContextSide:
    """Sentences with as many of the latest previous ones as fit, each with the separator behind it.

    See `deepwire.data.context.in_front`.

    Args:
        side: The sentences.
        previous: `[sentences]`: the sentence in front of each, or -1.
        count: How many previous sentences there may be.
        most: Most subwords of a sentence with its context.
        separator: The number of the separator.
    """

    def __init__(self, side: StoreSide, previous: Integers, *, count: int, most: int, separator: int) -> None:
        self.side, self.separator = side, separator
        self._previous, self._count, self._most = previous, count, most

    def take_lengths(self, lines: Integers) -> Integers:
        """Tokens of some sentences with their contexts, and separators."""
        lengths = np.empty(len(lines), np.int64)
        for first in range(0, len(lines), _AT_ONCE):
            stretch = slice(first, first + _AT_ONCE)
            chain, taken = self._chain(lines[stretch])
            with_separators = np.where(taken, self._lengths(chain) + 1, 0)
            lengths[stretch] = with_separators.sum(0) - 1  # a sentence has no separator behind itself
            self.side.release()
        return lengths

    def take(self, lines: Integers) -> Sentences:
        """Copies some sentences with their contexts into memory: number i of the result is `lines[i]`."""
        chain, taken = self._chain(lines)
        # The earliest first, and the sentence itself at the end.
        order, wanted = chain[::-1].T, taken[::-1].T
        pieces = self.side.take(order[wanted])
        behind = np.broadcast_to(np.arange(order.shape[1]) < order.shape[1] - 1, order.shape)[wanted]
        sizes = pieces.lengths.astype(np.int64) + behind
        tokens = np.full(int(sizes.sum()), self.separator, id_dtype(self.separator + 1))
        shifts = np.cumsum(behind) - behind
        tokens[np.arange(len(pieces.tokens)) + np.repeat(shifts, pieces.lengths)] = pieces.tokens
        lengths = np.bincount(np.nonzero(wanted)[0], sizes, len(lines)).astype(np.int64)
        return Sentences(tokens, lengths, np.cumsum(lengths) - lengths)

    def gather(self, lines: Integers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tokens of some sentences with their contexts, one after the other, and the length of each."""
        sentences = self.take(lines)
        return sentences.tokens.astype(np.int64), sentences.lengths.astype(np.int64)

    def in_front(self, line: int) -> list[int]:
        """The tokens in front of a sentence."""
        tokens = self.take(np.array([line])).tokens
        return [int(token) for token in tokens[: len(tokens) - int(self.side.lengths[line])]]

    def _lengths(self, chain: Integers) -> NDArray[np.int64]:
        return self.side.lengths[np.maximum(chain, 0).ravel()].astype(np.int64).reshape(chain.shape)

    def _chain(self, lines: Integers) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """`[1 + count, lines]`: each sentence, the one in front of it, and so on; and which are taken."""
        chain = [np.asarray(lines, np.int64)]
        for _ in range(self._count):
            known = chain[-1] >= 0
            before = np.full(len(lines), -1, np.int64)
            before[known] = self._previous[chain[-1][known]]
            chain.append(before)
        whole = np.stack(chain)
        there = whole >= 0
        fits = np.cumsum(np.where(there, self._lengths(whole) + 1, 0), 0) - 1 <= self._most
        taken = there & fits
        taken[0] = True
        return whole, taken


def sides_with_context(
    store: TokenStore, context: ContextConfig, languages: Languages | None
) -> tuple[StoreSide | ContextSide, StoreSide | ContextSide]:
    """Both sides, with context where it is asked for; a DataError for a store without documents."""
    previous = store.previous
    if context.used and previous is None:
        raise DataError(f"{store.folder}: its pairs have no documents", "delete it, and prepare again")

    def side_of(side: StoreSide, count: int) -> StoreSide | ContextSide:
        if not count or previous is None:
            return side
        separator = separator_of(side.vocabulary, languages)
        return ContextSide(side, previous, count=count, most=context.max_length, separator=separator)

    return side_of(store.source_side, context.source), side_of(store.target_side, context.target)
