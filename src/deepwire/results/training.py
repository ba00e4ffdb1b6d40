"""One training run of a plan, in a process of its own: what happens to it cannot end the others."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from types import FrameType

from deepwire.errors import UsageError
from deepwire.results.runs import RunPlan

_STOPPED = {128 + signal.SIGINT: signal.SIGINT, 128 + signal.SIGTERM: signal.SIGTERM}
_WRONG_COMMAND = 2
_SHOWN = 300
_ERROR = "error: "


@dataclass(frozen=True)
class Failure:
    """A run that could not be trained or measured.

    Attributes:
        exit_code: Of ``deepwire train``, see ``deepwire --help``.
        message: Its last words.
    """

    exit_code: int
    message: str


class Stopped(Exception):  # noqa: N818 - a wish, not an error
    """A signal asked the whole command to stop; the run has saved itself and can go on."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number


def train_run(run: RunPlan) -> Failure | None:
    """Train a run, or go on with it, or find that it is done; None when it is done.

    Raises:
        UsageError: Another process trains it, or it was begun with other settings.
        Stopped: This process or the training was asked to stop.
    """
    command = [sys.executable, "-m", "deepwire", "train", run.base, *run.overrides, "--quiet"]
    with _passing_on() as current:
        # A session of its own: Ctrl-C reaches it through this process alone, once.
        process = subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True, start_new_session=True
        )
        current.process = process
        if current.asked is not None:
            process.send_signal(current.asked)
        _, errors = process.communicate()
    code = process.returncode
    if code == 0 and current.asked is None:
        return None
    if current.asked is not None or code in _STOPPED:
        raise Stopped(current.asked or _STOPPED[code])
    words = _last_words(errors)
    if code == _WRONG_COMMAND:
        raise UsageError(f"{run.name}: {words or 'the run cannot be trained'}", f"see {run.folder}")
    return Failure(code, words or f"ended with exit code {code}")


def _last_words(errors: str) -> str:
    """What a process said about its end: its error and hint, or the end of whatever else it said."""
    lines = [line for line in errors.splitlines() if line.strip()]
    begin = max((place for place, line in enumerate(lines) if line.startswith(_ERROR)), default=None)
    return " ".join(lines)[-_SHOWN:] if begin is None else " ".join(lines[begin:]).removeprefix(_ERROR)


@dataclass
class _Current:
    """The training process, and the signal that is to stop it."""

    process: subprocess.Popen[str] | None = None
    asked: signal.Signals | None = None

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """Pass a signal on."""
        self.asked = signal.Signals(number)
        if self.process is not None and self.process.poll() is None:
            self.process.send_signal(number)


@contextmanager
def stoppable() -> Iterator[None]:
    """While entered, SIGINT and SIGTERM raise `Stopped`, wherever this process is."""

    def stop(number: int, _frame: FrameType | None) -> None:
        raise Stopped(signal.Signals(number))

    with _handled_by(stop):
        yield


@contextmanager
def _passing_on() -> Iterator[_Current]:
    """While entered, SIGINT and SIGTERM go to the training process, which saves and ends."""
    current = _Current()
    with _handled_by(current.receive):
        yield current


@contextmanager
def _handled_by(receive: Callable[[int, FrameType | None], None]) -> Iterator[None]:
    before = {number: signal.signal(number, receive) for number in _STOPPED.values()}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
