"""What is done with each block of a corpus, by any process: decoding, checks, digests of duplicates."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress

import numpy as np
from numpy.typing import NDArray

from deepwire.data.data_config import FilterConfig
from deepwire.data.filtering.duplicates import Digests, digests_of
from deepwire.data.filtering.filters import PairFilter, Reasons
from deepwire.data.parallel_map import ordered_map
from deepwire.data.text.blocks import RawBlock
from deepwire.data.text.files import ReadNotes
from deepwire.data.text.pairs import Pair, PairBlock, Texts
from deepwire.data.text.reader import Lines, Reader

BLOCKS_ALONE = 96
"""About 200,000 pairs: with fewer, starting processes costs more than they save."""


@dataclass(frozen=True)
class Sifted:
    """A block of a corpus, and what is to be kept of it."""

    numbers: NDArray[np.int64]
    """`[lines]`: line numbers."""
    reasons: Reasons
    """`[lines]`: why a pair is dropped, a place in `filters.NAMES`; 0 keeps it."""
    pairs: PairBlock
    """The pairs that are kept."""
    lengths: NDArray[np.int32]
    """`[2, pairs]`: characters of the source and the target sides."""
    digests: Digests
    """`[pairs]`: equal for equal pairs; empty where nobody wants them."""
    notes: ReadNotes
    dropped: list[Pair]
    """The others, where they are wanted."""

    def without(self, chosen: NDArray[np.bool_], reason: int, *, show: bool) -> Sifted:
        """Drop chosen ones of the pairs that were kept so far."""
        if not chosen.any():
            return self
        reasons, kept = self.reasons.copy(), ~chosen
        reasons[np.flatnonzero(reasons == 0)[chosen]] = reason
        gone = [self.pairs[place] for place in np.flatnonzero(chosen).tolist()] if show else []
        return replace(
            self,
            reasons=reasons,
            pairs=self.pairs.take(kept),
            lengths=self.lengths[:, kept],
            digests=self.digests[kept] if len(self.digests) else self.digests,
            dropped=sorted([*self.dropped, *gone]),
        )


def sift(
    readers: Sequence[Reader], filters: FilterConfig, *, digests: bool, show_dropped: bool = False
) -> Iterator[Sifted]:
    """Read corpora, and decide about each pair all that can be decided without the others.

    All cores work, where there are many blocks; the result is the same for any number of them.

    Args:
        readers: Of each corpus; their indices are their places in this list.
        filters: What to drop.
        digests: Whether digests of the pairs are wanted.
        show_dropped: Whether dropped pairs are wanted.

    Raises:
        DataError: a text cannot be read.
        ResourceError: a helping process died.
    """
    blocks = chain.from_iterable(reader.blocks() for reader in readers)
    return ordered_map(_Sifter, (readers, filters, digests, show_dropped), blocks, alone=BLOCKS_ALONE)


class _Sifter:
    def __init__(
        self, readers: Sequence[Reader], filters: FilterConfig, digests: bool, show_dropped: bool
    ) -> None:
        self._readers, self._filter = readers, PairFilter(filters)
        self._digests, self._show_dropped = digests, show_dropped

    def __call__(self, block: RawBlock) -> Sifted:
        notes = ReadNotes()
        lines = self._readers[block.corpus].parse(block, notes)
        reasons = self._filter.reasons(lines)
        numbers = np.arange(lines.first, lines.first + len(reasons))
        kept = reasons == 0
        sources, targets = (
            [text.encode() for text in compress(side, kept.tolist())]
            for side in (lines.sources, lines.targets)
        )
        pairs = PairBlock(block.corpus, numbers[kept], Texts.of(sources), Texts.of(targets))
        return Sifted(
            numbers,
            reasons,
            pairs,
            lines.lengths[:, kept],
            self._digests_of(sources, targets),
            notes,
            _chosen(lines, ~kept, block.corpus) if self._show_dropped else [],
        )

    def _digests_of(self, sources: list[bytes], targets: list[bytes]) -> Digests:
        if not self._digests:
            return digests_of([])
        return digests_of([source + b"\n" + target for source, target in zip(sources, targets, strict=True)])


def _chosen(lines: Lines, chosen: NDArray[np.bool_], corpus: int) -> list[Pair]:
    return [
        Pair(lines.first + place, lines.sources[place], lines.targets[place], corpus)
        for place in np.flatnonzero(chosen).tolist()
    ]
