"""Where answers go: stdout, or a file that appears only when it is complete."""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from deepwire.data.config import STDIN
from deepwire.errors import ResourceError, UsageError


@contextmanager
def open_output(path: Path) -> Iterator[TextIO]:
    """A text stream to `path`; `-` is stdout.

    A file is written under another name in the same folder and takes its name at the end: after a crash or
    an error there is the old file or none. Pipes and devices are written directly.

    Raises:
        UsageError: the folder does not exist, or `path` is a directory.
        ResourceError: it cannot be written.
    """
    if path == STDIN:
        yield sys.stdout
        return
    if path.is_dir():
        raise UsageError(f"{path}: is a directory, not a file to write")
    if not path.parent.is_dir():
        raise UsageError(f"{path}: the folder {path.parent} does not exist", "create it first")
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8", newline="\n") as stream:
            yield stream
        return
    with _atomic(path) as stream:
        yield stream


@contextmanager
def _atomic(path: Path) -> Iterator[TextIO]:
    # A name that is a link stays one: what it points to is replaced.
    path = path.resolve()
    try:
        descriptor, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    except OSError as error:
        raise ResourceError(f"{path}: cannot write: {error.strerror or error}") from error
    temporary = Path(name)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as stream:
            yield stream
            stream.flush()
            os.fsync(stream.fileno())
        temporary.chmod(_mode(path))
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _mode(path: Path) -> int:
    """The permissions of the file that is replaced, or those of any new file."""
    if path.exists():
        return path.stat().st_mode & 0o777
    mask = os.umask(0)
    os.umask(mask)
    return 0o666 & ~mask
