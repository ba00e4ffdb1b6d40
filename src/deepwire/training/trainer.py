"""The parts of a run, and what happens between two updates: logging, validation, checkpoints, stopping."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from deepwire.config.counts import number_argument, shown
from deepwire.data.batches.batching import UpdateStream
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import DivergedError, ResourceError, UsageError
from deepwire.model.perturbation import Perturbation
from deepwire.model.recurrent_depth import RecurrentStack
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.cross_entropy import SmoothingForm
from deepwire.training.device import PrecisionPolicy, is_out_of_memory, memory_in_use
from deepwire.training.device_batches import DeviceUpdate, feed
from deepwire.training.disturbed_input import perturbation_of
from deepwire.training.ema import MovingAverage
from deepwire.training.guided_alignment import GuidedAlignment
from deepwire.training.layer_drop import LayerDrop
from deepwire.training.logging.meter import Meter, RemainingTime, ThreadContention
from deepwire.training.logging.progress import TrainingStatus
from deepwire.training.optimizers.optimizer import Optimizer, StepResult
from deepwire.training.parallel_strategy import LossFunction, ParallelStrategy
from deepwire.training.recorder import Recorder
from deepwire.training.rounds import RoundsDraw
from deepwire.training.run.spec import TrainingSpec
from deepwire.training.run.state import TrainingState
from deepwire.training.run.stopping import Signals, StopReason, limit_reached, progress
from deepwire.training.schedule import Schedule
from deepwire.training.update_seeds import update_seed
from deepwire.training.validation import DIVERGED_HINT, DirectionsValidator, Validation, Validator

BAD_IN_A_ROW = 10


def _ignore(_validation: Validation) -> None:
    """Nobody wants to hear of it."""


@contextmanager
def _memory_errors(update: int) -> Iterator[None]:
    """Say that it is the validation that needs too much, whose settings may change in the middle of a run."""
    try:
        yield
    except (RuntimeError, MemoryError) as error:
        if not is_out_of_memory(error):
            raise
        raise ResourceError(
            f"out of memory in the validation after update {update}",
            "lower training.validation.max_tokens, or beam where it translates: the same command goes on",
        ) from error


@dataclass
class Trainer:
    """A run in motion. In every process of it the same happens, but only the main one leaves a trace.

    Attributes:
        spec: What is trained, on what, and how.
        processes: Those that train together.
        device: Where.
        precision_policy: In which number formats.
        model: The model.
        strategy: Where its parameters are among the processes.
        loss: The loss of the model, compiled where asked for.
        optimizer: Of the parameters of ``model`` that are not frozen.
        average: Their moving average; None where none is kept.
        schedule: Learning rate of each update.
        stream: The training batches of this process.
        epoch_size: Sentence pairs that an epoch reads.
        validator: Scores the validation set; None without one.
        state: How far the run has come.
        recorder: Files and screen.
        signals: What the user asks for while it runs.
        validated: Called after each validation with what it found.
        stop_reason: Why training ends; None while it goes on.
        perturbation: How the input is disturbed; None where it is not.
        layer_drop: Leaves layers out of updates; None where none is.
        guide: Lets a head learn alignments; None where none does.
        rounds: Draws how often an encoder with recurrent depth runs its middle; None without one.
    """

    spec: TrainingSpec
    processes: ProcessGroup
    device: torch.device
    precision_policy: PrecisionPolicy
    model: TranslationModel
    strategy: ParallelStrategy
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
    validated: Callable[[Validation], None] = _ignore
    stop_reason: StopReason | None = None
    perturbation: Perturbation | None = field(init=False)
    layer_drop: LayerDrop | None = field(init=False)
    guide: GuidedAlignment | None = field(init=False)
    rounds: RoundsDraw | None = field(init=False)
    _meter: Meter = field(init=False)
    _unread: list[DeviceUpdate] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._memory = 0
        dropping = self.spec.config.layer_drop
        self.layer_drop = LayerDrop(dropping, self.model, self.spec.seed) if dropping is not None else None
        guided = self.spec.config.guided_alignment
        self.guide = GuidedAlignment(guided, self.model) if guided is not None else None
        encoder = self.model.stacks().get("encoder")
        self.rounds = RoundsDraw(encoder, self.spec.seed) if isinstance(encoder, RecurrentStack) else None
        self.perturbation = perturbation_of(self.spec.config, self.spec.prepared.vocabularies)
        self._current_rate = self.rate_of(max(1, self.state.update))
        divergence = self.spec.config.divergence is not None
        self._meter = Meter(self.device, divergence=divergence, alignment=self.guide is not None)
        if self.state.interval:
            self._meter.load_state(self.state.interval)
        self._saved_at = self.state.update
        self._last_good = self.state.update - self.state.bad_in_a_row
        self._started = time.perf_counter()
        self._seconds_before = self.state.seconds
        self._remaining_time = RemainingTime()
        self._contention = ThreadContention(torch.get_num_threads() if self.device.type == "cpu" else 1)

    @property
    def smoothing(self) -> tuple[float, SmoothingForm]:
        """Label smoothing: the probability mass, and who receives it."""
        return self.spec.config.label_smoothing, self.spec.config.label_smoothing_form

    def updates(self) -> Generator[DeviceUpdate]:
        """The updates from here on, on the device."""
        return feed(self.stream, self.state.position, self.device)

    def seed_of(self, update: int) -> int:
        """Seed of the random numbers (dropout) of one update: a function of the run's seed, its number and
        the process."""
        process = f"process {self.processes.rank}" if self.processes.rank else ""
        return update_seed(self.spec.seed, update, process)

    @property
    def learning_rate(self) -> float:
        """Of the next update: that of the schedule, or what was set instead."""
        return self.rate_of(self.state.update + 1)

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        """Set the rate of all updates from the next one on, until it is set again or follows the schedule.

        It is part of the training state: a run that is continued, also by the command, goes on with it.

        Raises:
            UsageError: It is negative or not finite.
        """
        number = number_argument(rate)
        if not (math.isfinite(number) and number >= 0):
            raise UsageError(f"a learning rate must be a number of 0 or more, not {shown(rate)}")
        if self.state.learning_rate is None:
            self.recorder.say(f"u {self.state.update} the program sets the learning rate from here on")
        self.state.learning_rate = number

    def follow_schedule(self) -> None:
        """Take the learning rate of the schedule again."""
        self.state.learning_rate = None

    def rate_of(self, update: int) -> float:
        """The learning rate of an update from here on."""
        return self.schedule(update) if self.state.learning_rate is None else self.state.learning_rate

    def zero(self) -> Tensor:
        """A sum to start from, on the device."""
        return torch.zeros((), dtype=torch.float32, device=self.device)

    def step(self, update: DeviceUpdate, loss: Tensor) -> StepResult:
        """Take the step of an update whose gradient is set; ``loss`` is only looked at."""
        self._current_rate = self.rate_of(update.number)
        return self.optimizer.step(self._current_rate, loss)

    def count(self, update: DeviceUpdate, sums: Sequence[Tensor], step: StepResult) -> None:
        """Take note of an update that was made: what `make_gradient` gave, and the outcome of its step."""
        self._meter.add(sums, update.target_tokens, step)
        if self.average is not None:
            self.average.update(update.number)
        self._unread.append(update)
        state = self.state
        state.update, state.position = update.number, update.after
        state.pass_epoch(update.epoch, len(update.lines), self.epoch_size(update.epoch))
        state.target_tokens += update.target_tokens
        state.steps = self.optimizer.steps
        state.scores = {}
        self._remaining_time.passed(progress(self.spec.config, state))
        self.recorder.depth_weights(update.number, self.model)

    def after_update(self) -> None:
        """Log, validate and save what is due after the update just made; see whether the run ends here.

        Called once before the first update too: a continued run may have a validation to make up for.

        Raises:
            DivergedError: If too many updates in a row were not finite.
            ResourceError: If the disk is full.
        """
        config, state = self.spec.config, self.state
        self.signals.settle(self.processes)
        stop_reason = self._limit()
        fresh = bool(self._unread)
        if fresh and (self.device.type == "cpu" or stop_reason or state.update % config.log_every == 0):
            self._check_finite(last=stop_reason is not None)
        if fresh and (stop_reason or state.update == 1 or state.update % config.log_every == 0):
            memory = memory_in_use(self.device, divided=self.processes.count > 1)
            self._memory = int(self.processes.all_reduce_numbers([memory])[0])
            self.recorder.train(state, self._meter.averages(), self._status())
            self._meter.reset()
            if note := self._contention.warning():
                self.recorder.say(f"note: {note}")
        self.recorder.move(self._status())
        if fresh and self.validator is not None and (stop_reason or self.validator.due(state.update)):
            state.validation_due = True
        validated = state.validation_due and self._validate(last=stop_reason is not None)
        # Not only after a validation: a run may have been ended between its last one and the word of that.
        stop_reason = stop_reason or self._patience_exhausted()
        self._save_if_due(validated, stop_reason)
        if self.signals.stop is not None:
            stop_reason = StopReason(self.signals.stop.name, finished=False, exit_code=self.signals.exit_code)
        elif stop_reason is None and self.signals.asked_to_stop:
            stop_reason = StopReason("the program", finished=False)
        self.stop_reason = stop_reason

    def _limit(self) -> StopReason | None:
        reason = limit_reached(self.spec.config, self.state)
        return StopReason(reason, finished=True) if reason else None

    def _patience_exhausted(self) -> StopReason | None:
        stopping = self.spec.config.early_stopping
        if stopping is None or not self.state.patience.exhausted(stopping):
            return None
        reason = f"{stopping.metric} has not improved for {stopping.patience} validations"
        return StopReason(reason, finished=True)

    def _check_finite(self, *, last: bool = False) -> None:
        """Learn which of the last updates were skipped because they were not finite; waits for the device.

        Where the last one of the run is among them, and no validation tells what the model is worth, the run
        has diverged.
        """
        state = self.state
        for update, finite in zip(self._unread, self._meter.take_finite(), strict=True):
            if finite:
                state.bad_in_a_row, self._last_good = 0, update.number
                continue
            state.bad_in_a_row += 1
            self.optimizer.undo_steps(1)
            self.recorder.skipped(update.number, update.lines.tolist())
        self._unread.clear()
        state.steps = self.optimizer.steps
        if state.bad_in_a_row >= (1 if last and self.validator is None else BAD_IN_A_ROW):
            raise DivergedError(
                f"loss or gradient not finite {state.bad_in_a_row} updates in a row "
                f"(last good update {self._last_good}); the lines are listed in {self.spec.run.bad_batch}",
                DIVERGED_HINT,
            )

    def _validate(self, *, last: bool) -> bool:
        """Score the validation set; False when a signal came in between, and then it is still due."""
        if self.validator is None:
            return False
        state, started = self.state, time.perf_counter()
        with self._with_averages(), self.strategy.whole() as model, _memory_errors(state.update):
            validation = self._scored(self.validator, model, last=last)
            if validation is not None and not last and self._ends_with(validation.scores):
                # Only the losses say that this is the end: once more, with all scores that were wanted.
                validation = self._scored(self.validator, model, last=True)
        self._meter.skip_time()
        self.signals.settle(self.processes)
        if validation is None:
            return False
        state.validation_due, state.scores = False, validation.scores
        stopping = self.spec.config.early_stopping
        if stopping is not None:
            state.patience.update(stopping, validation.scores)
        self.recorder.valid(state, validation, time.perf_counter() - started)
        self.validated(validation)
        self.signals.settle(self.processes)  # it may have asked for the end
        return True

    def _scored(
        self, validator: Validator | DirectionsValidator, model: TranslationModel, *, last: bool
    ) -> Validation | None:
        return validator.run(
            model, self.precision_policy, self.state.update, lambda: self.signals.stop_wanted, last=last
        )

    def _ends_with(self, scores: dict[str, float]) -> bool:
        """Whether the run ends with these scores, and others are still wanted of its last model."""
        config = self.spec.config
        if config.early_stopping is None or scores.keys() >= set(config.validation.text_metrics):
            return False
        patience = replace(self.state.patience)
        patience.update(config.early_stopping, scores)
        return patience.exhausted(config.early_stopping)

    def _save_if_due(self, validated: bool, stop_reason: StopReason | None) -> None:
        config, state = self.spec.config, self.state
        wanted, stops = self.signals.save, self.signals.stops
        self.signals.save = False
        changed = state.update > self._saved_at
        periodic = state.update % config.checkpoint_interval == 0
        regular = periodic or wanted or stop_reason is not None
        best = validated and self._is_among_best()
        if not (best or (changed and (regular or stops)) or (validated and not changed)):
            return
        if self._unread:
            self._check_finite()
        state.seconds, state.interval = self._seconds(), self._meter.state()
        state.interim = not (regular or best) and (changed or state.interim)
        with self._with_averages():
            kept = self.average.state() if self.average is not None else {}
            snapshot = self.strategy.snapshot(self.optimizer.state() | kept)
            self.recorder.save(self.model, snapshot, state, self._examined(), asked=wanted or stops)
        self._saved_at = state.update
        self._meter.skip_time()

    def _examined(self) -> dict[str, object]:
        """What is found out about the model that is saved; in the main process alone."""
        examine = self.spec.examine
        if examine is None:
            return {}
        with self.strategy.whole() as model:
            mode = model.training
            model.eval()
            try:
                return examine(model) if self.processes.main else {}
            finally:
                model.train(mode)

    def _with_averages(self) -> AbstractContextManager[None]:
        """The model as validation scores it and checkpoints hold it: with averages where that is wanted."""
        return nullcontext() if self.average is None else self.average.as_model()

    def _is_among_best(self) -> bool:
        """The main process knows, and the others must save when it does."""
        return bool(self.processes.broadcast_value(self.recorder.among_best(self.state)))

    def _seconds(self) -> float:
        return self._seconds_before + time.perf_counter() - self._started

    def _status(self) -> TrainingStatus:
        share = progress(self.spec.config, self.state)
        return TrainingStatus(
            update=self.state.update,
            epoch=self.state.epochs,
            share=share,
            seconds=self._seconds(),
            seconds_left=self._remaining_time.seconds_left(share),
            learning_rate=self._current_rate,
            memory=self._memory,
        )
