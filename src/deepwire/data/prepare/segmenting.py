"""Pairs of the file of temporary pairs cut into subwords, chunk by chunk, by all cores."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepwire.data.batches.token_store import TokenBlock
from deepwire.data.parallel_map import ordered_map
from deepwire.data.prepare.temporary_pairs import Chunk, read_chunk
from deepwire.data.subwords.base import Segmentation
from deepwire.data.text.pairs import PairBlock, Texts
from deepwire.data.text.placeholders import protect_pair
from deepwire.data.vocabulary import Vocabularies

PAIRS_FOR_PROCESSES = 200_000
"""With fewer pairs, starting processes costs more than they save."""


SymbolUse = Literal["none", "read", "stored"]
"""Symbols for placeholders: nowhere, in the pieces, or in the pieces and in the text of the store."""


def with_symbols(pairs: PairBlock) -> PairBlock:
    """The pairs with symbols for the placeholders that both sides have."""
    sides = zip(pairs.source.strings(), pairs.target.strings(), strict=True)
    sources, targets = zip(*(protect_pair(*pair) for pair in sides), strict=True) if len(pairs) else ((), ())
    return PairBlock(
        pairs.corpus,
        pairs.numbers,
        Texts.of([text.encode() for text in sources]),
        Texts.of([text.encode() for text in targets]),
    )


class Segmented(NamedTuple):
    """A chunk, segmented."""

    pairs: PairBlock
    """The kept pairs."""
    lengths: NDArray[np.int32]
    """`[2, kept pairs]`: characters of the sides."""
    source: Segmentation
    """The pieces of the kept pairs."""
    target: Segmentation
    too_long: NDArray[np.int64]
    """Line numbers of the others, a side of which has too many pieces."""
    stored: PairBlock
    """The kept pairs as the store has their text."""

    def blocks(self) -> tuple[TokenBlock, TokenBlock]:
        """The kept pairs as the store takes them."""
        source, target = (
            TokenBlock(*pieces, *texts)
            for pieces, texts in ((self.source, self.stored.source), (self.target, self.stored.target))
        )
        return source, target


def segment(
    path: Path,
    chunks: Sequence[Chunk],
    vocabularies: Path,
    max_length: int | None,
    symbols: SymbolUse = "none",
) -> Iterator[Segmented]:
    """Segment chunks of a file of temporary pairs, in their order.

    Args:
        path: The file of temporary pairs.
        chunks: What to read of it.
        vocabularies: Folder of the vocabularies.
        max_length: Pairs with more pieces than this on a side are left out; None keeps all.
        symbols: Whether placeholders are segmented as symbols, and whether the store's text has them too.

    Raises:
        ResourceError: a helping process died.
    """
    few = sum(chunk.pairs for chunk in chunks) < PAIRS_FOR_PROCESSES
    return ordered_map(
        _Segmenter, (path, vocabularies, max_length, symbols), chunks, alone=len(chunks) if few else 0
    )


class _Segmenter:
    def __init__(
        self, path: Path, vocabularies: Path, max_length: int | None, symbols: SymbolUse = "none"
    ) -> None:
        self._path, self._most, self._symbols = path, max_length, symbols
        self._vocabularies = Vocabularies.load(vocabularies)

    def __call__(self, chunk: Chunk) -> Segmented:
        pairs = read_chunk(self._path, chunk)
        sources, targets = pairs.source.strings(), pairs.target.strings()
        lengths = np.array([list(map(len, side)) for side in (sources, targets)], np.int32)
        read = pairs if self._symbols == "none" else with_symbols(pairs)
        source = self._vocabularies.source.segment(read.source.strings())
        target = self._vocabularies.target.segment(read.target.strings())
        too_long = np.zeros(len(pairs), np.bool_)
        if self._most is not None:
            too_long = np.maximum(source.lengths, target.lengths) > self._most
        kept = ~too_long
        stored = read if self._symbols == "stored" else pairs
        return Segmented(
            pairs.take(kept),
            lengths[:, kept],
            source.take(kept),
            target.take(kept),
            pairs.numbers[too_long],
            stored.take(kept),
        )
