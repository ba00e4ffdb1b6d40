"""Kept pairs on their way from the text files to the store: written once, read again in chunks."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np

from deepwire.data.text.pairs import PairBlock, Texts

CHUNK_PAIRS = 4096
"""A chunk ends with the block in which it gets as many."""


class Chunk(NamedTuple):
    """Some neighbouring pairs of one corpus in the file of temporary pairs."""

    corpus: int
    start: int
    """First byte."""
    stop: int
    pairs: int


class TemporaryPairs:
    """A file of pairs in chunks: line numbers, sizes of source and target lines, source and target lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.chunks: list[Chunk] = []
        self._file = path.open("wb", 1 << 20)
        self._waiting: list[PairBlock] = []
        self._pairs, self._end = 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._end_chunk()
        self._file.close()

    def add(self, pairs: PairBlock) -> None:
        """Append pairs."""
        if self._waiting and self._waiting[0].corpus != pairs.corpus:
            self._end_chunk()
        self._waiting.append(pairs)
        self._pairs += len(pairs)
        if self._pairs >= CHUNK_PAIRS:
            self._end_chunk()

    def flush(self) -> None:
        """Bring what was added to the file, so that all of it can be read."""
        self._end_chunk()
        self._file.flush()

    def _end_chunk(self) -> None:
        if self._pairs:
            start, waiting = self._end, self._waiting
            for pairs in waiting:
                self._write(pairs.numbers.astype("<i8", copy=False).tobytes())
            for side in ([pairs.source for pairs in waiting], [pairs.target for pairs in waiting]):
                for texts in side:
                    self._write(texts.sizes.astype("<i4", copy=False).tobytes())
            for side in ([pairs.source for pairs in waiting], [pairs.target for pairs in waiting]):
                for texts in side:
                    self._write(texts.data)
            self.chunks.append(Chunk(waiting[0].corpus, start, self._end, self._pairs))
        self._waiting, self._pairs = [], 0

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._end += len(data)


def read_chunk(path: Path, chunk: Chunk) -> PairBlock:
    """The pairs of a chunk."""
    with path.open("rb") as file:
        file.seek(chunk.start)
        data = file.read(chunk.stop - chunk.start)
    count = chunk.pairs
    sizes = np.frombuffer(data, "<i4", 2 * count, 8 * count).reshape(2, count)
    texts = 16 * count
    middle = texts + int(sizes[0].sum(dtype=np.int64))
    return PairBlock(
        chunk.corpus,
        np.frombuffer(data, "<i8", count),
        Texts(data[texts:middle], sizes[0]),
        Texts(data[middle:], sizes[1]),
    )
