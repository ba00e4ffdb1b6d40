"""The parts of a run, and what happens between two updates: logging, validation, checkpoints, stopping."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable, Generator, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, field

import torch
from torch import Tensor

from deepwire.data.batching import UpdateStream
from deepwire.errors import DivergedError
from deepwire.model.translator import TranslationModel
from deepwire.ops.cross_entropy import SmoothingForm
from deepwire.training.device import memory_in_use
from deepwire.training.direction_scores import DirectionsValidator
from deepwire.training.ema import MovingAverage
from deepwire.training.ending import Ending
from deepwire.training.feed import DeviceUpdate, feed
from deepwire.training.job import Job
from deepwire.training.layout import Layout, LossFunction
from deepwire.training.limits import limit_reached, progress
from deepwire.training.meter import Meter
from deepwire.training.optimizer import Optimizer, StepResult
from deepwire.training.pace import Crowding, Pace
from deepwire.training.precision import Numerics
from deepwire.training.processes import Processes
from deepwire.training.progress import Standing
from deepwire.training.recorder import Recorder
from deepwire.training.schedule import Schedule
from deepwire.training.signals import Signals
from deepwire.training.state import TrainingState
from deepwire.training.validation import Validator

BAD_IN_A_ROW = 10


@dataclass
class Trainer:
    """A run in motion. In every process of it the same happens, but only the main one leaves a trace.

    Attributes:
        job: What is trained, on what, and how.
        processes: Those that train together.
        device: Where.
        numerics: In which number formats.
        model: The model.
        layout: Where its parameters are among the processes.
        loss: The loss of the model, compiled where asked for.
        optimizer: Adam over the parameters of ``model`` that are not frozen.
        average: Their moving average; None where none is kept.
        schedule: Learning rate of each update.
        stream: The training batches of this process.
        epoch_size: Sentence pairs that an epoch reads.
        validator: Scores the validation set; None without one.
        state: How far the run has come.
        recorder: Files and screen.
        signals: What the user asks for while it runs.
    """

    job: Job
    processes: Processes
    device: torch.device
    numerics: Numerics
    model: TranslationModel
    layout: Layout
    loss: LossFunction
    optimizer: Optimizer
    average: MovingAverage | None
    schedule: Schedule
    stream: UpdateStream
    epoch_size: Callable[[int], int]
    validator: Validator | DirectionsValidator | None
    state: TrainingState
    recorder: Recorder
    signals: Signals
    _meter: Meter = field(init=False)
    _unread: list[DeviceUpdate] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._memory = 0
        self._meter = Meter(self.device, divergence=self.job.config.r_drop > 0)
        if self.state.interval:
            self._meter.load_state(self.state.interval)
        self._saved_at = self._last_good = self.state.update
        self._started = time.perf_counter()
        self._seconds_before = self.state.seconds
        self._pace = Pace()
        self._crowding = Crowding(torch.get_num_threads() if self.device.type == "cpu" else 1)

    @property
    def smoothing(self) -> tuple[float, SmoothingForm]:
        """Label smoothing: the probability mass, and who receives it."""
        return self.job.config.label_smoothing, self.job.config.label_smoothing_form

    def updates(self) -> Generator[DeviceUpdate]:
        """The updates from here on, on the device."""
        return feed(self.stream, self.state.position, self.device)

    def seed_of(self, update: int) -> int:
        """Seed of the random numbers (dropout) of one update: a function of the run's seed, its number and
        the process."""
        process = f" process {self.processes.rank}" if self.processes.rank else ""
        text = f"{self.job.seed} update {update}{process}".encode()
        return int.from_bytes(hashlib.blake2b(text, digest_size=7).digest(), "little")

    def zero(self) -> Tensor:
        """A sum to start from, on the device."""
        return torch.zeros((), dtype=torch.float32, device=self.device)

    def count(self, update: DeviceUpdate, sums: Sequence[Tensor], step: StepResult) -> None:
        """Take note of an update that was made: what `make_gradient` gave, and the outcome of its step."""
        self._meter.add(sums, update.target_tokens, step)
        if self.average is not None:
            self.average.follow(update.number)
        self._unread.append(update)
        state = self.state
        state.update, state.position = update.number, update.after
        state.pass_epoch(update.epoch, len(update.lines), self.epoch_size(update.epoch))
        state.target_tokens += update.target_tokens
        state.steps = self.optimizer.steps
        state.scores = {}
        self._pace.passed(progress(self.job.config, state))
        self.recorder.depth_weights(update.number, self.model)

    def between_updates(self) -> Ending | None:
        """Log, validate and save what is due after the update just made; say whether the run ends here.

        Called once before the first update too: a continued run may have a validation to make up for.

        Raises:
            DivergedError: If too many updates in a row were not finite.
            ResourceError: If the disk is full.
        """
        config, state = self.job.config, self.state
        self.signals.settle(self.processes)
        ending = self._limit()
        fresh = bool(self._unread)
        if fresh and (self.device.type == "cpu" or ending or state.update % config.log_every == 0):
            self._look_at_verdicts()
        if fresh and (ending or state.update == 1 or state.update % config.log_every == 0):
            memory = memory_in_use(self.device, divided=self.processes.count > 1)
            self._memory = int(self.processes.total([memory])[0])
            self.recorder.train(state, self._meter.averages(), self._standing())
            self._meter.reset()
            if note := self._crowding.noticed():
                self.recorder.say(f"note: {note}")
        self.recorder.move(self._standing())
        if fresh and self.validator is not None and (ending or self.validator.due(state.update)):
            state.validation_due = True
        validated = state.validation_due and self._validate()
        if validated and ending is None:
            ending = self._patience_exhausted()
        self._save_if_due(validated, ending)
        if self.signals.stop is not None:
            return Ending(self.signals.stop.name, finished=False, exit_code=self.signals.exit_code)
        return ending

    def _limit(self) -> Ending | None:
        reason = limit_reached(self.job.config, self.state)
        return Ending(reason, finished=True) if reason else None

    def _patience_exhausted(self) -> Ending | None:
        stopping = self.job.config.early_stopping
        if stopping is None or not self.state.patience.exhausted(stopping):
            return None
        reason = f"{stopping.metric} has not improved for {stopping.patience} validations"
        return Ending(reason, finished=True)

    def _look_at_verdicts(self) -> None:
        """Learn which of the last updates were skipped because they were not finite; waits for the device."""
        state = self.state
        for update, finite in zip(self._unread, self._meter.take_verdicts(), strict=True):
            if finite:
                state.bad_in_a_row, self._last_good = 0, update.number
                continue
            state.bad_in_a_row += 1
            self.optimizer.forget_steps(1)
            self.recorder.skipped(update.number, update.lines.tolist())
        self._unread.clear()
        state.steps = self.optimizer.steps
        if state.bad_in_a_row >= BAD_IN_A_ROW:
            raise DivergedError(
                f"loss or gradient not finite {state.bad_in_a_row} updates in a row "
                f"(last good update {self._last_good}); the lines are listed in {self.job.run.bad_batch}",
                "try a lower training.schedule.peak or training.clip_norm with --fresh, "
                "or training.precision=fp32",
            )

    def _validate(self) -> bool:
        """Score the validation set; False when a signal came in between, and then it is still due."""
        if self.validator is None:
            return False
        state, started = self.state, time.perf_counter()
        with self._as_shown(), self.layout.whole() as model:
            found = self.validator.run(model, self.numerics, state.update, lambda: self.signals.stop_wanted)
        self._meter.skip_time()
        self.signals.settle(self.processes)
        if found is None:
            return False
        state.validation_due, state.scores = False, found.scores
        stopping = self.job.config.early_stopping
        if stopping is not None:
            state.patience.see(stopping, found.scores)
        self.recorder.valid(state, found, time.perf_counter() - started)
        return True

    def _save_if_due(self, validated: bool, ending: Ending | None) -> None:
        config, state = self.job.config, self.state
        asked = self.signals.save or self.signals.stop is not None
        self.signals.save = False
        changed = state.update > self._saved_at
        periodic = state.update % (config.checkpoint.every or config.validation.every) == 0
        due = changed and (periodic or asked or ending is not None)
        if not (due or (validated and (not changed or self._is_among_best()))):
            return
        if self._unread:
            self._look_at_verdicts()
        state.seconds, state.interval = self._seconds(), self._meter.state()
        with self._as_shown():
            kept = self.average.state() if self.average is not None else {}
            snapshot = self.layout.snapshot(self.optimizer.state() | kept)
            self.recorder.save(self.model, snapshot, state, asked=asked)
        self._saved_at = state.update
        self._meter.skip_time()

    def _as_shown(self) -> AbstractContextManager[None]:
        """The model as validation scores it and checkpoints hold it: with averages where that is wanted."""
        return nullcontext() if self.average is None else self.average.as_model()

    def _is_among_best(self) -> bool:
        """The main process knows, and the others must save when it does."""
        return bool(self.processes.from_main(self.recorder.among_best(self.state)))

    def _seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._started

    def _standing(self) -> Standing:
        share = progress(self.job.config, self.state)
        return Standing(
            update=self.state.update,
            epoch=self.state.epochs,
            share=share,
            seconds=self._seconds(),
            seconds_left=self._pace.seconds_left(share),
            learning_rate=self.schedule(max(1, self.state.update)),
            memory=self._memory,
        )
