"""Sentence pairs of a token store as blocks of token numbers, pass after pass, in constant memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepwire.data.batches.token_store import Integers, Sentences, TokenStore
from deepwire.data.vocabulary import PAD

MAX_LENGTH = 512
"""Longer sentences are left out: of a thousand words, each says little of any other."""
_PAIRS_PER_READ = 20_000
_LENGTHS_PER_READ = 1 << 20


class AlignmentBlock(NamedTuple):
    """Some sentence pairs of about the same lengths: their tokens in ascending order, after PAD."""

    source: NDArray[np.int64]
    """`[n, S]`."""
    target: NDArray[np.int64]
    """`[n, T]`."""


@dataclass(frozen=True)
class TrainingPairs:
    """The sentence pairs that are learned from.

    Attributes:
        store: Where they are.
        lines: `[n]` their indices in it, ascending.
        products: Most products of a source and a target token in a block, but for a single pair.
    """

    store: TokenStore
    lines: NDArray[np.int64]
    products: int = 1 << 21

    @classmethod
    def of(cls, store: TokenStore, most: int, directions: Sequence[int] | None = None) -> TrainingPairs:
        """At most so many pairs, evenly spread over those that are not empty and not too long.

        Args:
            store: Where they are.
            most: How many.
            directions: Numbers of the directions that count; None = all.
        """
        step = max(1, -(-sum(len(lines) for lines in _usable(store, directions)) // most))
        chosen, seen = [], 0
        for lines in _usable(store, directions):
            chosen.append(lines[-seen % step :: step])
            seen += len(lines)
        return cls(store, np.concatenate(chosen) if chosen else np.zeros(0, np.int64))

    def __len__(self) -> int:
        return len(self.lines)

    def blocks(self) -> Iterator[AlignmentBlock]:
        """All pairs once, in an order that is always the same."""
        for first in range(0, len(self.lines), _PAIRS_PER_READ):
            lines = self.lines[first : first + _PAIRS_PER_READ]
            source, target = (side.take(lines) for side in (self.store.source_side, self.store.target_side))
            order = np.lexsort((target.lengths, source.lengths))
            start = 0
            while start < len(order):
                stop = self._stop(source.lengths[order], target.lengths[order], start)
                rows = order[start:stop]
                yield AlignmentBlock(_padded(source, rows), _padded(target, rows))
                start = stop

    def _stop(self, sources: Integers, targets: Integers, start: int) -> int:
        """Where the block that begins at `start` ends."""
        widths = np.maximum.accumulate(sources[start : start + self.products].astype(np.int64))
        heights = np.maximum.accumulate(targets[start : start + self.products].astype(np.int64))
        products = widths * heights * np.arange(1, len(widths) + 1)
        return start + max(1, int(np.searchsorted(products, self.products, "right")))


def _usable(store: TokenStore, directions: Sequence[int] | None) -> Iterator[NDArray[np.int64]]:
    """The indices of pairs that can be learned from, some at a time."""
    for first in range(0, len(store), _LENGTHS_PER_READ):
        # Behind the pairs there may be sentences that are context alone.
        part = slice(first, min(first + _LENGTHS_PER_READ, len(store)))
        fits = np.ones(len(store.source_lengths[part]), bool)
        for lengths in (store.source_lengths[part], store.target_lengths[part]):
            fits &= (lengths > 0) & (lengths <= MAX_LENGTH)
        if directions is not None and store.directions is not None:
            fits &= np.isin(store.directions[part], directions)
        yield first + np.flatnonzero(fits)


def _padded(side: Sentences, rows: NDArray[np.int64]) -> NDArray[np.int64]:
    tokens, lengths = side.gather(rows)
    table = np.full((len(rows), int(lengths.max())), PAD, np.int64)
    table[np.arange(table.shape[1]) < lengths[:, None]] = tokens
    # Order says nothing here, and neighbours that are alike are looked up faster.
    return np.sort(table, axis=1)
