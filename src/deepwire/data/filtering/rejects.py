"""The file of dropped pairs: which pair of which corpus, and why."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TextIO

from deepwire.data.text.pairs import Pair
from deepwire.io.output import open_output

HEADER = ("corpus", "line", "reason", "source", "target")

_ESCAPES = {ord("\\"): "\\\\", ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}


class RejectFile:
    """A TSV file with a header line.

    Tabs, line ends and backslashes in a text are written as `\\t`, `\\n`, `\\r` and `\\\\`. Pairs that cannot
    be used as text show what could be read of them.
    """

    def __init__(self, file: TextIO) -> None:
        self._file = file
        self._write(HEADER)

    @classmethod
    @contextmanager
    def at(cls, path: Path) -> Iterator[RejectFile]:
        """A file that has its name only once it is complete; compressed where its ending says so.

        Raises:
            UsageError: the file cannot be written there.
            ResourceError: nothing can be written there.
        """
        with open_output(path) as file:
            yield cls(file)

    def add(self, role: str, corpus: str, pair: Pair, reason: str) -> None:
        """Write one dropped pair of the corpus named `corpus`, of `train`, `valid` or `test`."""
        self._write((f"{role}/{corpus}", str(pair.line), reason, pair.source, pair.target))

    def _write(self, fields: tuple[str, ...]) -> None:
        line = "\t".join(field.translate(_ESCAPES) for field in fields)
        # JSON can hold halves of characters, UTF-8 cannot.
        self._file.write(line.encode(errors="replace").decode() + "\n")
