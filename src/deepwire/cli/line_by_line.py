"""What `translate` and `score` share: lines in, as many answers out, progress and warnings on stderr."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Generic, Self, TypeVar

from deepwire.cli.progress_line import ProgressLine
from deepwire.config.counts import counted

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
    from deepwire.errors import DeepwireError
    from deepwire.io.output import open_output

    with _Progress(quiet) as progress, open_output(output) as out:
        for answer in answers:
            out.write(f"{form(answer)}\n")
            if flush:
                out.flush()
            progress.add()
        if progress.count != lines.count:
            raise DeepwireError(f"{lines.count} lines were read, but {progress.count} answers written")
    progress.summarise()


def warn(text: str) -> None:
    """Print a warning on stderr."""
    print(f"warning: {text}", file=sys.stderr)


def use_threads(count: int | None) -> None:
    """Let torch use this many CPU threads; None leaves its own choice."""
    if count is not None:
        import torch

        torch.set_num_threads(count)


def given(**options: object) -> dict[str, object]:
    """The options that have a value."""
    return {name: value for name, value in options.items() if value is not None}


def sampling_settings(
    sample: bool,
    top_k: int | None,
    top_p: float | None,
    temperature: float | None,
    seed: int | None,
    beam: int | None,
) -> dict[str, object] | None:
    """The settings of random translations, as far as they are given; None where none are wanted.

    Raises:
        UsageError: There are some, but not ``--sample``; or a beam beside it.
    """
    from deepwire.errors import UsageError

    settings = given(top_k=top_k, top_p=top_p, temperature=temperature, seed=seed)
    if settings and not sample:
        name = next(iter(settings)).replace("_", "-")
        raise UsageError(f"--{name} is for random translations", "add --sample")
    if sample and beam is not None:
        raise UsageError("--beam is for searching, and --sample draws translations", "leave out one of them")
    return settings if sample else None


class _Progress:
    """Counts lines: one changing line where stderr is a terminal, a summary at the end."""

    def __init__(self, quiet: bool) -> None:
        self.count, self._quiet, self._begun = 0, quiet, time.monotonic()
        live = not quiet and sys.stderr.isatty() and not sys.stdout.isatty()
        self._line = ProgressLine(every=0.5, live=live)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._line.end()

    def add(self) -> None:
        self.count += 1
        self._line.show(self._text)

    def summarise(self) -> None:
        self._line.end()
        if not self._quiet:
            print(self._text(), file=sys.stderr)

    def _text(self) -> str:
        seconds = time.monotonic() - self._begun
        speed = self.count / max(seconds, 1e-9)
        return f"{counted(self.count, 'line')} in {seconds:.1f} s ({speed:.1f} lines/s)"
