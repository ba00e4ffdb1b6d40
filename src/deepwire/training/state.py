"""How far a run has come, which is what ``state.json`` of a checkpoint says, and why it stops."""

from __future__ import annotations

import dataclasses
import json
import math
import signal
import threading
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import FrameType, TracebackType
from typing import Annotated

from pydantic import ConfigDict, Field, TypeAdapter

from deepwire.checkpoint.run_directory import better
from deepwire.config.validation_messages import first_fault
from deepwire.data.batches.batching import StreamPosition
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import ModelError
from deepwire.training.config import EarlyStoppingConfig, TrainingConfig

# More than any run can reach, and few enough to calculate with.
_Count = Annotated[int, Field(ge=0, le=10**15)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]


@dataclass
class Patience:
    """Counts the scores since a metric last improved.

    Attributes:
        best: The best score so far; None before the first.
        waited: Scores since then.
        metric: What was scored; empty where an earlier version did not record it.
    """

    __pydantic_config__ = ConfigDict(strict=True)

    best: float | None = None
    waited: _Count = 0
    metric: str = ""

    def update(self, config: EarlyStoppingConfig, scores: dict[str, float]) -> None:
        """Take note of one validation; one without the metric does not count."""
        score = scores.get(config.metric)
        if score is None:
            return
        if self.metric not in ("", config.metric):  # the user changed it: scores of another do not compare
            self.best, self.waited = None, 0
        self.metric = config.metric
        best = self.best
        if math.isfinite(score) and (
            best is None
            or (better(config.metric, score, best) and abs(score - best) >= config.min_improvement)
        ):
            self.best, self.waited = score, 0
        else:
            self.waited += 1

    def exhausted(self, config: EarlyStoppingConfig) -> bool:
        """Whether it is time to stop; not for the sake of scores of another metric."""
        return self.metric in ("", config.metric) and self.waited >= config.patience


@dataclass
class TrainingState:
    """Progress of a run after ``update`` updates.

    Attributes:
        update: Updates made, those that were skipped because they were not finite included.
        position: Where the stream of updates goes on.
        epochs: Epochs made, with their fraction.
        epoch: The present epoch, from 0.
        pairs: Sentence pairs read in it.
        target_tokens: Target tokens seen.
        steps: Steps of the optimizer: updates without the skipped ones.
        bad_in_a_row: Skipped updates since the last good one.
        pieces: How many pieces a micro-batch is cut in since memory ran out; 1 as long as it did not.
        seconds: Time spent on the run.
        patience: Early stopping.
        validation_due: Whether the validation of this update was interrupted and has to be made up.
        scores: Validation scores of this update; empty where there was no validation.
        interval: Sums of the interval since the last line of the log.
        learning_rate: What a program has set in place of the schedule; None: nothing.
        interim: Whether it is stored only because training was stopped.
    """

    __pydantic_config__ = ConfigDict(strict=True)

    position: StreamPosition
    update: _Count = 0
    epochs: _Finite = 0.0
    epoch: Annotated[int, Field(ge=0, le=10**9)] = 0
    pairs: _Count = 0
    target_tokens: _Count = 0
    steps: _Count = 0
    bad_in_a_row: _Count = 0
    pieces: _Count = 1
    seconds: _Finite = 0.0
    patience: Patience = field(default_factory=Patience)
    validation_due: bool = False
    scores: dict[str, float] = field(default_factory=dict)
    interval: list[float] = field(default_factory=list)
    learning_rate: float | None = None
    interim: bool = False

    def to_json(self) -> dict[str, object]:
        """Plain values for ``state.json``; floats come back to the last bit."""
        values = dataclasses.asdict(self)
        # Versions that do not know these can go on from here.
        if self.learning_rate is None:
            del values["learning_rate"]
        if not self.interim:
            del values["interim"]
        return values

    def pass_epoch(self, epoch: int, pairs: int, size: int) -> None:
        """Take note of ``pairs`` more sentence pairs, read in ``epoch`` (from 0) of ``size`` pairs."""
        if epoch != self.epoch:
            self.epoch, self.pairs = epoch, 0
        self.pairs += pairs
        self.epochs = epoch + self.pairs / size

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> TrainingState:
        """Read what ``to_json`` gave, in this version or an earlier one.

        Raises:
            ModelError: If it is something else.
        """
        try:
            state = _STATES.validate_json(json.dumps(value))
            if state.position.number != state.update:
                raise ValueError(f"update {state.update} is not where the text goes on")
        except (TypeError, ValueError) as error:
            raise ModelError(f"the stored training state is damaged: {first_fault(error)}") from error
        return state


_STATES = TypeAdapter(TrainingState)


@dataclass(frozen=True)
class StopReason:
    """Why the loop stopped.

    Attributes:
        reason: What ended it, such as ``training.max_updates=20000`` or ``SIGTERM``.
        finished: Whether the run is complete; an interrupted run is not.
        exit_code: For the shell: 0, or 128 + the number of the signal.
    """

    reason: str
    finished: bool
    exit_code: int = 0


def limit_reached(config: TrainingConfig, state: TrainingState) -> str | None:
    """Which limit the run has reached, as ``training.max_updates=20000``; None while it goes on."""
    if config.max_updates is not None and state.update >= config.max_updates:
        return f"training.max_updates={config.max_updates}"
    if config.stop_after is not None and _amount(config.stop_after.unit, state) >= config.stop_after.amount:
        return f"training.stop_after={config.stop_after}"
    return None


def progress(config: TrainingConfig, state: TrainingState) -> float:
    """Share of the run that is done, from 0 to 1, by the limit that will be reached first."""
    shares = [0.0]
    if config.max_updates is not None:
        shares.append(state.update / config.max_updates)
    if config.stop_after is not None:
        shares.append(_amount(config.stop_after.unit, state) / config.stop_after.amount)
    return min(1.0, max(shares))


def cut_short(config: TrainingConfig) -> str | None:
    """A warning for a run with a shorter warm-up than was asked for, or that ends before its end.

    How many updates there are in epochs or tokens is not known before the text is.
    """
    limits = [("training.max_updates", config.max_updates)]
    if config.stop_after is not None and config.stop_after.unit == "updates":
        limits.append(("training.stop_after", config.stop_after.amount))
    ends = [(updates, name) for name, updates in limits if updates is not None]
    if not ends:
        return None
    updates, name = min(ends)
    asked, warmup = config.schedule.warmup_in(None), config.schedule.warmup_in(config.max_updates)
    if updates < warmup:
        return (
            f"{name}={updates} ends the run within the warm-up (training.schedule.warmup={warmup}): the "
            "learning rate never reaches its peak, and little is learned; for a trial, add "
            f"training.schedule.warmup={updates // 10}"
        )
    if warmup < asked:
        return (
            f"training.max_updates={config.max_updates} is too short for training.schedule.warmup={asked}: "
            f"the warm-up of this run takes {warmup} updates"
        )
    return None


def _amount(unit: str, state: TrainingState) -> float:
    amounts = {"updates": state.update, "epochs": state.epochs, "tokens": state.target_tokens}
    return amounts[unit]


_ALWAYS = (signal.SIGTERM, signal.SIGINT)
# A closed terminal, and what batch systems send before they kill. They are like SIGTERM where they would end
# the process: `nohup` ignores the first, and a program around us may use the others for itself.
_WHERE_FATAL = (signal.SIGHUP, signal.SIGUSR2, signal.SIGALRM, signal.SIGXCPU)
_STOPPING = (*_ALWAYS, *_WHERE_FATAL)


class Signals:
    """While entered: SIGTERM and SIGINT ask to save and stop, SIGUSR1 to save; a second SIGINT stops at once.

    SIGHUP, SIGUSR2, SIGALRM and SIGXCPU are like SIGTERM unless they are ignored or handled already. A signal
    that reaches one process is a wish; by `settle` it becomes a decision of all.

    Args:
        listen: Whether to handle signals at all; where not, only `ask_to_stop` ends a run.

    Attributes:
        stop: The signal that ends the run; None while there was none.
        save: Whether a checkpoint was asked for.
        asked_to_stop: Whether the program has asked for the end of the run.
    """

    def __init__(self, *, listen: bool = True) -> None:
        self.listen = listen
        self.stop: signal.Signals | None = None
        self.save = self.asked_to_stop = self._asks_to_stop = False
        self._wanted: signal.Signals | None = None
        self._saves_wanted = self._saves_settled = 0
        self._before: dict[signal.Signals, object] = {}

    def __enter__(self) -> Signals:
        # Python allows handlers in the main thread only; elsewhere the program around us has its own.
        if self.listen and threading.current_thread() is threading.main_thread():
            fatal = [number for number in _WHERE_FATAL if signal.getsignal(number) is signal.SIG_DFL]
            for number in (*_ALWAYS, signal.SIGUSR1, *fatal):
                self._before[number] = signal.signal(number, self._receive)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for number, before in self._before.items():
            signal.signal(number, before)  # type: ignore[arg-type]  # it came from signal.signal
        self._before.clear()

    def _receive(self, number: int, _frame: FrameType | None) -> None:
        if number == signal.SIGUSR1:
            self._saves_wanted += 1
        elif number == signal.SIGINT and self._wanted is not None:
            raise KeyboardInterrupt
        else:
            self._wanted = signal.Signals(number)

    def ask_to_stop(self) -> None:
        """Ask, from the program, for a checkpoint and the end of the run."""
        self._asks_to_stop = True

    @property
    def stop_wanted(self) -> bool:
        """Whether this process has been asked to stop."""
        return self._wanted is not None or self._asks_to_stop

    @property
    def stops(self) -> bool:
        """Whether all processes are to save and stop."""
        return self.stop is not None or self.asked_to_stop

    def settle(self, processes: ProcessGroup) -> None:
        """Make what any process was asked for the decision of all."""
        saves = self._saves_wanted
        wishes = [self._wanted == number for number in _STOPPING]
        here = [*wishes, saves > self._saves_settled, self._asks_to_stop]
        *stops, save, asked = processes.all_reduce_numbers(here)
        self._saves_settled = saves
        self.save = self.save or save > 0
        self.asked_to_stop = self.asked_to_stop or asked > 0
        if self.stop is None:
            self.stop = next((number for number, count in zip(_STOPPING, stops, strict=True) if count), None)

    @property
    def exit_code(self) -> int:
        """The exit code after a signal: 128 + its number; 0 without one."""
        return 128 + self.stop if self.stop is not None else 0
