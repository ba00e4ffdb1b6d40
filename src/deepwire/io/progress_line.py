"""A line of a terminal that changes while something runs."""

from __future__ import annotations

import shutil
import sys
import time
from collections.abc import Callable
from typing import Self

from deepwire.errors import harmless

CLEAR = "\r\x1b[K"
"""Begins the line of a terminal anew."""


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
            print(CLEAR if self._transient else "\n", end="", file=sys.stderr, flush=True)
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
        print(f"{CLEAR}{harmless(text)[:width]}", end="", file=sys.stderr, flush=True)
        ProgressLine.shown = True
