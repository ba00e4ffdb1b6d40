"""Reading a corpus: one process cuts it into blocks of whole lines, any process parses a block."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, Protocol, cast

import numpy as np
from numpy.typing import NDArray

from deepwire.data.data_config import BadUtf8
from deepwire.data.text.files import CHUNK, BadLine, Decoder, Line, Raw, ReadNotes, display, read_raw
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


@dataclass(frozen=True)
class Lines:
    """The pairs of a block, one for each line."""

    first: int
    """Number of the first line, from 1."""
    sources: list[str]
    targets: list[str]
    faults: dict[int, str]
    """Why pairs cannot be used at all (`bad_utf8`, `nul`, `too_long`), by their place in the block."""

    @cached_property
    def lengths(self) -> NDArray[np.int32]:
        """`[2, pairs]`: characters of the source and the target sides."""
        return np.array([list(map(len, side)) for side in (self.sources, self.targets)], np.int32)


class Reader(Protocol):
    """One corpus. It can be pickled."""

    def blocks(self) -> Iterator[RawBlock]:
        """The lines of the corpus, in order and in constant memory.

        Raises:
            DataError: a file is missing, empty or damaged, or the sides do not have as many lines.
        """

    def parse(self, block: RawBlock, notes: ReadNotes) -> Lines:
        """The pairs of a block; what was repaired is counted in `notes`.

        Raises:
            DataError: a line is not UTF-8 (and `on_bad_utf8` is `error`), or lacks a column or key.
        """


def decoded(
    path: Path, raw: tuple[Raw, ...], first: int, on_bad_utf8: BadUtf8, notes: ReadNotes
) -> list[Line]:
    """Lines of a file as text, the first of them number `first`."""
    decoder = Decoder(path, on_bad_utf8, notes, before=first - 1)
    groups = [decoder.decode(group) for group in raw]
    return groups[0] if len(groups) == 1 else [line for group in groups for line in group]


def without_faults(lines: list[Line], faults: dict[int, str]) -> list[str]:
    """What can be shown of each line; faults are noted by place, unless there was one before."""
    bad = [place for place, line in enumerate(lines) if line.__class__ is BadLine]
    for place in bad:
        line = lines[place]
        if isinstance(line, BadLine):
            faults.setdefault(place, line.fault)
            lines[place] = line.text
    return cast("list[str]", lines)
