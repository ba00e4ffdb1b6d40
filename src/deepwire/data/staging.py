"""Kept pairs on their way from the text files to the store: written once, read again in chunks."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

from deepwire.data.corpus import Pair

CHUNK_PAIRS = 4096


class Chunk(NamedTuple):
    """Some neighbouring pairs of one corpus in the staging file."""

    corpus: int
    start: int
    """First byte."""
    stop: int
    pairs: int


class Staging:
    """A file of pairs, three lines each: line number, source, target."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.chunks: list[Chunk] = []
        self._file = path.open("wb", 1 << 20)
        self._start, self._end, self._pairs, self._corpus = 0, 0, 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._end_chunk()
        self._file.close()

    def add(self, pair: Pair) -> None:
        """Append a pair; its texts hold no line end."""
        if self._pairs == CHUNK_PAIRS or pair.corpus != self._corpus:
            self._end_chunk()
            self._corpus = pair.corpus
        line = f"{pair.line}\n{pair.source}\n{pair.target}\n".encode()
        self._file.write(line)
        self._end += len(line)
        self._pairs += 1

    def flush(self) -> None:
        """Bring what was added to the file, so that all of it can be read."""
        self._end_chunk()
        self._file.flush()

    def _end_chunk(self) -> None:
        if self._pairs:
            self.chunks.append(Chunk(self._corpus, self._start, self._end, self._pairs))
        self._start, self._pairs = self._end, 0


def read_chunk(path: Path, chunk: Chunk) -> tuple[list[int], list[str], list[str]]:
    """Line numbers, source texts and target texts of a chunk."""
    with path.open("rb") as file:
        file.seek(chunk.start)
        lines = file.read(chunk.stop - chunk.start).decode().split("\n")
    return [int(number) for number in lines[0:-1:3]], lines[1::3], lines[2::3]
