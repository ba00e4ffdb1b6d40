"""Filtered pairs in a file, until they are segmented; and which sentence stands in front of which."""

from __future__ import annotations

from itertools import chain, product
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

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
    """A file of pairs in chunks: line numbers, sizes of source and target lines, source and target lines.

    Attributes:
        beside: With `documents`, another one for what is context alone.
    """

    def __init__(self, path: Path, *, documents: bool = False) -> None:
        self.path = path
        self.beside = TemporaryPairs(path.with_suffix(".beside")) if documents else None
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
        if self.beside is not None:
            self.beside.__exit__(kind, fault, trace)
        if kind is None:
            self._end_chunk()
        self._file.close()

    def add(self, pairs: PairBlock, beside: PairBlock | None = None) -> None:
        """Append pairs, and what is context alone."""
        if self.beside is not None and beside is not None:
            self.beside.add(beside)
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


class _Run(NamedTuple):
    """Sentences of one corpus that follow each other in a store, by ascending lines."""

    start: int
    """Place of the first in the store."""
    numbers: list[NDArray[np.int64]]
    """Their lines, in pieces."""


class DocumentOrder:
    """Which sentence stands in front of each of a store; takes 8 bytes for each, and 16 in the end."""

    def __init__(self) -> None:
        self._runs: dict[int, list[_Run]] = {}
        self._last: tuple[int, int] = -1, -1
        self._count = 0

    def add(self, pairs: PairBlock) -> None:
        """The next sentences of the store."""
        if not len(pairs):
            return
        # Of a chunk in one process they are a view, which would keep all of its text.
        numbers = pairs.numbers.copy()
        runs = self._runs.setdefault(pairs.corpus, [])
        corpus, line = self._last
        if pairs.corpus != corpus or numbers[0] <= line:
            runs.append(_Run(self._count, []))
        runs[-1].numbers.append(numbers)
        self._last = pairs.corpus, int(numbers[-1])
        self._count += len(numbers)

    def previous(self) -> NDArray[np.int64]:
        """Of each sentence the place of the one on the line in front of it, in its corpus; -1: none."""
        for run in chain.from_iterable(self._runs.values()):
            run.numbers[:] = [np.concatenate(run.numbers)]
        previous = np.full(self._count, -1, np.int64)
        for runs in self._runs.values():
            for run, other in product(runs, repeat=2):
                _link(previous, run, other)
        return previous


def _link(previous: NDArray[np.int64], run: _Run, other: _Run) -> None:
    """Set `previous` of what in `run` is on the line behind one of `other`; both are of one piece."""
    known = other.numbers[0]
    for start in range(0, len(run.numbers[0]), CHUNK_PAIRS):
        wanted = run.numbers[0][start : start + CHUNK_PAIRS] - 1
        places = np.searchsorted(known, wanted)
        found = np.flatnonzero(known[np.minimum(places, len(known) - 1)] == wanted)
        previous[run.start + start + found] = other.start + places[found]
