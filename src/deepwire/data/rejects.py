"""The file of dropped pairs: which pair of which corpus, and why."""

from __future__ import annotations

import os
from pathlib import Path
from types import TracebackType
from typing import TextIO

from deepwire.data.corpus import Pair
from deepwire.errors import UsageError

HEADER = ("corpus", "line", "reason", "source", "target")

_ESCAPES = {ord("\\"): "\\\\", ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}


class RejectFile:
    """A TSV file with a header line; it has its name only once it is complete.

    Tabs, line ends and backslashes in a text are written as `\\t`, `\\n`, `\\r` and `\\\\`. Pairs that cannot
    be used as text show what could be read of them.

    Raises:
        UsageError: the file cannot be written there.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        self._unfinished = path.parent / f".{path.name}.part"
        self._file: TextIO | None = None

    def __enter__(self) -> RejectFile:
        if self._path.is_dir():
            raise UsageError(f"{self._path}: is a directory, not a file to write")
        try:
            self._file = self._unfinished.open("w", encoding="utf-8", errors="replace", newline="\n")
        except OSError as fault:
            raise UsageError(f"{self._path}: cannot write: {fault.strerror}") from None
        self._write(HEADER)
        return self

    def add(self, role: str, corpus: str, pair: Pair, reason: str) -> None:
        """Write one dropped pair of the corpus named `corpus`, of `train`, `valid` or `test`."""
        self._write((f"{role}/{corpus}", str(pair.line), reason, pair.source, pair.target))

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._file is None:
            return
        with self._file as file:
            file.flush()
            os.fsync(file.fileno())
        if kind is None:
            self._unfinished.replace(self._path)
        else:
            self._unfinished.unlink()

    def _write(self, fields: tuple[str, ...]) -> None:
        if self._file is not None:
            self._file.write("\t".join(field.translate(_ESCAPES) for field in fields) + "\n")
