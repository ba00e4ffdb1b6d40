"""Reading a parallel corpus pair by pair, in constant memory."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path
from typing import NamedTuple

from deepwire.data.config import CorpusConfig, DataConfig
from deepwire.data.directed import prefix_of
from deepwire.data.files import BadLine, Line, ReadNotes, display, find_text, read_lines
from deepwire.data.languages import Direction
from deepwire.errors import DataError

_LINE_BREAKS = re.compile(r"\r\n|[\n\r]")


class Pair(NamedTuple):
    """A sentence and its translation."""

    line: int
    """Line number in its file, from 1."""
    source: str
    target: str
    corpus: int
    """Index of the corpus in `DataConfig.train`."""
    fault: str = ""
    """Why the pair cannot be used at all (`bad_utf8`, `nul`, `too_long`), or empty."""


def read_pairs(
    corpus: CorpusConfig, data: DataConfig, *, index: int = 0, notes: ReadNotes | None = None
) -> Iterator[Pair]:
    """Every pair of a corpus in order, unfiltered: one for each line.

    Args:
        corpus: What to read; in a run with directions one of those that `directed` gives.
        data: The languages and what to do with lines that are not UTF-8.
        index: The number of the corpus, handed on in `Pair.corpus`.
        notes: Counts what was repaired while reading.

    Raises:
        DataError: a file is missing, empty or damaged; the line counts of the two sides differ (known only at
            the end); a line is not UTF-8 (and `on_bad_utf8` is `error`), or lacks a column or key.
    """
    notes = notes if notes is not None else ReadNotes()
    if corpus.tsv is not None:
        return _read_tsv(corpus.tsv, corpus, data, index, notes)
    if corpus.jsonl is not None:
        return _read_jsonl(corpus.jsonl, corpus, data, index, notes)
    source, target = corpus_files(corpus, data)
    return _read_two_files(source, target, data, index, notes)


def corpus_files(corpus: CorpusConfig, data: DataConfig) -> list[Path]:
    """The files of a corpus: source and target, or the one TSV or JSONL file.

    Raises:
        DataError: a side of a prefix does not exist.
    """
    if corpus.prefix is None:
        return [path for path in (corpus.source_file, corpus.target_file, corpus.tsv, corpus.jsonl) if path]
    if corpus.source is None or corpus.target is None:
        return [find_text(corpus.prefix, data.source), find_text(corpus.prefix, data.target)]
    direction = Direction(corpus.source, corpus.target)
    prefix = prefix_of(corpus.prefix, direction)
    try:
        return [find_text(prefix, language) for language in direction]
    except DataError as fault:
        own = "a corpus that is not for all directions names its own: directions: [...]"
        raise DataError(
            f"{fault.message}, needed for {direction}", f"{fault.hint}; {own}" if fault.hint else own
        ) from None


def _read_two_files(
    source: Path, target: Path, data: DataConfig, index: int, notes: ReadNotes
) -> Iterator[Pair]:
    sides = [read_lines(path, on_bad_utf8=data.on_bad_utf8, notes=notes) for path in (source, target)]
    number = 0
    for number, (left, right) in enumerate(zip_longest(*sides), 1):
        if left.__class__ is str and right.__class__ is str:
            yield Pair(number, left, right, index)
        elif left is None or right is None:
            break
        else:
            yield _faulty(number, left, right, index)
    else:
        _refuse_empty(number, source, target)
        return
    rest = 1 + sum(1 for _ in sides[left is None])
    counts = [number - 1, number - 1]
    counts[left is None] += rest
    if 0 in counts:
        _refuse_empty(0, (source, target)[counts.index(0)])
    raise DataError(
        f"line counts differ: {display(source)} {counts[0]}, {display(target)} {counts[1]}",
        "every line of one file must be the translation of the same line of the other",
    )


def _refuse_empty(lines: int, *paths: Path) -> None:
    if lines == 0:
        raise DataError(f"{' and '.join(map(display, paths))}: {'is' if len(paths) == 1 else 'are'} empty")


def _faulty(number: int, source: Line, target: Line, index: int) -> Pair:
    """A pair of which at least one side is a `BadLine`; the source's fault is named first."""
    faults = [side.fault for side in (source, target) if isinstance(side, BadLine)]
    left, right = (side.text if isinstance(side, BadLine) else side for side in (source, target))
    return Pair(number, left, right, index, faults[0])


def _read_tsv(
    path: Path, corpus: CorpusConfig, data: DataConfig, index: int, notes: ReadNotes
) -> Iterator[Pair]:
    columns = [corpus.source_column or 1, corpus.target_column or 2]
    lines = enumerate(read_lines(path, on_bad_utf8=data.on_bad_utf8, notes=notes), 1)
    has_header = any(isinstance(column, str) for column in columns)
    if has_header:
        _, header = next(lines, (0, None))
        if not isinstance(header, str):
            raise DataError(f"{display(path)}:1: no header line that names the columns")
        width = header.count("\t") + 1
        left, right = (_column_of(column, header.split("\t"), path) for column in columns)
    else:
        width, (left, right) = 0, (int(column) - 1 for column in columns)
    number = 0
    for number, line in lines:
        if isinstance(line, BadLine):
            yield Pair(number, line.text, "", index, line.fault)
        elif not line:
            yield Pair(number, "", "", index)
        else:
            fields = line.split("\t")
            width = width or max(len(fields), left + 1, right + 1)
            if len(fields) != width:
                raise DataError(
                    f"{display(path)}:{number}: {len(fields)} columns where {width} are expected",
                    "is a tab missing, or inside a text? source_column and target_column choose the columns",
                )
            yield Pair(number, fields[left], fields[right], index)
    _refuse_empty(number, path)


def _column_of(column: int | str, header: list[str], path: Path) -> int:
    if isinstance(column, int) and column <= len(header):
        return column - 1
    if column not in header:
        raise DataError(f"{display(path)}:1: no column {column}", f"the columns are: {', '.join(header)}")
    return header.index(str(column))


def _read_jsonl(
    path: Path, corpus: CorpusConfig, data: DataConfig, index: int, notes: ReadNotes
) -> Iterator[Pair]:
    source, target = corpus.source or data.source, corpus.target or data.target
    keys = [str(corpus.source_column or source), str(corpus.target_column or target)]
    number = 0
    for number, line in enumerate(read_lines(path, on_bad_utf8=data.on_bad_utf8, notes=notes), 1):
        if isinstance(line, BadLine):
            yield Pair(number, line.text, "", index, line.fault)
            continue
        if not line.strip():
            yield Pair(number, "", "", index)
            continue
        where = f"{display(path)}:{number}"
        record = _parse(line, where)
        source, target = (_value(record, key, where) for key in keys)
        if "\\" in line:
            sides = [_plain_text(text, where, data, notes) for text in (source, target)]
            if not all(isinstance(side, str) for side in sides):
                yield _faulty(number, sides[0], sides[1], index)
                continue
            source, target = str(sides[0]), str(sides[1])
        yield Pair(number, source, target, index)
    _refuse_empty(number, path)


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
        found = ", ".join(map(str, record)) or "nothing"
        raise DataError(
            f"{where}: no key {key!r}", f"found {found}; source_column and target_column name the keys"
        )
    raise DataError(f"{where}: {key!r} is not a text")


def _plain_text(text: str, where: str, data: DataConfig, notes: ReadNotes) -> Line:
    """A JSON text made one line of UTF-8: escapes can bring line breaks, NUL and lone surrogates."""
    if _LINE_BREAKS.search(text):
        text = _LINE_BREAKS.sub(" ", text)
        notes.joined_lines += 1
    try:
        text.encode()
    except UnicodeEncodeError:
        if data.on_bad_utf8 == "error":
            raise DataError(
                f"{where}: half of a surrogate pair (\\ud800 to \\udfff) is not text",
                "repair the line, or set data.on_bad_utf8 to skip or replace",
            ) from None
        text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if data.on_bad_utf8 == "skip":
            return BadLine("bad_utf8", text)
        notes.replaced_lines += 1
    return BadLine("nul", text) if "\0" in text else text
