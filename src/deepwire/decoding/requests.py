"""Reading what is to be translated: text or JSON lines, never one line more or less than the file has."""

from __future__ import annotations

import json
from collections.abc import Iterator
from itertools import zip_longest
from pathlib import Path

from deepwire.data.text.files import BadLine, Line, ReadNotes, display, read_lines
from deepwire.data.text.one_line import plain
from deepwire.decoding.source import Warn
from deepwire.decoding.translation import Request
from deepwire.errors import DataError

_END = object()


def read_text(path: Path, warn: Warn) -> Iterator[str]:
    """The lines of a file (`-` = stdin) as text, one for each line whatever it holds.

    Bytes that are not UTF-8 become U+FFFD, NUL a space, of a line above the reader's limit the beginning
    is left; with a warning.
    """
    notes = ReadNotes()
    for number, line in enumerate(read_lines(path, on_bad_utf8="replace", notes=notes), 1):
        yield _as_text(line, path, number, warn)
    name = display(path)
    if notes.replaced_lines:
        warn(f"{name}: lines that are not UTF-8: {notes.replaced_lines}; bad bytes were read as U+FFFD")
    if notes.byte_order_marks or notes.carriage_returns:
        returns = f"{notes.carriage_returns} carriage returns at line ends"
        warn(f"{name}: left out {returns} and {notes.byte_order_marks} byte order marks")


def text_requests(path: Path, prefixes: Path | None, warn: Warn) -> Iterator[Request]:
    """A request for each line of a text file, with the prefix of the same line of another file if given.

    Raises:
        DataError: a file cannot be read, or their line counts differ.
    """
    if prefixes is None:
        yield from map(Request, read_text(path, warn))
        return
    for text, prefix in _together(path, prefixes, warn):
        yield Request(text, prefix)


def pairs(source: Path, target: Path, warn: Warn) -> Iterator[tuple[str, str]]:
    """Line by line (source, target) of two files.

    Raises:
        DataError: a file cannot be read, or their line counts differ (found at the end of the shorter).
    """
    yield from _together(source, target, warn)


def column_requests(path: Path, column: int, warn: Warn) -> Iterator[Request]:
    """A request for each line of a text file with the language to translate into in a column of its own.

    Args:
        path: Two columns with a tab between them; the text may hold more tabs.
        column: Where the language is: 1, before the text, or 2, after it.
        warn: Receives warnings.

    Raises:
        DataError: a line that is not empty has no tab or no language.
    """
    form = "LANGUAGE<tab>TEXT" if column == 1 else "TEXT<tab>LANGUAGE"
    for number, line in enumerate(read_text(path, warn), 1):
        if not line.strip():
            yield Request("")
            continue
        first, tab, second = line.partition("\t") if column == 1 else line.rpartition("\t")
        to, text = (first, second) if column == 1 else (second, first)
        if not tab or not to.strip():
            raise DataError(
                f"{display(path)}:{number}: no column {column} with a language", f"expected {form}"
            )
        yield Request(text, to=to.strip())


def json_requests(path: Path, warn: Warn) -> Iterator[Request]:
    """A request for each JSON line: `text`, optionally `prefix`, `to` and `from`; others are handed through.

    Raises:
        DataError: a line is no JSON object with a text.
    """
    for number, line in enumerate(read_text(path, warn), 1):
        where = f"{display(path)}:{number}"
        try:
            fields = json.loads(line, parse_constant=_refuse)
        except (ValueError, RecursionError) as fault:
            raise DataError(f"{where}: not JSON: {fault}", 'one object a line: {"text": "..."}') from None
        if not isinstance(fields, dict) or not isinstance(fields.get("text"), str):
            there = isinstance(fields, dict) and "text" in fields
            wrong = "text is not a string" if there else "no field text"
            raise DataError(f"{where}: {wrong}", 'one object a line: {"text": "..."}')
        prefix = fields.get("prefix", "")
        if not isinstance(prefix, str):
            raise DataError(f"{where}: prefix must be a string")
        text = _printable(fields["text"])
        # What a model of one direction hands through need not be a language, and not even a text.
        to, from_ = (name if isinstance(name := fields.get(key), str) else "" for key in ("to", "from"))
        yield Request(text, _printable(prefix), fields, to, from_)


def _together(one: Path, other: Path, warn: Warn) -> Iterator[tuple[str, str]]:
    counts = [0, 0]
    unequal = False
    for left, right in zip_longest(read_text(one, warn), read_text(other, warn), fillvalue=_END):
        counts[0] += left is not _END
        counts[1] += right is not _END
        if isinstance(left, str) and isinstance(right, str):
            yield left, right
        else:
            unequal = True
    if unequal:
        raise DataError(f"line counts differ: {display(one)} {counts[0]}, {display(other)} {counts[1]}")


def _as_text(line: Line, path: Path, number: int, warn: Warn) -> str:
    if not isinstance(line, BadLine):
        return line
    where = f"{display(path)}:{number}"
    if line.fault == "too_long":
        warn(f"{where}: the line is too long, only its beginning is used")
    else:
        warn(f"{where}: NUL characters are read as spaces")
    return line.text.replace("\0", " ")


def _refuse(constant: str) -> object:
    raise ValueError(f"{constant} is no JSON number")


def _printable(text: str) -> str:
    """`text` without what no UTF-8 file can hold: lone surrogates of a JSON escape, NUL, line breaks."""
    return plain(text.encode("utf-8", "replace").decode())
