"""Reading text files: any compression, lines that end at the byte `\\n` only, constant memory."""

from __future__ import annotations

import io
import lzma
import os
import sys
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from difflib import get_close_matches
from itertools import chain
from pathlib import Path
from typing import Any, NamedTuple, cast

import numpy as np

from deepwire.data.data_config import STDIN, BadUtf8
from deepwire.errors import DataError
from deepwire.io.output import COMPRESSED_SUFFIXES

CHUNK = 1 << 18
MAX_LINE_BYTES = 1 << 20
"""Longer lines are not read into memory: they come back as a `BadLine`, fault `too_long`."""
HEAD_BYTES = 200

_GZIP, _XZ = b"\x1f\x8b", b"\xfd7zXZ\x00"
_ZSTD = (b"\x28\xb5\x2f\xfd", *(bytes([0x50 + low]) + b"\x2a\x4d\x18" for low in range(16)))
"""A frame with data, or one of the sixteen kinds of frame to skip."""
_MAGIC = (_GZIP, _XZ, *_ZSTD)
_Compression = tuple[Callable[[], Any], type[Exception]]
"""What makes a decompressor, each for one part of a file, and what it raises where that is damaged."""
_COMPRESSED_PIECE = 1 << 11
"""Compressed bytes read at a time: few, because one can become a thousand bytes and more."""
_BOM = b"\xef\xbb\xbf"


class BadLine(NamedTuple):
    """A line that cannot be used as text."""

    fault: str
    """`bad_utf8`, `nul` or `too_long`."""
    text: str
    """The line with U+FFFD for bad bytes; the first characters of a line that is too long."""


Line = str | BadLine


class Raw(NamedTuple):
    """Whole lines of a file as bytes, joined by `\\n`; or the head of one line that is too long."""

    data: bytes
    too_long: bool
    lines: int

    def cut(self, lines: int) -> tuple[Raw, Raw]:
        """The first lines, fewer than there are, and the rest."""
        end = int(np.flatnonzero(np.frombuffer(self.data, np.uint8) == ord("\n"))[lines - 1])
        return Raw(self.data[:end], False, lines), Raw(self.data[end + 1 :], False, self.lines - lines)


@dataclass
class ReadNotes:
    """Repairs made while reading; the counts grow while a text is read."""

    carriage_returns: int = 0
    byte_order_marks: int = 0
    replaced_lines: int = 0
    """Lines with bytes that are not UTF-8, read with U+FFFD in their place."""
    joined_lines: int = 0
    """JSONL values with line breaks inside, read with spaces in their place."""

    def add(self, other: ReadNotes) -> None:
        """Counts the repairs of another part of the text."""
        self.carriage_returns += other.carriage_returns
        self.byte_order_marks += other.byte_order_marks
        self.replaced_lines += other.replaced_lines
        self.joined_lines += other.joined_lines


def display(path: Path) -> str:
    """The name of a file in messages."""
    return "<stdin>" if path == STDIN else str(path)


def read_lines(
    path: Path, *, on_bad_utf8: BadUtf8 = "error", notes: ReadNotes | None = None
) -> Iterator[Line]:
    """The lines of a text file, without line ends; as many as `wc -l` counts (plus an unfinished last one).

    Plain, gzip, zstd and xz are told apart by their first bytes; `-` is stdin. Only `\\n` ends a line; one
    `\\r` before it and a byte order mark at the start of the file are removed and counted in `notes`.

    Raises:
        DataError: the file is missing, damaged or not readable, or a line is not UTF-8 and `on_bad_utf8`
            is `error`.
    """
    decoder = Decoder(path, on_bad_utf8, notes if notes is not None else ReadNotes())
    return chain.from_iterable(map(decoder.decode, read_raw(path)))


def read_raw(path: Path) -> Iterator[Raw]:
    """A text file as groups of whole lines, decompressed but not decoded; see `read_lines`."""
    return _line_blocks(read_bytes(path))


class MissingTextError(DataError):
    """A text is not there."""


def find_text(prefix: Path, ending: str) -> Path:
    """The file `PREFIX.ending`, or the same with `.gz`, `.zst` or `.xz`; a MissingTextError for none."""
    path = existing_text(prefix, ending)
    if path is not None:
        return path
    missing, suffixes = prefix.with_name(f"{prefix.name}.{ending}"), ", ".join(COMPRESSED_SUFFIXES)
    raise MissingTextError(f"{missing}: no such file (also tried {suffixes})", _near_names(missing))


def existing_text(prefix: Path, ending: str) -> Path | None:
    """The file that `find_text` finds, if there is one."""
    paths = (prefix.with_name(f"{prefix.name}.{ending}{suffix}") for suffix in ("", *COMPRESSED_SUFFIXES))
    return next(filter(os.path.lexists, paths), None)


def read_bytes(path: Path) -> Iterator[bytes]:
    """The decompressed bytes of a file, piece by piece; `-` is stdin.

    Raises:
        DataError: it is missing, a directory, damaged or not readable, or zstd without the package for it.
    """
    with open_raw(path) as raw:
        head = b""
        # No byte more than needed: a terminal or a pipe may hold back the rest of its first line.
        while any(magic.startswith(head) and magic != head for magic in _MAGIC) and (more := raw.read(1)):
            head += more
        compression = _compression(head, path)
        size = CHUNK if compression is None else _COMPRESSED_PIECE
        pieces = chain([head] if head else [], iter(lambda: raw.read1(size), b""))
        try:
            yield from pieces if compression is None else _decompressed(pieces, compression, path)
        except OSError as fault:
            raise DataError(f"{display(path)}: cannot read: {fault.strerror or fault}") from None


def _compression(head: bytes, path: Path) -> _Compression | None:
    """The compression of a file that begins so; None for plain text."""
    if head == _GZIP:
        return lambda: zlib.decompressobj(31), zlib.error
    if head == _XZ:
        return lzma.LZMADecompressor, lzma.LZMAError
    if head not in _ZSTD:
        return None
    try:
        import zstandard
    except ImportError:
        raise DataError(
            f"{display(path)}: reading zstd needs the package zstandard", "pip install 'deepwire[zstd]'"
        ) from None
    return lambda: zstandard.ZstdDecompressor().decompressobj(), zstandard.ZstdError


def _decompressed(pieces: Iterator[bytes], compression: _Compression, path: Path) -> Iterator[bytes]:
    """Decompressed bytes of parts one after the other, perhaps with zeros between them."""
    begin, damage = compression
    decompressor, inside = begin(), False
    for piece in pieces:
        rest = piece
        while rest := rest if inside else rest.lstrip(b"\0"):
            try:
                yield decompressor.decompress(rest)
            except damage as fault:
                reason = str(fault).removeprefix("zstd decompressor error: ")
                raise DataError(
                    f"{display(path)}: damaged compressed data: {reason}", "copy it again"
                ) from None
            inside, rest = not decompressor.eof, b""
            if not inside:
                rest, decompressor = decompressor.unused_data, begin()
    if inside:
        raise DataError(f"{display(path)}: ends in the middle of compressed data", "copy it again")


def _line_blocks(chunks: Iterator[bytes]) -> Iterator[Raw]:
    """Groups of whole lines; a line above `MAX_LINE_BYTES` comes alone, and its head only."""
    pending, too_long = bytearray(), False
    for chunk in chunks:
        first, last = chunk.find(b"\n"), chunk.rfind(b"\n")
        if last < 0:
            pending += chunk[: 0 if too_long else len(chunk)]
            if len(pending) > MAX_LINE_BYTES:
                too_long = True
                del pending[HEAD_BYTES:]
            continue
        start = 0
        if too_long or len(pending) + first > MAX_LINE_BYTES:
            yield Raw(bytes(pending[:HEAD_BYTES]), True, 1)
            pending.clear()
            too_long, start = False, first + 1
        if start <= last:
            block = bytes(pending) + chunk[start:last]
            yield Raw(block, False, block.count(b"\n") + 1)
        pending = bytearray(chunk[last + 1 :])
    if pending or too_long:
        yield Raw(bytes(pending), too_long, 1)


class Decoder:
    """Bytes of whole lines to text: a block at a time, line by line only in a block that has a fault.

    Args:
        path: The file, for messages.
        on_bad_utf8: What to do with a line that is not UTF-8.
        notes: Counts what was repaired.
        before: Lines of the file that come before those that are decoded here.
    """

    def __init__(self, path: Path, on_bad_utf8: BadUtf8, notes: ReadNotes, before: int = 0) -> None:
        self._path, self._on_bad_utf8, self._notes = path, on_bad_utf8, notes
        self._lines = before

    def decode(self, raw: Raw) -> list[Line]:
        """The next lines, without line ends; a DataError where one is not UTF-8 and that is an error."""
        block = raw.data
        if self._lines == 0 and block.startswith(_BOM):
            block = block[len(_BOM) :]
            self._notes.byte_order_marks += 1
        if raw.too_long:
            self._lines += 1
            return [BadLine("too_long", block.decode(errors="ignore"))]
        lines: list[Line]
        try:
            text = block.decode()
            lines = list(text.split("\n"))
        except UnicodeDecodeError:
            text = block.decode(errors="replace")
            lines = [self._decode_line(line, number) for number, line in enumerate(block.split(b"\n"), 1)]
        self._lines += len(lines)
        if "\r" in text:
            lines = [self._without_return(line) for line in lines]
        if "\0" in text:
            lines = [
                BadLine("nul", line) if isinstance(line, str) and "\0" in line else line for line in lines
            ]
        return lines

    def _decode_line(self, raw: bytes, number: int) -> Line:
        try:
            return raw.decode()
        except UnicodeDecodeError as fault:
            if self._on_bad_utf8 == "error":
                where = f"{display(self._path)}:{self._lines + number}:{fault.start + 1}"
                hint = "repair the line; in training text, data.on_bad_utf8 can skip or replace it"
                if self._lines + number == 1 and raw.startswith((b"\xff\xfe", b"\xfe\xff")):
                    hint = "it looks like UTF-16: convert it with iconv -f UTF-16 -t UTF-8"
                raise DataError(f"{where}: not UTF-8 (byte 0x{raw[fault.start]:02x})", hint) from None
            text = raw.decode(errors="replace")
            if self._on_bad_utf8 == "skip":
                return BadLine("bad_utf8", text)
            self._notes.replaced_lines += 1
            return text

    def _without_return(self, line: Line) -> Line:
        if isinstance(line, str) and line.endswith("\r"):
            self._notes.carriage_returns += 1
            return line[:-1]
        return line


@contextmanager
def open_raw(path: Path) -> Iterator[io.BufferedIOBase]:
    """The bytes of a file as they are; errors as of `read_bytes`."""
    if path == STDIN:
        yield cast(io.BufferedIOBase, sys.stdin.buffer)
        return
    try:
        if path.is_dir():
            raise DataError(f"{path}: is a directory, not a text file")
        raw = path.open("rb", buffering=0)
    except FileNotFoundError:
        raise MissingTextError(f"{path}: no such file", _near_names(path)) from None
    except (OSError, ValueError) as fault:
        reason = fault.strerror if isinstance(fault, OSError) else str(fault)
        raise DataError(f"{path}: cannot open: {reason}") from None
    with raw:
        yield io.BufferedReader(raw, CHUNK)


def _near_names(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"the folder {folder} does not exist"
    try:
        near = get_close_matches(path.name, sorted(each.name for each in folder.iterdir() if each.is_file()))
    except OSError:
        return ""
    if near:
        return f"did you mean {' or '.join(near)}?"
    return f"look into {'the current folder' if folder == Path() else folder}"
