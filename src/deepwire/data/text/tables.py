"""Corpora that lie in one file, a pair a line: TSV and JSONL."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

from deepwire.data.data_config import BadUtf8
from deepwire.data.text.files import BadLine, Line, ReadNotes, display
from deepwire.data.text.one_line import joined, without_surrogates
from deepwire.data.text.reader import (
    Layout,
    Lines,
    RawBlock,
    decoded,
    one_file_blocks,
    refuse_empty,
    without_faults,
)
from deepwire.data.text.wording import counted
from deepwire.errors import DataError


class TsvReader:
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
        self._path, self._columns, self._corpus, self._on_bad_utf8 = path, columns, corpus, on_bad_utf8
        self._header = any(isinstance(column, str) for column in columns)

    def blocks(self) -> Iterator[RawBlock]:
        """See `Reader`; from the first line with columns on, blocks say how many these are."""
        layout, lines = Layout(), 0
        for block in one_file_blocks(self._path, self._corpus):
            if not layout.width:
                layout = self._layout(block)
            lines += sum(raw.lines for raw in block.files[0])
            yield block._replace(layout=layout)
        if self._header and lines == 0:
            self._read_header(None)
        if lines == int(self._header):
            refuse_empty(self._path)

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

    def _decoded(self, block: RawBlock, notes: ReadNotes) -> list[Line]:
        return decoded(self._path, block.files[0], block.first, self._on_bad_utf8, notes)

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
    return header.index(str(column))


class JsonReader:
    """A JSONL file.

    Args:
        path: The file.
        keys: Of source and target; `a.b` is a path through nested objects.
        corpus: Index of the corpus.
        on_bad_utf8: What to do with a line that is not UTF-8.
    """

    def __init__(self, path: Path, keys: tuple[str, str], corpus: int, on_bad_utf8: BadUtf8) -> None:
        self._path, self._keys, self._corpus, self._on_bad_utf8 = path, keys, corpus, on_bad_utf8

    def blocks(self) -> Iterator[RawBlock]:
        """See `Reader`."""
        block = None
        for block in one_file_blocks(self._path, self._corpus):
            yield block
        if block is None:
            refuse_empty(self._path)

    def parse(self, block: RawBlock, notes: ReadNotes) -> Lines:
        """See `Reader`."""
        sources, targets = list[Line](), list[Line]()
        lines = decoded(self._path, block.files[0], block.first, self._on_bad_utf8, notes)
        for place, line in enumerate(lines):
            sides: list[Line] = [line, ""]
            if isinstance(line, str):
                sides = self._sides(line, f"{display(self._path)}:{block.first + place}", notes)
            sources.append(sides[0])
            targets.append(sides[1])
        faults = dict[int, str]()
        source, target = without_faults(sources, faults), without_faults(targets, faults)
        return Lines(block.first, source, target, faults)

    def _sides(self, line: str, where: str, notes: ReadNotes) -> list[Line]:
        if not line.strip():
            return ["", ""]
        record = _parse(line, where)
        texts = [_value(record, key, where) for key in self._keys]
        if "\\" not in line:
            return list(texts)
        return [_plain_text(text, where, self._on_bad_utf8, notes) for text in texts]


def _parse(line: str, where: str) -> dict[str, object]:
    try:
        record = json.loads(line)
    except json.JSONDecodeError as fault:
        raise DataError(f"{where}: not JSON: {fault.msg} at character {fault.pos + 1}") from None
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
    if value is None:
        keys = ", ".join(map(str, record)) or "nothing"
        raise DataError(
            f"{where}: no key {key!r}", f"found {keys}; source_column and target_column name the keys"
        )
    raise DataError(f"{where}: {key!r} is not a text")


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
