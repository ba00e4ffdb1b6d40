"""Filtered pairs in a file, until all cores have cut them into subwords; and the order of documents."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from types import TracebackType
from typing import Literal, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepwire.data.batches.token_store import TokenBlock
from deepwire.data.parallel_map import ordered_map
from deepwire.data.subwords.base import Segmentation
from deepwire.data.text.pairs import PairBlock, Texts
from deepwire.data.text.placeholders import protect_pair
from deepwire.data.vocabulary import Vocabularies

CHUNK_PAIRS = 4096
"""A chunk ends with the block in which it gets as many."""
PAIRS_FOR_PROCESSES = 200_000
"""With fewer pairs, starting processes costs more than they save."""
_LINE_BITS = 40
"""Bits of a line number in a number for a line of a corpus; the corpus stands above them."""


class Chunk(NamedTuple):
    """Some neighbouring pairs of one corpus, from byte `start` to `stop` of the file of temporary pairs."""

    corpus: int
    start: int
    stop: int
    pairs: int


class TemporaryPairs(AbstractContextManager["TemporaryPairs"]):
    """A file of pairs in chunks: line numbers, sizes of source and target lines, source and target lines.

    Attributes:
        context_only: With `documents`, another one for lines that are context alone.
    """

    def __init__(self, path: Path, *, documents: bool = False) -> None:
        self.path = path
        self.context_only = TemporaryPairs(path.with_suffix(".context")) if documents else None
        self.chunks: list[Chunk] = []
        self._file = path.open("wb", 1 << 20)
        self._waiting: list[PairBlock] = []
        self._pairs, self._end = 0, 0

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if self.context_only is not None:
            self.context_only.__exit__(kind, fault, trace)
        if kind is None:
            self._end_chunk()
        self._file.close()

    def add(self, pairs: PairBlock, context_only: PairBlock | None = None) -> None:
        """Appends pairs, and lines that are context alone."""
        if self.context_only is not None and context_only is not None:
            self.context_only.add(context_only)
        if self._waiting and self._waiting[0].corpus != pairs.corpus:
            self._end_chunk()
        self._waiting.append(pairs)
        self._pairs += len(pairs)
        if self._pairs >= CHUNK_PAIRS:
            self._end_chunk()

    def flush(self) -> None:
        """Brings what was added to the file, so that all of it can be read."""
        self._end_chunk()
        self._file.flush()

    def _end_chunk(self) -> None:
        if self._pairs:
            waiting = self._waiting
            texts = [*(pairs.source for pairs in waiting), *(pairs.target for pairs in waiting)]
            parts = [pairs.numbers.astype("<i8", copy=False).tobytes() for pairs in waiting]
            parts += [side.sizes.astype("<i4", copy=False).tobytes() for side in texts]
            parts += [side.data for side in texts]
            self._file.writelines(parts)
            start, self._end = self._end, self._end + sum(map(len, parts))
            self.chunks.append(Chunk(waiting[0].corpus, start, self._end, self._pairs))
        self._waiting, self._pairs = [], 0


def read_chunk(path: Path, chunk: Chunk) -> PairBlock:
    """The pairs of a chunk."""
    with path.open("rb") as file:
        file.seek(chunk.start)
        data = file.read(chunk.stop - chunk.start)
    count = chunk.pairs
    sizes = np.frombuffer(data, "<i4", 2 * count, 8 * count).reshape(2, count)
    texts = 16 * count
    middle = texts + int(sizes[0].sum(dtype=np.int64))
    sides = Texts(data[texts:middle], sizes[0]), Texts(data[middle:], sizes[1])
    return PairBlock(chunk.corpus, np.frombuffer(data, "<i8", count), *sides)


class DocumentOrder:
    """Finds the sentence in front of each of a store; takes 8 bytes for each, and 33 in the end."""

    def __init__(self) -> None:
        self._places: list[NDArray[np.int64]] = []

    def add(self, pairs: PairBlock) -> None:
        """The next sentences of the store."""
        self._places.append((pairs.corpus << _LINE_BITS) + pairs.numbers)

    def previous(self) -> NDArray[np.int64]:
        """The place of the sentence on the line in front of each, in its corpus; -1: none."""
        places = np.concatenate([np.zeros(0, np.int64), *self._places])
        self._places.clear()
        order = np.argsort(places)
        places.sort()
        previous = np.full(len(order), -1, np.int64)
        previous[order[1:]] = np.where(np.diff(places) == 1, order[:-1], -1)
        return previous


SymbolUse = Literal["none", "read", "stored"]
"""Symbols for placeholders: nowhere, in the pieces, or in the pieces and in the text of the store."""


def with_symbols(pairs: PairBlock) -> PairBlock:
    """The pairs with symbols for the placeholders that both sides have."""
    sides = zip(pairs.source.strings(), pairs.target.strings(), strict=True)
    protected = [protect_pair(*pair) for pair in sides]
    texts = (Texts.of([pair[side].encode() for pair in protected]) for side in (0, 1))
    return PairBlock(pairs.corpus, pairs.numbers, *texts)


class Segmented(NamedTuple):
    """A chunk, segmented.

    Attributes:
        pairs: The kept pairs.
        source: The pieces of the kept pairs.
        target: Likewise.
        too_long: Line numbers of the others, a side of which has too many pieces.
        stored: The kept pairs as the store has their text.
    """

    pairs: PairBlock
    source: Segmentation
    target: Segmentation
    too_long: NDArray[np.int64]
    stored: PairBlock

    def blocks(self) -> tuple[TokenBlock, TokenBlock]:
        """The kept pairs as the store takes them."""
        return (
            TokenBlock(*self.source, *self.stored.source),
            TokenBlock(*self.target, *self.stored.target),
        )


def segment(
    path: Path,
    chunks: Sequence[Chunk],
    vocabularies: Path,
    max_length: int | None,
    symbols: SymbolUse = "none",
) -> Iterator[Segmented]:
    """Segments chunks of a file of temporary pairs, in their order.

    Args:
        path: The file of temporary pairs.
        chunks: Parts of it.
        vocabularies: Folder of the vocabularies.
        max_length: Pairs with more pieces than this on a side are left out; None keeps all.
        symbols: Whether placeholders are segmented as symbols, and whether the store's text has them too.

    Raises:
        ResourceError: a helping process died.
    """
    few = sum(chunk.pairs for chunk in chunks) < PAIRS_FOR_PROCESSES
    return ordered_map(
        _Segmenter, (path, vocabularies, max_length, symbols), chunks, serial=len(chunks) if few else 0
    )


class _Segmenter:
    def __init__(self, path: Path, vocabularies: Path, max_length: int | None, symbols: SymbolUse) -> None:
        self._path, self._most, self._symbols = path, max_length, symbols
        self._vocabularies = Vocabularies.load(vocabularies)

    def __call__(self, chunk: Chunk) -> Segmented:
        pairs = read_chunk(self._path, chunk)
        read = pairs if self._symbols == "none" else with_symbols(pairs)
        source = self._vocabularies.source.segment(read.source.strings())
        target = self._vocabularies.target.segment(read.target.strings())
        kept = np.ones(len(pairs), np.bool_)
        if self._most is not None:
            kept = np.maximum(source.lengths, target.lengths) <= self._most
        stored = read if self._symbols == "stored" else pairs
        return Segmented(
            pairs.take(kept),
            source.take(kept),
            target.take(kept),
            pairs.numbers[~kept],
            stored.take(kept),
        )
