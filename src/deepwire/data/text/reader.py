"""Reading a corpus of files, TSV or JSONL: one process cuts blocks of whole lines, any parses them."""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import NamedTuple, cast

import numpy as np
from numpy.typing import NDArray

from deepwire.config.counts import counted
from deepwire.data.data_config import BadUtf8
from deepwire.data.text.files import CHUNK, BadLine, Decoder, Line, Raw, ReadNotes, display, read_raw
from deepwire.data.text.pairs import is_blank, joined, without_surrogates
from deepwire.errors import DataError
from deepwire.io.json_lines import RepeatedKeyError, unique_keys


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
    """The layout of a table."""
    before: tuple[Raw, ...] = ()
    """The line in front of the first, in each file; empty where there is none, or nobody wants it."""


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


def without_faults(lines: list[Line], faults: dict[int, str]) -> list[str]:
    """The showable text of each line; notes faults by place, unless there was one before."""
    bad = [place for place, line in enumerate(lines) if line.__class__ is BadLine]
    for place in bad:
        line = lines[place]
        if isinstance(line, BadLine):
            faults.setdefault(place, line.fault)
            lines[place] = line.text
    return cast("list[str]", lines)


class Reader:
    """A corpus whose sides lie in two files, line by line translations of each other. It can be pickled."""

    def __init__(self, paths: Sequence[Path], corpus: int, on_bad_utf8: BadUtf8) -> None:
        self._paths, self._path = paths, paths[0]
        self._corpus, self._on_bad_utf8 = corpus, on_bad_utf8

    def blocks(self) -> Iterator[RawBlock]:
        """The lines of the corpus in order, about a quarter of a MiB of each file at a time.

        Raises:
            DataError: a file is missing, empty or damaged, or the sides do not have as many lines.
        """
        sides, done = [_Side(path) for path in self._paths], 0
        while count := min(side.fill() for side in sides):
            yield RawBlock(self._corpus, done + 1, tuple(side.take(count) for side in sides))
            done += count
        counts = [done + side.count_rest() for side in sides]
        _refuse_empty([path for path, count in zip(self._paths, counts, strict=True) if not count])
        if len(set(counts)) > 1:
            named = ", ".join(
                f"{display(path)} {count}" for path, count in zip(self._paths, counts, strict=True)
            )
            raise DataError(
                f"line counts differ: {named}",
                "every line of one file must be the translation of the same line of the other",
            )

    def parse(self, block: RawBlock, notes: ReadNotes) -> Lines:
        """The pairs of a block; what was repaired is counted in `notes`.

        Of a pair with two bad sides the fault is the source's.

        Raises:
            DataError: a line is not UTF-8 (and `on_bad_utf8` is `error`), or lacks a column or key.
        """
        faults = dict[int, str]()
        source, target = (without_faults(self._decoded(block, notes, file), faults) for file in (0, 1))
        return Lines(block.first, source, target, faults)

    def _decoded(self, block: RawBlock, notes: ReadNotes, file: int = 0) -> list[Line]:
        decoder = Decoder(self._paths[file], self._on_bad_utf8, notes, before=block.first - 1)
        groups = [decoder.decode(raw) for raw in block.files[file]]
        return groups[0] if len(groups) == 1 else [line for group in groups for line in group]


def _refuse_empty(paths: Sequence[Path]) -> None:
    if paths:
        are = "is" if len(paths) == 1 else "are"
        raise DataError(f"{' and '.join(map(display, paths))}: {are} empty")


class TextReader(Reader):
    """A file of text; it is the target side, and all sources are empty."""

    def parse(self, block: RawBlock, notes: ReadNotes) -> Lines:
        """See `Reader`."""
        faults = dict[int, str]()
        lines = self._decoded(block, notes)
        return Lines(block.first, [""] * len(lines), without_faults(lines, faults), faults)


class TsvReader(Reader):
    """A TSV file; columns that are named are those of a header line.

    Args:
        path: The file.
        columns: Of source and target, by number from 1 or by name.
        corpus: Index of the corpus.
        on_bad_utf8: What to do with a line that is not UTF-8.
    """

    def __init__(
        self, path: Path, columns: tuple[int | str, int | str], corpus: int, on_bad_utf8: BadUtf8
    ) -> None:
        super().__init__([path], corpus, on_bad_utf8)
        self._columns = columns
        self._header = any(isinstance(column, str) for column in columns)

    def blocks(self) -> Iterator[RawBlock]:
        """See `Reader`; from the first line with columns on, blocks say how many these are."""
        layout, lines = Layout(), 0
        for block in super().blocks():
            if not layout.width:
                layout = self._layout(block)
            lines += sum(raw.lines for raw in block.files[0])
            yield block._replace(layout=layout)
        if lines == int(self._header):
            _refuse_empty([self._path])

    def parse(self, block: RawBlock, notes: ReadNotes) -> Lines:
        """See `Reader`."""
        sources, targets, faults = list[str](), list[str](), dict[int, str]()
        width, left, right = block.layout
        first, lines = self._rows(block, notes)
        for place, line in enumerate(lines):
            source, target = "", ""
            if isinstance(line, BadLine):
                source, faults[place] = line.text, line.fault
            elif line:
                fields = line.split("\t")
                if len(fields) != width:
                    where = f"{display(self._path)}:{first + place}"
                    raise DataError(
                        f"{where}: {counted(len(fields), 'column')} where {width} are expected",
                        "is a tab missing, or inside a text? source_column and target_column choose the "
                        "columns",
                    )
                source, target = fields[left], fields[right]
            sources.append(source)
            targets.append(target)
        return Lines(first, sources, targets, faults)

    def _rows(self, block: RawBlock, notes: ReadNotes) -> tuple[int, list[Line]]:
        """Number of the first line that is no header, and all lines from there."""
        lines = self._decoded(block, notes)
        return (2, lines[1:]) if self._header and block.first == 1 else (block.first, lines)

    def _layout(self, block: RawBlock) -> Layout:
        """Which columns are meant, and how many the first line with some has; 0 if there is none."""
        if self._header:
            return self._read_header(self._decoded(block, ReadNotes())[0])
        left, right = (int(column) - 1 for column in self._columns)
        used = (line for line in self._decoded(block, ReadNotes()) if isinstance(line, str) and line)
        line = next(used, None)
        width = 0 if line is None else max(line.count("\t") + 1, left + 1, right + 1)
        return Layout(width, left, right)

    def _read_header(self, line: Line | None) -> Layout:
        if not isinstance(line, str):
            raise DataError(f"{display(self._path)}:1: no header line that names the columns")
        names = line.split("\t")
        left, right = (_column_of(column, names, self._path) for column in self._columns)
        return Layout(len(names), left, right)


def _column_of(column: int | str, header: list[str], path: Path) -> int:
    if isinstance(column, int) and column <= len(header):
        return column - 1
    if column not in header:
        raise DataError(f"{display(path)}:1: no column {column}", f"the columns are: {', '.join(header)}")
    if header.count(str(column)) > 1:
        raise DataError(f"{display(path)}:1: two columns are named {column}", "rename one in this line")
    return header.index(str(column))


class JsonReader(Reader):
    """A JSONL file.

    Args:
        path: The file.
        keys: Of source and target; `a.b` is a path through nested objects. None: that side is empty.
        corpus: Index of the corpus.
        on_bad_utf8: What to do with a line that is not UTF-8.
    """

    def __init__(self, path: Path, keys: tuple[str | None, str], corpus: int, on_bad_utf8: BadUtf8) -> None:
        super().__init__([path], corpus, on_bad_utf8)
        self._keys = keys

    def parse(self, block: RawBlock, notes: ReadNotes) -> Lines:
        """See `Reader`."""
        sources, targets = list[Line](), list[Line]()
        for place, line in enumerate(self._decoded(block, notes)):
            sides: list[Line] = [line, ""]
            if isinstance(line, str):
                sides = self._sides(line, f"{display(self._path)}:{block.first + place}", notes)
            sources.append(sides[0])
            targets.append(sides[1])
        faults = dict[int, str]()
        source, target = without_faults(sources, faults), without_faults(targets, faults)
        return Lines(block.first, source, target, faults)

    def _sides(self, line: str, where: str, notes: ReadNotes) -> list[Line]:
        if is_blank(line):
            return ["", ""]
        record = _parse(line, where)
        texts = ["" if key is None else _value(record, key, where) for key in self._keys]
        if "\\" not in line:
            return list(texts)
        return [_plain_text(text, where, self._on_bad_utf8, notes) for text in texts]


def _parse(line: str, where: str) -> dict[str, object]:
    try:
        record = json.loads(line, object_pairs_hook=unique_keys)
    except json.JSONDecodeError as fault:
        raise DataError(f"{where}: not JSON: {fault.msg} at character {fault.pos + 1}") from None
    except RepeatedKeyError as fault:
        raise DataError(f"{where}: not usable JSON: {fault}") from None
    except (ValueError, RecursionError):
        raise DataError(f"{where}: not usable JSON: nested too deep, or a number too long") from None
    if not isinstance(record, dict):
        raise DataError(f"{where}: not a JSON object", "each line must be like {'de': '...', 'en': '...'}")
    return record


def _value(record: dict[str, object], key: str, where: str) -> str:
    """The text under `key`, or under the path `a.b` of nested objects."""
    value: object = record.get(key)
    if value is None and "." in key:
        value = record
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
    if isinstance(value, str):
        return value
    if key in record:
        raise DataError(f"{where}: {key!r} is {json.dumps(record[key])[:40]}, not a text")
    if value is None:
        keys = ", ".join(map(str, record)) or "nothing"
        raise DataError(
            f"{where}: no key {key!r}", f"found {keys}; source_column and target_column name the keys"
        )
    raise DataError(f"{where}: {key!r} is {json.dumps(value)[:40]}, not a text")


def _plain_text(text: str, where: str, on_bad_utf8: BadUtf8, notes: ReadNotes) -> Line:
    """A JSON text made one line of UTF-8: escapes can bring line breaks, NUL and lone surrogates."""
    line = joined(text)
    notes.joined_lines += line != text
    text = line
    try:
        text.encode()
    except UnicodeEncodeError:
        if on_bad_utf8 == "error":
            raise DataError(
                f"{where}: half of a surrogate pair (\\ud800 to \\udfff) is not text",
                "repair the line, or set data.on_bad_utf8 to skip or replace",
            ) from None
        text = without_surrogates(text)
        if on_bad_utf8 == "skip":
            return BadLine("bad_utf8", text)
        notes.replaced_lines += 1
    return BadLine("nul", text) if "\0" in text else text
