"""Lines in, as many answers out; on stderr warnings, and one line that changes while something runs."""

from __future__ import annotations

import logging
import shutil
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, Self, TypeVar

from deepwire.errors import DeepwireError, harmless
from deepwire.io.output import open_output

_CLEAR = "\r\x1b[K"
"""Begins the line of a terminal anew."""


class HarmlessFormatter(logging.Formatter):
    """Writes what is logged without what would change the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """See the base class."""
        return harmless(super().format(record))


class ProgressLine:
    """A line that is drawn anew every now and then; nothing at all where nobody would see it change.

    No thread draws it: preparation forks processes, and a fork must not copy a lock that a thread holds.

    Args:
        every: Seconds between two times of drawing.
        live: Whether to draw; default: whether standard error is a terminal.
        transient: Whether the line goes at the end.

    Attributes:
        shown: Whether a line is there now, which other messages take the place of.
    """

    shown = False

    def __init__(self, *, every: float = 0.2, live: bool | None = None, transient: bool = True) -> None:
        self._live = sys.stderr.isatty() if live is None else live
        self._every, self._transient = every, transient
        self._activity, self._next = "", 0.0

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def count(self, activity: str, done: int, total: int | None = None, unit: str = "") -> None:
        """Show how far something is, if it is time: `segmenting 4,096 of 10,000 pairs (41%)`."""
        if self._is_due(activity, complete=done == total):
            number = f" {done:,}{f' of {total:,}' if total else ''}{' ' * bool(unit)}{unit}" if done else ""
            self._draw(f"{activity}{number}{f' ({done / total:.0%})' if total and done else ''}")

    def show(self, text: Callable[[], str]) -> None:
        """Show a text, if it is time."""
        if self._is_due("", complete=False):
            self._draw(text())

    def end(self) -> None:
        """Leave the line, or take it away."""
        if ProgressLine.shown:
            print(_CLEAR if self._transient else "\n", end="", file=sys.stderr, flush=True)
        ProgressLine.shown = False

    def _is_due(self, activity: str, *, complete: bool) -> bool:
        """Whether to draw now: something new began or ended, or enough time went by."""
        now = time.monotonic()
        if not self._live or (activity == self._activity and now < self._next and not complete):
            return False
        self._activity, self._next = activity, now + self._every
        return True

    def _draw(self, text: str) -> None:
        width = shutil.get_terminal_size().columns - 1
        print(f"{_CLEAR}{harmless(text)[:width]}", end="", file=sys.stderr, flush=True)
        ProgressLine.shown = True


Line = TypeVar("Line")
Answer = TypeVar("Answer")


class CountedLines(Generic[Line]):
    """Hands lines through and counts them."""

    def __init__(self, lines: Iterable[Line]) -> None:
        self._lines, self.count = lines, 0

    def __iter__(self) -> Iterator[Line]:
        for line in self._lines:
            self.count += 1
            yield line


def write_answers(
    lines: CountedLines[Line],
    answers: Iterable[Answer],
    form: Callable[[Answer], str],
    output: Path,
    *,
    flush: bool,
    quiet: bool,
) -> None:
    """Write one answer for each line; a file gets its name only when all are written.

    Raises:
        DeepwireError: There were more or fewer answers than lines.
    """
    from deepwire.config.counts import counted  # pydantic, which most of `deepwire --help` is spared

    begun, count = time.monotonic(), 0

    def summary() -> str:
        seconds = time.monotonic() - begun
        return f"{counted(count, 'line')} in {seconds:.1f} s ({count / max(seconds, 1e-9):.1f} lines/s)"

    live = not quiet and sys.stderr.isatty() and not sys.stdout.isatty()
    with ProgressLine(every=0.5, live=live) as progress, open_output(output) as out:
        for answer in answers:
            out.write(f"{form(answer)}\n")
            if flush:
                out.flush()
            count += 1
            progress.show(summary)
        if count != lines.count:
            raise DeepwireError(f"{lines.count} lines were read, but {count} answers written")
    if not quiet:
        print(summary(), file=sys.stderr)


def tell(text: str) -> None:
    """Print a line on stderr, such as how far the work is."""
    print(f"{_CLEAR * ProgressLine.shown}{harmless(text)}", file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """Print a warning on stderr."""
    print(f"{_CLEAR * ProgressLine.shown}warning: {harmless(text)}", file=sys.stderr)
