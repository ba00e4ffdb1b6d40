"""One line on standard error that changes while something runs, where that is a terminal."""

from __future__ import annotations

import sys
import time
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable

    from rich.progress import Progress


class ProgressLine:
    """A line that is drawn anew every now and then; nothing at all where nobody would see it change.

    No thread draws it: preparation forks processes, and a fork must not copy a lock that a thread holds.

    Args:
        every: Seconds between two times of drawing.
        live: Whether to draw; default: whether standard error is a terminal.
        transient: Whether the line goes at the end.
    """

    def __init__(self, *, every: float = 0.2, live: bool | None = None, transient: bool = True) -> None:
        self._live = sys.stderr.isatty() if live is None else live
        self._every, self._transient = every, transient
        self._what, self._next = "", 0.0
        self._progress: Progress | None = None

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.end()

    def count(self, what: str, done: int, total: int | None = None, unit: str = "") -> None:
        """Show how far something is, if it is time: `segmenting 4,096 of 10,000 pairs (41%)`."""
        if self._is_due(what, complete=done == total):
            number = f" {done:,}{f' of {total:,}' if total else ''}{' ' * bool(unit)}{unit}" if done else ""
            self._draw(f"{what}{number}{f' ({done / total:.0%})' if total and done else ''}")

    def show(self, text: Callable[[], str]) -> None:
        """Show a text, if it is time."""
        if self._is_due("", complete=False):
            self._draw(text())

    def end(self) -> None:
        """Leave the line, or take it away."""
        if self._progress is not None:
            self._progress.stop()
            self._progress = None

    def _is_due(self, what: str, *, complete: bool) -> bool:
        """Whether to draw now: something new began or ended, or enough time went by."""
        now = time.monotonic()
        if not self._live or (what == self._what and now < self._next and not complete):
            return False
        self._what, self._next = what, now + self._every
        return True

    def _draw(self, text: str) -> None:
        if self._progress is None:
            self._progress = self._started()
        self._progress.update(self._progress.task_ids[0], description=text, refresh=True)

    def _started(self) -> Progress:
        from rich.console import Console
        from rich.progress import Progress, TextColumn

        # Standard output holds answers, and may be read while they come: it stays as it is.
        progress = Progress(
            TextColumn("{task.description}", markup=False),
            console=Console(file=sys.stderr, highlight=False),
            auto_refresh=False,
            transient=self._transient,
            redirect_stdout=False,
        )
        progress.start()
        progress.add_task("", total=None)
        return progress
