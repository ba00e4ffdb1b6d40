"""Training runs of a study, each in a process of its own: what happens to one cannot end the others."""

from __future__ import annotations

import ctypes
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from tempfile import TemporaryFile
from types import FrameType

from deepwire.checkpoint.run_directory import LOCK, RunDirectory
from deepwire.config.section import written
from deepwire.errors import UsageError
from deepwire.lab.study.plan import StudyRun
from deepwire.runfile import CHANGEABLE, completed
from deepwire.training.spec import changed_settings, read_run_file

NextRun = Callable[[], StudyRun | None]
_SIGNALS = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
_STOPPED = {128 + number: number for number in _SIGNALS}
_WRONG_COMMAND = 2
# Of the settings that `deepwire train` lets change in the middle of a run: those that make it another model.
_DECISIVE = tuple(
    f"training.{name}" for name in ("max_updates", "stop_after", "precision", "validation", "early_stopping")
)
_LENGTH = "training.max_updates"
_SHOWN = 300
_POLL_SECONDS = 0.05
_SAVING_SECONDS = 60.0
_PARENT_DEATH_SIGNAL = 1  # PR_SET_PDEATHSIG of prctl(2)
_ERROR = "error: "


@dataclass(frozen=True)
class Failure:
    """A run that could not be trained or measured: exit code of ``deepwire train``, and its last words."""

    exit_code: int
    message: str


class Stopped(Exception):  # noqa: N818 - a wish, not an error
    """A signal asked the whole command to stop; the run has saved itself and can go on."""

    def __init__(self, number: signal.Signals) -> None:
        super().__init__(number.name)
        self.number = number


class StopRequest:
    """SIGINT, SIGTERM and SIGHUP while a plan is carried out: `Stopped`, wherever this process is."""

    def __init__(self) -> None:
        self.asked: signal.Signals | None = None
        self.times = 0
        self._shielded = False

    def receive(self, number: int, _frame: FrameType | None) -> None:
        """Handle a signal."""
        self.asked = signal.Signals(number)
        self.times += 1
        if not self._shielded:
            raise Stopped(self.asked)

    @contextmanager
    def shielded(self) -> Iterator[None]:
        """In here nothing is raised, but a signal is noted."""
        before, self._shielded = self._shielded, True
        try:
            yield
        finally:
            self._shielded = before


@contextmanager
def stoppable() -> Iterator[StopRequest]:
    """While entered, SIGINT, SIGTERM and SIGHUP raise `Stopped`; one that is ignored stays so (`nohup`)."""
    stop = StopRequest()
    heard = [number for number in _SIGNALS if signal.getsignal(number) is not signal.SIG_IGN]
    before = {number: signal.signal(number, stop.receive) for number in heard}
    try:
        yield stop
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


class _Training:
    def __init__(self, run: StudyRun) -> None:
        self.run = run
        self.errors = TemporaryFile()  # noqa: SIM115 - closed when the process has ended
        # A session of its own: Ctrl-C reaches it through this process alone, once.
        self.process = subprocess.Popen(
            [sys.executable, "-m", "deepwire", "train", run.base, *run.overrides, "--quiet"],
            stdout=subprocess.DEVNULL,
            stderr=self.errors,
            start_new_session=True,
            preexec_fn=_stops_with(os.getpid()),
        )

    def outcome(self) -> Failure | None:
        code = self.process.returncode
        self.errors.seek(0)
        lines = [line for line in self.errors.read().decode(errors="replace").splitlines() if line.strip()]
        self.errors.close()
        begin = max((place for place, line in enumerate(lines) if line.startswith(_ERROR)), default=None)
        # The error and its hint, or the end of whatever else it said.
        words = " ".join(lines)[-_SHOWN:] if begin is None else "; ".join(lines[begin:]).removeprefix(_ERROR)
        if code == 0:
            return None
        if code in _STOPPED:
            raise Stopped(_STOPPED[code])
        if code == _WRONG_COMMAND:
            raise UsageError(
                f"{self.run.name}: {words or 'the run cannot be trained'}", f"see {self.run.folder}"
            )
        return Failure(code, words or f"ended with exit code {code}")


def _stops_with(parent: int) -> Callable[[], None] | None:
    """A function for a child to call before it begins: it is asked to stop when its parent is killed.

    Only Linux can do this; elsewhere a training whose parent was killed goes on to its end.
    """
    if sys.platform != "linux":
        return None
    prctl = ctypes.CDLL(None).prctl

    def stop_with_parent() -> None:
        prctl(_PARENT_DEATH_SIGNAL, int(signal.SIGTERM))
        if os.getppid() != parent:  # it was killed before
            os.kill(os.getpid(), signal.SIGTERM)

    return stop_with_parent


def train_runs(
    next_run: NextRun, at_once: int, stop: StopRequest
) -> Generator[tuple[StudyRun, Failure | None], None, None]:
    """Train runs, or go on with them, or find that they are done; each is given back when it has ended.

    The next run is asked for when there is room for it; where there was none for the moment, again when a run
    has ended. There is no room while the caller is busy with one that has ended: nothing else runs here then,
    if it is one at a time. Closing it, or an error, stops all processes; they save themselves and can go on.

    Args:
        next_run: Gives what to train next, or None where nothing can begin before a run has ended.
        at_once: How many at a time.
        stop: Of `stoppable`.

    Raises:
        UsageError: Another process trains a run, or it was begun with other settings.
        Stopped: This process or a training was asked to stop.
    """
    active: list[_Training] = []
    try:
        while True:
            while len(active) < at_once and (run := next_run()) is not None:
                _wait_until_free(run)
                with stop.shielded():
                    active.append(_Training(run))
                if stop.asked is not None:
                    raise Stopped(stop.asked)
            if not active:
                return
            while not (ended := [each for each in active if each.process.poll() is not None]):
                time.sleep(_POLL_SECONDS)
            active.remove(ended[0])
            yield ended[0].run, ended[0].outcome()
    finally:
        _end(active, stop)


def _wait_until_free(run: StudyRun) -> None:
    """Wait for a training of the run whose parent was killed: it saves itself before it stops."""
    deadline = time.monotonic() + _SAVING_SECONDS
    while (run.folder / LOCK).exists():
        try:
            with RunDirectory(run.folder).locked():
                return
        except UsageError:
            if time.monotonic() > deadline:
                raise
            time.sleep(_POLL_SECONDS)


def _end(active: Sequence[_Training], stop: StopRequest) -> None:
    """Stop all, and wait until they have saved themselves; each further signal is passed on to them."""
    with stop.shielded():
        told = -1
        while alive := [training for training in active if training.process.poll() is None]:
            if told < stop.times:
                told = stop.times
                number = signal.SIGINT if stop.asked is signal.SIGINT else signal.SIGTERM
                for training in alive:
                    training.process.send_signal(number)
            time.sleep(_POLL_SECONDS)
    for training in active:
        training.errors.close()


def require_own_folder(run: StudyRun) -> None:
    """Refuse a run that was begun with other settings, also in what may change in the middle of a run.

    Raises:
        UsageError: It was begun, and perhaps ended, with other settings.
        ModelError: What it has stored is damaged.
    """
    directory = RunDirectory(run.folder)
    if not directory.resolved_config.exists():
        return
    stored, planned = completed(read_run_file(directory.resolved_config)), completed(run.loaded.resolved)
    for name, (before, now) in changed_settings(stored, planned).items():
        if name == _LENGTH and run.updates is not None:
            continue  # it goes on from one budget to the next
        if name.startswith(_DECISIVE) or not name.startswith(tuple(CHANGEABLE)):
            raise UsageError(
                f"{run.folder}: was trained with {name}={written(before)}, and the plan has {written(now)}",
                "take another --folder, move the run away, or undo the change",
            )
