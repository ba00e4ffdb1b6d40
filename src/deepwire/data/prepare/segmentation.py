"""Segmenting staged pairs, by all cores when there are many."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepwire.data.batches.token_store import Block
from deepwire.data.parallel_map import ordered_map
from deepwire.data.prepare.staging import Chunk, read_chunk
from deepwire.data.subwords.base import Segmentation
from deepwire.data.text.pairs import PairBlock
from deepwire.data.vocabulary import Vocabularies

PAIRS_FOR_PROCESSES = 200_000
"""With fewer pairs, starting processes costs more than they save."""


class Segmented(NamedTuple):
    """A chunk, segmented."""

    pairs: PairBlock
    """The kept pairs."""
    lengths: NDArray[np.int32]
    """`[2, kept pairs]`: characters of the sides."""
    source: Segmentation
    """Of the kept pairs."""
    target: Segmentation
    too_long: NDArray[np.int64]
    """Line numbers of the others, a side of which has too many pieces."""

    def blocks(self) -> tuple[Block, Block]:
        """The kept pairs as the store takes them."""
        source, target = (
            Block(*pieces, *texts)
            for pieces, texts in ((self.source, self.pairs.source), (self.target, self.pairs.target))
        )
        return source, target


def segment(
    staged: Path, chunks: Sequence[Chunk], vocabularies: Path, max_length: int | None
) -> Iterator[Segmented]:
    """Segment chunks of a staging file, in their order.

    Args:
        staged: The staging file.
        chunks: What to read of it.
        vocabularies: Folder of the vocabularies.
        max_length: Pairs with more pieces than this on a side are left out; None keeps all.

    Raises:
        ResourceError: a helping process died.
    """
    few = sum(chunk.pairs for chunk in chunks) < PAIRS_FOR_PROCESSES
    return ordered_map(
        _Segmenter, (staged, vocabularies, max_length), chunks, alone=len(chunks) if few else 0
    )


class _Segmenter:
    def __init__(self, staged: Path, vocabularies: Path, max_length: int | None) -> None:
        self._staged, self._most = staged, max_length
        self._vocabularies = Vocabularies.load(vocabularies)

    def __call__(self, chunk: Chunk) -> Segmented:
        pairs = read_chunk(self._staged, chunk)
        sources, targets = pairs.source.strings(), pairs.target.strings()
        lengths = np.array([list(map(len, side)) for side in (sources, targets)], np.int32)
        source = self._vocabularies.source.segment(sources)
        target = self._vocabularies.target.segment(targets)
        too_long = np.zeros(len(pairs), np.bool_)
        if self._most is not None:
            too_long = np.maximum(source.lengths, target.lengths) > self._most
        kept = ~too_long
        return Segmented(
            pairs.take(kept), lengths[:, kept], source.take(kept), target.take(kept), pairs.numbers[too_long]
        )
