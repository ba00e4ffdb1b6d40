"""What a person sees of a run: a bar on a terminal or in a notebook, plain lines in a pipe and in log.txt."""

from __future__ import annotations

import math
import sys
import time
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import IO, TextIO, cast

from rich.console import Console
from rich.progress import BarColumn, Progress, TaskProgressColumn, TextColumn, TimeElapsedColumn

from deepwire.errors import DeepwireError
from deepwire.io.atomic import disk_errors
from deepwire.io.regular_files import open_for_appending
from deepwire.training.logging.meter import Averages


@dataclass(frozen=True)
class TrainingStatus:
    """Where a run stands.

    Attributes:
        update: Updates made.
        epoch: Epochs made, with their fraction.
        share: Share of the run that is done, 0 to 1.
        seconds: Time spent on the run, interruptions not counted.
        seconds_left: Expected time to the end; None while unknown.
        learning_rate: Of the last update.
        memory: Bytes in use at the last line of the log, of all processes together.
    """

    update: int
    epoch: float
    share: float
    seconds: float
    seconds_left: float | None
    learning_rate: float
    memory: int


class _Screen:
    """A stream for people, who may go: with the terminal or the program that reads it, it falls silent.

    What they would have seen is in ``log.txt``, and a run is worth more than a line on the screen.

    Attributes:
        gone: Why nothing is shown any more; empty while it is.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self.gone = ""

    def write(self, text: str) -> int:
        """Show a text."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """Show it now."""
        self._try(self._stream.flush)

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def _try(self, show: Callable[[], object]) -> None:
        if self.gone:
            return
        try:
            show()
        except OSError as error:
            self.gone = error.strerror or "closed"


class Display:
    """Shows lines and the bar on stderr or in a notebook, and appends the lines with the time to ``log.txt``.

    When the terminal is gone, ``log.txt`` says so and goes on.

    Args:
        log: ``log.txt``; made when missing.
        quiet: Write to the file only.
    """

    def __init__(self, log: Path, quiet: bool = False) -> None:
        self._path = log
        with disk_errors(log):
            self._file = open_for_appending(log)
        self._screen, self._silent = _Screen(sys.stderr), False
        self._console = Console(
            file=cast("IO[str]", self._screen), quiet=quiet, soft_wrap=True, highlight=False
        )
        self._bar = Progress(
            TextColumn("{task.description}"),
            BarColumn(bar_width=None),
            TaskProgressColumn(),
            TimeElapsedColumn(),
            TextColumn("left {task.fields[left]}"),
            console=self._console,
            disable=quiet or not _can_show_a_bar(self._console),
        )
        self._task = self._bar.add_task("training", total=1.0, left="?")

    def __enter__(self) -> Display:
        self._bar.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._bar.refresh()  # in a notebook, stopping does not show where it stopped
        self._bar.stop()
        # On a full disk this fails like the write before it, and says nothing new.
        with suppress(OSError), self._file:
            if isinstance(error, DeepwireError):
                self._write(f"error: {error.message}")
            elif error is not None:
                self._write("".join(traceback.format_exception(error)))

    def say(self, text: str) -> None:
        """Show one line."""
        self._console.print(text, markup=False)
        with disk_errors(self._path):
            if self._screen.gone and not self._silent:
                self._silent = True
                self._write(f"nothing can be shown any more ({self._screen.gone}); this file goes on")
            self._write(text)

    def _write(self, text: str) -> None:
        self._file.write(f"{time.strftime('%Y-%m-%d %H:%M:%S')} {text}\n")
        self._file.flush()

    def move(self, status: TrainingStatus) -> None:
        """Advance the bar; nothing is printed in a pipe."""
        self._bar.update(
            self._task,
            completed=status.share,
            description=f"u {status.update} ep {status.epoch:.2f}",
            left=human_time(status.seconds_left),
        )

    def train_line(self, status: TrainingStatus, averages: Averages) -> None:
        """Show the averages of an interval of updates."""
        distance = "" if averages.divergence is None else f"kl {averages.divergence:.3f} "
        distance += "" if averages.alignment is None else f"al {averages.alignment:.3f} "
        self.say(
            f"u {status.update} ep {status.epoch:.2f} loss {averages.loss:.3f} nll {averages.nll:.3f} "
            f"{distance}ppl {short(averages.perplexity)} lr {status.learning_rate:.1e}"
            f" gn {averages.gradient_norm:.2f} tok/s {short(averages.tokens_per_second)}"
            f" eta {human_time(status.seconds_left)} mem {short(status.memory)}"
        )

    def valid_line(self, update: int, scores: dict[str, float], note: str, direction: str = "") -> None:
        """Show the scores of a validation, or those of one direction in it."""
        parts = [f"loss {scores['loss']:.3f} nll {scores['nll']:.3f} ppl {short(scores['perplexity'])}"]
        known = ("loss", "nll", "perplexity")
        parts += [f"{name} {score:.2f}" for name, score in scores.items() if name not in known]
        where = f"valid {direction}" if direction else "valid"
        self.say(f"u {update} {where} {' '.join(parts)}{f' ({note})' if note else ''}")


def _can_show_a_bar(console: Console) -> bool:
    """A notebook needs a package for what changes; without it, it gets the lines alone."""
    return console.is_terminal or (console.is_jupyter and find_spec("ipywidgets") is not None)


def short(number: float) -> str:
    """A number in at most about four characters: ``9.2``, ``18.2k``, ``3.1G``, ``inf``."""
    if not math.isfinite(number):
        return str(number)
    for letter in ("", "k", "M", "G"):
        if abs(number) < 999.5:
            return f"{number:.0f}{letter}" if abs(number) >= 99.95 else f"{number:.1f}{letter}"
        number /= 1000
    return f"{number:.3g}T"


def human_time(seconds: float | None) -> str:
    """A time as people say it: ``45s``, ``12m``, ``1h12``, ``3d04h``; ``?`` where it is unknown."""
    if seconds is None:
        return "?"
    minutes = round(seconds / 60)
    if seconds < 99.5:
        return f"{seconds:.0f}s"
    if minutes < 60:
        return f"{minutes}m"
    hours, rest = divmod(minutes, 60)
    return f"{hours}h{rest:02d}" if hours < 48 else f"{hours // 24}d{hours % 24:02d}h"
