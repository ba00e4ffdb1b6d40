"""Reading whole texts for scoring: one sentence a line, named as in messages and tables."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from deepwire.data.text.files import BadLine, display, read_lines
from deepwire.errors import DataError

_FAULTS = {"nul": "contains a NUL character", "too_long": "is too long", "bad_utf8": "is not UTF-8"}


@dataclass(frozen=True)
class Text:
    """A text to be scored or to score against: its name in tables and messages, and its lines."""

    name: str
    lines: list[str]


def read_text(path: Path) -> Text:
    """Read a text file, plain or compressed; ``-`` is stdin.

    Raises:
        DataError: The file is missing, empty, damaged, or a line is not text.
    """
    name = display(path)
    lines: list[str] = []
    for number, line in enumerate(read_lines(path), start=1):
        if isinstance(line, BadLine):
            raise DataError(f"{name}:{number}: {_FAULTS[line.fault]}", "scoring needs every line; repair it")
        lines.append(line)
    if not lines:
        raise DataError(f"{name} is empty")
    return Text(name, lines)
