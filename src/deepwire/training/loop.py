"""Training, as the papers write it down: a loop over updates, the gradient of each, and the work between two.

The gradient of an update is a sum over its micro-batches and processes, divided by all its target tokens.
Each process goes through its share of the micro-batches, and the sums meet once an update, when all have
finished theirs. DistributedDataParallel adds up inside the backward pass instead, which hides the time of the
network behind that of the last micro-batch. But it needs the same number of passes in every process, where a
share here may have any, and a process that ran out of memory within a pass would leave the others waiting in
the middle of a sum. Here nothing is exchanged until all processes have said that they got through.
"""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace

import torch
from torch import Tensor

from deepwire.checkpoint.run_directory import among_best
from deepwire.config.counts import number_argument, shown
from deepwire.data.batches.batching import UpdateStream
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import DivergedError, ResourceError, UsageError
from deepwire.model.cross_attention_recorder import CrossAttentionRecorder
from deepwire.model.perturbation import Perturbation
from deepwire.model.recurrent_depth import RecurrentStack
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.process import seed_random_numbers
from deepwire.training.device import PrecisionPolicy, is_out_of_memory, memory_in_use
from deepwire.training.device_batches import DeviceBatch, DeviceUpdate, feed
from deepwire.training.ema import MovingAverage
from deepwire.training.guided_alignment import GuidedAlignment
from deepwire.training.layer_drop import LayerDrop, RoundsDraw, update_seed
from deepwire.training.log import RunLog
from deepwire.training.optimizers.optimizer import Optimizer, StepResult
from deepwire.training.parallel_strategy import LossFunction, ParallelStrategy
from deepwire.training.progress import Meter, RemainingTime, ThreadContention, TrainingStatus
from deepwire.training.run import TrainingState, save_checkpoint
from deepwire.training.schedule import Schedule
from deepwire.training.spec import TrainingSpec
from deepwire.training.stopping import Signals, StopReason, limit_reached, progress
from deepwire.training.validation import DIVERGED_HINT, DirectionsValidator, Validation, Validator

_MOST_SKIPPED = 10
"""Updates in a row that may be skipped because they are not finite."""


@dataclass(frozen=True)
class UpdateResult:
    """An update that was made. Its numbers are on the device: reading one waits for a GPU.

    Attributes:
        number: Which update it is, from 1.
        epoch: Which epoch it belongs to, from 0.
        learning_rate: What it was made with.
        target_tokens: Target tokens of the update, end symbols included.
        sums: Smoothed loss and nll summed over them, in nats, of two passes the divergence, of
            guided alignment its loss. Scalars.
        step: Norm of the gradient, and whether it was finite.
    """

    number: int
    epoch: int
    learning_rate: float
    target_tokens: int
    sums: Sequence[Tensor]
    step: StepResult

    @property
    def loss(self) -> float:
        """Smoothed loss per target token, nats."""
        return float(self.sums[0]) / self.target_tokens

    @property
    def nll(self) -> float:
        """Negative log-likelihood per target token, nats."""
        return float(self.sums[1]) / self.target_tokens

    @property
    def gradient_norm(self) -> float:
        """Norm of the gradient before it was clipped."""
        return float(self.step.norm)

    @property
    def finite(self) -> bool:
        """Whether loss and gradient were finite; if not, the update changed nothing."""
        return bool(self.step.finite)


def train(trainer: Trainer) -> Generator[UpdateResult]:
    """Minimise the smoothed cross-entropy of the reference translations, update by update.

    It goes on until ``trainer.stop_reason`` is set. For each update: the gradient of the loss per target
    token; its norm limited; one step of the optimizer at the scheduled rate. The random numbers of an update
    depend on the seed, its number and the process alone, so an interrupted run goes on as if nothing had
    happened.

    An update is handed out before it is logged, validated and saved: what the caller changes then, such as
    the learning rate, is in the checkpoint of this update.

    Raises:
        DivergedError: If ten updates in a row had a loss or gradient that is not finite.
        ResourceError: If memory does not suffice for a single sentence pair.
    """
    model = trainer.model.train()
    trainer.after_update()
    updates = feed(trainer.stream, trainer.state.position, trainer.device)
    try:
        while trainer.stop_reason is None:
            update = next(updates)
            sums = make_gradient(trainer, update)
            trainer.log.gradients(update.number, model)
            rate = trainer.learning_rate
            step = trainer.step(update.number, sums[0])
            trainer.count(update, sums, step)
            yield UpdateResult(update.number, update.epoch, rate, update.target_tokens, sums, step)
            trainer.after_update()
    finally:
        updates.close()
        model.eval()


def make_gradient(trainer: Trainer, update: DeviceUpdate) -> list[Tensor]:
    """Set the gradient of the loss per target token; returns sums over target tokens, in nats.

    They are those of smoothed loss and nll, with R-Drop or SimCut of the divergence of the two passes, and
    with guided alignment of its loss.

    If memory runs out in any process, all cut their micro-batches in half and make the update again.

    Raises:
        ResourceError: If memory does not suffice for a single sentence pair.
    """
    processes, parameters = trainer.processes, list(trainer.optimizer.parameters.values())
    if not trainer.spec.begins_with_a_model:
        trainer.model.begin_update(update.number)
    for draw in trainer.draws:
        draw.draw(update.number)
    while True:
        share = [piece for batch in update.batches for piece in batch.cut(trainer.state.pieces)]
        pieces = trainer.strategy.passes(share)
        sums = local_forward_backward(trainer, update, pieces)
        failed = sums is None
        too_large = failed and all(len(piece.source) == 1 for piece in pieces)
        # A process without a share has no gradients, but must know which parameters have one elsewhere.
        used = [parameter.grad is not None for parameter in parameters]
        failures, too_large_anywhere, *counts = processes.all_reduce_numbers([failed, too_large, *used])
        if sums is not None and not failures:
            break
        recover_from_oom(trainer, update.number, can_split=not too_large_anywhere)
    learning = [parameter for parameter, count in zip(parameters, counts, strict=True) if count]
    return trainer.strategy.all_reduce_tensors(learning, sums)


def local_forward_backward(
    trainer: Trainer, update: DeviceUpdate, pieces: Sequence[DeviceBatch]
) -> list[Tensor] | None:
    """Forward and backward passes over the share of this process; None if memory ran out."""
    rank, guide = trainer.processes.rank, trainer.guide
    process = f"process {rank}" if rank else ""
    seed_random_numbers(update_seed(trainer.spec.seed, update.number, process), trainer.device)
    trainer.optimizer.zero_grad()
    more = (trainer.spec.config.divergence is not None) + (guide is not None)
    totals = [trainer.zero() for _ in range(2 + more)]
    try:
        for batch in pieces:
            # The backward pass may compute layers once more: these must record then, too.
            with nullcontext() if guide is None else guide.recording() as recorder:
                loss, parts = _loss(trainer, batch, recorder)
                torch.autograd.backward(loss / update.target_tokens)
            for total, part in zip(totals, parts, strict=True):
                total += part
    except (RuntimeError, MemoryError) as error:
        if not (trainer.strategy.retries and is_out_of_memory(error)):
            raise
        return None
    return totals


def _loss(
    trainer: Trainer, batch: DeviceBatch, recorder: CrossAttentionRecorder | None
) -> tuple[Tensor, list[Tensor]]:
    """The loss to minimise, and the sums that are recorded, of one forward pass."""
    guide, config = trainer.guide, trainer.spec.config
    with trainer.precision_policy.autocast():
        sums = trainer.loss(
            batch.source,
            batch.target_input,
            batch.target_output,
            config.label_smoothing,
            config.label_smoothing_form,
            config.r_drop,
            languages=batch.languages,
            perturbation=trainer.perturbation,
        )
    parts = [sums.smoothed.detach(), sums.nll, *([] if sums.divergence is None else [sums.divergence])]
    if guide is None or recorder is None:
        return sums.smoothed, parts
    aligned = guide.loss(recorder, batch)
    if aligned is None:
        return sums.smoothed, [*parts, trainer.zero()]
    return sums.smoothed + guide.weight * aligned, [*parts, aligned.detach()]


def recover_from_oom(trainer: Trainer, update: int, *, can_split: bool) -> None:
    """Free what the failed attempt left, and halve the micro-batches from here on."""
    if not can_split:
        raise ResourceError(
            f"out of memory at update {update} with a single sentence pair",
            "make the model smaller, lower data.filters.max_length, or free memory; the same command goes on",
        )
    trainer.optimizer.zero_grad()
    gc.collect()
    if trainer.device.type == "cuda":
        torch.cuda.empty_cache()
    trainer.state.pieces *= 2
    trainer.log.say(f"u {update} out of memory: from here on micro-batches are cut in {trainer.state.pieces}")


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
        log: Files and screen.
        signals: What the user asks for while it runs.
        validated: Called after each validation with what it found.
        stop_reason: Why training ends; None while it goes on.
        perturbation: How the input is disturbed; None where it is not.
        guide: Lets a head learn alignments; None where none does.
        draws: What is drawn before each update: layers that it does without, rounds of recurrent depth.
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
    log: RunLog
    signals: Signals
    validated: Callable[[Validation], None] | None = None
    stop_reason: StopReason | None = None
    perturbation: Perturbation | None = field(init=False)
    guide: GuidedAlignment | None = field(init=False)
    draws: list[LayerDrop | RoundsDraw] = field(init=False, default_factory=list)
    _meter: Meter = field(init=False)
    _unread: list[DeviceUpdate] = field(init=False, default_factory=list)

    def __post_init__(self) -> None:
        self._memory = 0
        config, seed, encoder = self.spec.config, self.spec.seed, self.model.stacks().get("encoder")
        if config.layer_drop is not None:
            self.draws.append(LayerDrop(config.layer_drop, self.model, seed))
        if isinstance(encoder, RecurrentStack):
            self.draws.append(RoundsDraw(encoder, seed))
        guided = config.guided_alignment
        self.guide = GuidedAlignment(guided, self.model) if guided is not None else None
        self.perturbation = config.perturbation(self.spec.prepared.vocabularies)
        self._current_rate = self.rate_of(max(1, self.state.update))
        divergence = config.divergence is not None
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
    def learning_rate(self) -> float:
        """The rate of the next update: that of the schedule, or what was set instead."""
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
            self.log.say(f"u {self.state.update} the program sets the learning rate from here on")
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

    def step(self, update: int, loss: Tensor) -> StepResult:
        """Take the step of an update whose gradient is set; ``loss`` is only looked at."""
        self._current_rate = self.rate_of(update)
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
        self.log.depth_weights(update.number, self.model)

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
            self.log.train(state, self._meter.averages(), self._status())
            self._meter.reset()
            if note := self._contention.warning():
                self.log.say(f"note: {note}")
        self.log.move(self._status())
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
            self.log.skipped(update.number, update.lines.tolist())
        self._unread.clear()
        state.steps = self.optimizer.steps
        if state.bad_in_a_row >= (1 if last and self.validator is None else _MOST_SKIPPED):
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
        self.log.valid(state, validation, time.perf_counter() - started)
        if self.validated is not None:
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
            examined = self._examined()
            if self.processes.main:
                self.log.sync()
                path = save_checkpoint(self.spec, self.model, snapshot, state, examined)
                if wanted or stops:
                    self.log.say(f"u {state.update} saved {path}")
        self._saved_at = state.update
        self._meter.skip_time()

    def _examined(self) -> dict[str, object]:
        """Facts about the model that are stored with it; in the main process alone."""
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
        best = False
        if self.processes.main:
            metric = self.spec.config.validation.metric
            score, keep = self.state.scores.get(metric), self.spec.config.checkpoint.keep_best
            best = among_best(self.spec.run.checkpoints(), metric, score, keep)
        return bool(self.processes.broadcast_value(best))

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
