"""Lines in, as many answers out; on stderr warnings, and one line that changes while something runs."""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, TypeVar

from deepwire.errors import DeepwireError, harmless
from deepwire.io.output import open_output
from deepwire.io.progress_line import CLEAR, ProgressLine


class HarmlessFormatter(logging.Formatter):
    """Writes what is logged without what would change the terminal."""

    def format(self, record: logging.LogRecord) -> str:
        """See the base class."""
        return harmless(super().format(record))


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


def silence_stdout() -> None:
    """Send the rest of stdout nowhere: else its error, when Python ends, would become the exit code."""
    with Path(os.devnull).open("wb") as nowhere:
        os.dup2(nowhere.fileno(), sys.stdout.fileno())


def tell(text: str) -> None:
    """Print a line on stderr, such as how far the work is."""
    print(f"{CLEAR * ProgressLine.shown}{harmless(text)}", file=sys.stderr, flush=True)


def warn(text: str) -> None:
    """Print a warning on stderr."""
    print(f"{CLEAR * ProgressLine.shown}warning: {harmless(text)}", file=sys.stderr)
