"""A corpus as blocks of whole lines, still bytes: any process can go on from there."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import NamedTuple

from deepwire.data.text.files import CHUNK, Raw, display, read_raw
from deepwire.errors import DataError


class Layout(NamedTuple):
    """How the lines of a table are divided."""

    width: int = 0
    """Columns of each line; 0 where no line with columns came yet."""
    source: int = 0
    """The column of the source side, from 0."""
    target: int = 1


class RawBlock(NamedTuple):
    """Some neighbouring lines of a corpus."""

    corpus: int
    """Index of the corpus."""
    first: int
    """Number of the first line, from 1."""
    files: tuple[tuple[Raw, ...], ...]
    """The lines in each file of the corpus: as many in all."""
    layout: Layout = Layout()
    """Of a table."""


def two_file_blocks(paths: Sequence[Path], corpus: int) -> Iterator[RawBlock]:
    """The blocks of a corpus whose sides lie in two files; of about a quarter of a MiB a side.

    Raises:
        DataError: a file cannot be read or is empty; the line counts differ (known only at the end).
    """
    sides, done = [_Side(path) for path in paths], 0
    while count := min(side.fill() for side in sides):
        yield RawBlock(corpus, done + 1, tuple(side.take(count) for side in sides))
        done += count
    counts = [done + side.count_rest() for side in sides]
    refuse_empty(*(path for path, count in zip(paths, counts, strict=True) if count == 0))
    if counts[0] != counts[1]:
        named = ", ".join(f"{display(path)} {count}" for path, count in zip(paths, counts, strict=True))
        raise DataError(
            f"line counts differ: {named}",
            "every line of one file must be the translation of the same line of the other",
        )


def one_file_blocks(path: Path, corpus: int) -> Iterator[RawBlock]:
    """The blocks of a corpus that lies in one file, of about a quarter of a MiB.

    Raises:
        DataError: the file cannot be read.
    """
    lines, done = _Side(path), 0
    while count := lines.fill():
        yield RawBlock(corpus, done + 1, (lines.take(count),))
        done += count


def refuse_empty(*paths: Path) -> None:
    """Say that files are empty, if there are any.

    Raises:
        DataError: always, but for no paths.
    """
    if paths:
        raise DataError(f"{' and '.join(map(display, paths))}: {'is' if len(paths) == 1 else 'are'} empty")


class _Side:
    """The lines of one file, taken in pieces of the size that the other side needs."""

    def __init__(self, path: Path) -> None:
        self._coming, self._here = read_raw(path), list[Raw]()
        self._lines, self._bytes = 0, 0

    def fill(self) -> int:
        """Read on until a block is here or the file ends; returns how many lines are here."""
        while self._bytes < CHUNK and (raw := next(self._coming, None)) is not None:
            self._here.append(raw)
            self._count(raw, 1)
        return self._lines

    def take(self, lines: int) -> tuple[Raw, ...]:
        """The next lines, of which so many are here."""
        taken = []
        while lines:
            raw = self._here.pop(0)
            self._count(raw, -1)
            if raw.lines > lines:
                raw, rest = raw.cut(lines)
                self._here.insert(0, rest)
                self._count(rest, 1)
            taken.append(raw)
            lines -= raw.lines
        return tuple(taken)

    def count_rest(self) -> int:
        """How many lines come now, to the end of the file."""
        return self._lines + sum(raw.lines for raw in self._coming)

    def _count(self, raw: Raw, sign: int) -> None:
        self._lines += sign * raw.lines
        self._bytes += sign * (len(raw.data) + 1)
