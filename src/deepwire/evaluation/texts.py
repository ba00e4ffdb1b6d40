"""Reading whole texts for scoring: one sentence a line, named as in messages and tables."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from deepwire.data.text.files import BadLine, display, read_lines
from deepwire.errors import DataError

_FAULTS = {"nul": "contains a NUL character", "too_long": "is too long", "bad_utf8": "is not UTF-8"}


@dataclass(frozen=True)
class Text:
    """A text to be scored or to score against.

    Attributes:
        name: In tables and messages.
        lines: One sentence each.
        more: Further references of the same sentences; only a reference has some.
    """

    name: str
    lines: list[str]
    more: tuple[Text, ...] = ()

    @property
    def references(self) -> tuple[Text, ...]:
        """This one and the further ones."""
        return (Text(self.name, self.lines), *self.more)

    @property
    def answers(self) -> list[list[str]]:
        """The lines of each reference, as metrics take them."""
        return [text.lines for text in self.references]

    def only(self, rows: Iterable[int]) -> Text:
        """Some of the lines, of each reference."""
        chosen = list(rows)
        more = tuple(text.only(chosen) for text in self.more)
        return Text(self.name, [self.lines[row] for row in chosen], more)


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
