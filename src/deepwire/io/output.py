"""Where answers go: stdout, or a file that appears only when it is complete."""

from __future__ import annotations

import gzip
import io
import lzma
import os
import sys
from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import BinaryIO, TextIO, cast

from deepwire.errors import UsageError
from deepwire.io.atomic import disk_errors, is_disk_full, replacing, unwound_by_signals

STDOUT = Path("-")
_STDIN, _STDOUT = 0, 1
_ZSTD = ".zst"
_SETTINGS = (".yaml", ".yml")
COMPRESSED_SUFFIXES = (".gz", _ZSTD, ".xz")


@contextmanager
def open_output(path: Path) -> Iterator[TextIO]:
    """A text stream to `path`; `-` is stdout.

    A file is written under another name in the same folder and takes its name at the end: after a crash or
    an error there is the old file or none. Pipes and devices are written directly; the file that stdout
    goes to already is stdout. A name that ends in .gz, .zst or .xz asks for compression, with the same bytes
    for the same text.

    Raises:
        UsageError: as `check_output` says.
        ResourceError: it cannot be written.
    """
    check_output(path)
    # To replace the file that stdout goes to would lose what stood in it: `--output /dev/stdout >> FILE`.
    if path == STDOUT or _is_same_file(path, _STDOUT):
        yield sys.stdout
        return
    device = path.exists() and not path.is_file()
    opened = path.open("w", encoding="utf-8", newline="\n") if device else _atomic(path)
    try:
        with unwound_by_signals(), opened as stream:
            yield stream
    except OSError as error:
        if is_disk_full(error):
            error.filename = error.filename or str(path)  # a write does not say of which file
        raise


def write_output(path: Path, text: str) -> None:
    """Writes a whole text to a place that a user names; see `open_output`."""
    with disk_errors(path), open_output(path) as stream:
        stream.write(text)


def check_output(path: Path, read: Iterable[Path] = ()) -> None:
    """Checks that a text can be written to `path`, before hours of work that end there.

    Raises:
        UsageError: the folder does not exist or may not be written, `path` is a directory, a YAML file or one
            of the files that are `read` (`-` is the one behind stdin), or there is no package for zstd.
    """
    if path == STDOUT:
        return
    if path.is_dir():
        raise UsageError(f"{path}: is a directory, not a file to write")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: the folder {path.parent} does not exist", "create it first")
    replaced = not path.exists() or path.is_file()
    if replaced and not os.access(folder := path.resolve().parent, os.W_OK | os.X_OK):
        raise UsageError(f"{path}: cannot write: no new file may be made in {folder}", "name another file")
    if any(_is_same_file(path, _STDIN if other == STDOUT else other) for other in read):
        raise UsageError(
            f"{path}: is a text that is read, and would be replaced", "name another file to write"
        )
    if path.is_file() and path.suffix in _SETTINGS:  # perhaps one that another file extends
        raise UsageError(f"{path}: holds settings, and would be replaced", "name another file to write")
    if path.suffix == _ZSTD and find_spec("zstandard") is None:
        raise UsageError(
            f"{path}: writing zstd needs the package zstandard", "pip install 'deepwire[zstd]', or write .gz"
        )


def _is_same_file(path: Path, other: Path | int) -> bool:
    """Whether `path` is the file `other`, or the one behind an open descriptor; not where there is none."""
    try:
        there = os.fstat(other) if isinstance(other, int) else other.stat()
        return path.is_file() and os.path.samestat(path.stat(), there)
    except OSError:  # it does not exist, or the descriptor is closed
        return False


def compression(path: Path) -> str:
    """The ending that says how `path` is compressed, or nothing."""
    return path.suffix if path.suffix in COMPRESSED_SUFFIXES else ""


@contextmanager
def _atomic(path: Path) -> Iterator[TextIO]:
    # A name that is a link stays one: what it points to is replaced.
    with replacing(path.resolve()) as raw, _text(raw, path.suffix) as stream:
        yield stream


@contextmanager
def _text(raw: BinaryIO, suffix: str) -> Iterator[TextIO]:
    """A text stream into an open file, which stays open."""
    with ExitStack() as stack:
        packed = raw
        if suffix == ".gz":
            # Neither name nor time, so that the bytes depend on the text alone.
            gz = gzip.GzipFile(filename="", mode="wb", fileobj=raw, mtime=0)
            packed = cast("BinaryIO", stack.enter_context(gz))
        elif suffix == ".xz":
            packed = cast("BinaryIO", stack.enter_context(lzma.LZMAFile(raw, "wb")))
        elif suffix == _ZSTD:
            import zstandard

            zst = zstandard.ZstdCompressor().stream_writer(raw, closefd=False)
            packed = cast("BinaryIO", stack.enter_context(zst))
        stream = io.TextIOWrapper(packed, encoding="utf-8", errors="surrogateescape", newline="\n")
        yield stream
        stream.detach()
