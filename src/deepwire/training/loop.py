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
import time
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack, closing, contextmanager, nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from deepwire.checkpoint.run_directory import among_best
from deepwire.data.batches.batching import UpdateStream
from deepwire.data.vocabulary import Vocabularies
from deepwire.errors import DivergedError, ResourceError
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.process import seed_random_numbers
from deepwire.training.config import TrainingConfig
from deepwire.training.device import (
    DeviceBatch,
    DeviceUpdate,
    PrecisionPolicy,
    feed,
    is_out_of_memory,
    memory_in_use,
)
from deepwire.training.extras import Extra, MovingAverage, update_seed
from deepwire.training.optimizers.optimizer import Optimizer, StepResult
from deepwire.training.parallel_strategy import LossFunction, ParallelStrategy
from deepwire.training.run import TrainingRun, save_checkpoint
from deepwire.training.schedule import Schedule
from deepwire.training.state import StopReason, limit_reached
from deepwire.training.validation import DIVERGED_HINT, DirectionsValidator, Validation, Validator

_MAX_SKIPPED = 10
"""Updates in a row that may be skipped because they are not finite."""


@dataclass(frozen=True)
class UpdateResult:
    """An update that was made. Its numbers are on the device: reading one waits for a GPU.

    Attributes:
        number: Which update it is, from 1.
        epoch: Which epoch it belongs to, from 0.
        learning_rate: What it was made with.
        target_tokens: Target tokens of the update, end symbols included.
        sums: Losses summed over them, in nats, scalars by name: ``loss`` (smoothed), ``nll``, of two passes
            the divergence as ``r_drop`` or ``sim_cut``, and ``guided_alignment``.
        step: Norm of the gradient, and whether it was finite.
    """

    number: int
    epoch: int
    learning_rate: float
    target_tokens: int
    sums: Mapping[str, Tensor]
    step: StepResult

    @property
    def loss(self) -> float:
        """Smoothed loss per target token, nats."""
        return float(self.sums["loss"]) / self.target_tokens

    @property
    def nll(self) -> float:
        """Negative log-likelihood per target token, nats."""
        return float(self.sums["nll"]) / self.target_tokens

    @property
    def gradient_norm(self) -> float:
        """Norm of the gradient before it was clipped."""
        return float(self.step.norm)

    @property
    def finite(self) -> bool:
        """Whether loss and gradient were finite; if not, the update changed nothing."""
        return bool(self.step.finite)


class Objective:
    """The loss of a batch: smoothed cross-entropy, with a second pass and losses of extras where wanted."""

    def __init__(
        self,
        config: TrainingConfig,
        vocabularies: Vocabularies,
        loss: LossFunction,
        precision: PrecisionPolicy,
        extras: Sequence[Extra],
    ) -> None:
        self.config, self.loss, self.precision, self.extras = config, loss, precision, extras
        self.perturbation, self.divergence = config.perturbation(vocabularies), config.divergence
        self.names = config.losses

    def __call__(self, batch: DeviceBatch) -> tuple[Tensor, dict[str, Tensor]]:
        """Give the loss to minimise, and the losses to record by name, summed over target tokens, in nats."""
        with self.precision.autocast():
            sums = self.loss(
                batch.source,
                batch.target_input,
                batch.target_output,
                self.config.label_smoothing,
                self.config.label_smoothing_form,
                self.config.r_drop,
                languages=batch.languages,
                perturbation=self.perturbation,
            )
        total, parts = sums.smoothed, {"loss": sums.smoothed.detach(), "nll": sums.nll}
        if sums.divergence is not None and self.divergence is not None:
            parts[self.divergence] = sums.divergence
        for extra in self.extras:
            added = extra.loss(batch)
            if added is not None:
                total = total + extra.weight * added
                parts[extra.name] = added.detach()
        return total, parts


@dataclass
class Trainer:
    """The parts that train a model. In every process the same happens, but only the main one leaves a trace.

    Attributes:
        model: The model.
        strategy: Where its parameters are among the processes.
        objective: The loss that is minimised.
        optimizer: Of the parameters that are not frozen.
        schedule: Learning rate of each update.
        stream: The training batches of this process.
        extras: What else happens in updates.
        average: The moving average of the parameters, one of the extras; None where none is kept.
        validator: Scores the validation set; None without one.
        validated: Called after each validation with what it found.
    """

    model: TranslationModel
    strategy: ParallelStrategy
    objective: Objective
    optimizer: Optimizer
    schedule: Schedule
    stream: UpdateStream
    extras: Sequence[Extra] = ()
    average: MovingAverage | None = None
    validator: Validator | DirectionsValidator | None = None
    validated: Callable[[Validation], None] | None = None

    def averaged(self) -> AbstractContextManager[None]:
        """The model as validation scores it and checkpoints hold it: with averages where that is wanted."""
        return nullcontext() if self.average is None else self.average.as_model()


def train(run: TrainingRun, trainer: Trainer) -> Generator[UpdateResult]:
    """Minimise the objective, update by update, until ``run.stop_reason`` is set.

    For each update: the gradient of the loss per target token; its norm limited; one step of the optimizer at
    the scheduled rate. The random numbers of an update depend on the seed, its number and the process alone,
    so an interrupted run goes on as if nothing had happened.

    An update is handed out before it is logged, validated and saved: what the caller changes then, such as
    the learning rate, is in the checkpoint of this update.

    Raises:
        DivergedError: If ten updates in a row had a loss or gradient that is not finite.
        ResourceError: If memory does not suffice for a single sentence pair.
    """
    model = trainer.model.train()
    after_update(run, trainer)  # a validation may be due
    try:
        with closing(feed(trainer.stream, run.state.position, run.device)) as updates:
            while run.stop_reason is None:
                update = next(updates)
                sums, step = make_update(run, trainer, update)
                run.count(update, sums, step)
                tokens = update.target_tokens
                yield UpdateResult(update.number, update.epoch, run.last_rate, tokens, sums, step)
                after_update(run, trainer)
    finally:
        model.eval()


def make_update(
    run: TrainingRun, trainer: Trainer, update: DeviceUpdate
) -> tuple[dict[str, Tensor], StepResult]:
    """Make the gradient of an update and a step along it; returns sums of losses, and the step's outcome."""
    for extra in trainer.extras:
        extra.before_update(update.number)
    sums = make_gradient(run, trainer, update)
    for extra in trainer.extras:
        extra.before_step(update.number)
    run.last_rate = learning_rate(run, trainer, update.number)
    step = trainer.optimizer.step(run.last_rate, sums["loss"])
    for extra in trainer.extras:
        extra.after_step(update.number)
    return sums, step


def learning_rate(run: TrainingRun, trainer: Trainer, update: int) -> float:
    """The rate of an update from here on: that of the schedule, or what a program has set instead."""
    return trainer.schedule(update) if run.state.learning_rate is None else run.state.learning_rate


def make_gradient(run: TrainingRun, trainer: Trainer, update: DeviceUpdate) -> dict[str, Tensor]:
    """Set the gradient of the loss per target token; returns the losses by name, summed over target tokens.

    If memory runs out in any process, all cut their micro-batches in half and make the update again.

    Raises:
        ResourceError: If memory does not suffice for a single sentence pair.
    """
    parameters = list(trainer.optimizer.parameters.values())
    while True:
        share = [piece for batch in update.batches for piece in batch.cut(run.state.pieces)]
        pieces = trainer.strategy.passes(share)
        sums = local_forward_backward(run, trainer, update, pieces)
        failed = sums is None
        too_large = failed and all(len(piece.source) == 1 for piece in pieces)
        # A process without a share has no gradients, but must know which parameters have one elsewhere.
        used = [parameter.grad is not None for parameter in parameters]
        failures, too_large_anywhere, *counts = run.processes.all_reduce_numbers([failed, too_large, *used])
        if sums is not None and not failures:
            break
        recover_from_oom(run, trainer, update.number, can_split=not too_large_anywhere)
    learning = [parameter for parameter, count in zip(parameters, counts, strict=True) if count]
    reduced = trainer.strategy.all_reduce_tensors(learning, list(sums.values()))
    return dict(zip(sums, reduced, strict=True))


def local_forward_backward(
    run: TrainingRun, trainer: Trainer, update: DeviceUpdate, pieces: Sequence[DeviceBatch]
) -> dict[str, Tensor] | None:
    """Forward and backward passes over the share of this process; None if memory ran out."""
    process = f"process {run.processes.rank}" if run.processes.rank else ""
    seed_random_numbers(update_seed(run.spec.seed, update.number, process), run.device)
    trainer.optimizer.zero_grad()
    totals = {name: torch.zeros((), device=run.device) for name in trainer.objective.names}
    try:
        # Weights that a pass has rounded are kept until the outermost of these blocks ends, for all passes.
        with torch.autocast(run.device.type, enabled=False):
            for batch in pieces:
                with ExitStack() as stack:
                    for extra in trainer.extras:
                        stack.enter_context(extra.during_pass())
                    loss, parts = trainer.objective(batch)
                    torch.autograd.backward(loss / update.target_tokens)
                for name, part in parts.items():
                    totals[name] += part
    except (RuntimeError, MemoryError) as error:
        if not (trainer.strategy.retries and is_out_of_memory(error)):
            raise
        return None
    return totals


def recover_from_oom(run: TrainingRun, trainer: Trainer, update: int, *, can_split: bool) -> None:
    """Free what the failed attempt left, and halve the micro-batches from here on."""
    if not can_split:
        raise ResourceError(
            f"out of memory at update {update} with a single sentence pair",
            "make the model smaller, lower data.filters.max_length, or free memory; the same command goes on",
        )
    trainer.optimizer.zero_grad()
    gc.collect()
    if run.device.type == "cuda":
        torch.cuda.empty_cache()
    run.state.pieces *= 2
    run.log.say(f"u {update} out of memory: from here on micro-batches are cut in {run.state.pieces}")


def after_update(run: TrainingRun, trainer: Trainer) -> None:
    """Log, validate and save what is due after the update just made; see whether the run ends here.

    Called once before the first update too: a continued run may have a validation to make up for.

    Raises:
        DivergedError: If too many updates in a row were not finite.
        ResourceError: If the disk is full.
    """
    signals = run.signals
    signals.settle(run.processes)
    limit = limit_reached(run.spec.config, run.state)
    stop = StopReason(limit, finished=True) if limit else None
    fresh = bool(run.unread)
    if fresh:
        log_update(run, trainer, last=stop is not None)
    if run.log.has_bar:
        run.log.move(run.status)
    validated = validate(run, trainer, fresh=fresh, last=stop is not None)
    stopping = run.spec.config.early_stopping
    # Not only after a validation: a run may have been ended between its last one and the word of that.
    if stop is None and stopping is not None and run.state.patience.exhausted(stopping):
        reason = f"{stopping.metric} has not improved for {stopping.patience} validations"
        stop = StopReason(reason, finished=True)
    save(run, trainer, last=stop is not None, validated=validated)
    if signals.stop is not None:
        stop = StopReason(signals.stop.name, finished=False, exit_code=signals.exit_code)
    elif stop is None and signals.asked_to_stop:
        stop = StopReason("the program", finished=False)
    run.stop_reason = stop


def log_update(run: TrainingRun, trainer: Trainer, *, last: bool) -> None:
    """Learn which updates were skipped, where that costs no wait; write a line of the log where one is due.

    Where the last update of a run is among them, and no validation tells what the model is worth, the run has
    diverged.
    """
    update = run.state.update
    due = update % run.spec.config.log_every == 0
    if run.device.type == "cpu" or last or due:
        _count_skipped(run, trainer, most=1 if last and trainer.validator is None else _MAX_SKIPPED)
    if last or update == 1 or due:
        run.memory = int(run.processes.all_reduce_numbers([memory_in_use(run.device)])[0])
        run.log.train(run.state, run.meter.averages(), run.status)
        run.meter.reset()


def _count_skipped(run: TrainingRun, trainer: Trainer, most: int = _MAX_SKIPPED) -> None:
    """Count the updates that were not finite; waits for the device."""
    state = run.state
    for update, finite in zip(run.unread, run.meter.take_finite(), strict=True):
        if finite:
            state.bad_in_a_row, run.last_good = 0, update.number
            continue
        state.bad_in_a_row += 1
        trainer.optimizer.undo_steps(1)
        run.log.skipped(update.number, update.lines.tolist())
    run.unread.clear()
    state.steps = trainer.optimizer.steps
    if state.bad_in_a_row >= most:
        raise DivergedError(
            f"loss or gradient not finite {state.bad_in_a_row} updates in a row "
            f"(last good update {run.last_good}); the lines are listed in {run.spec.run.bad_batch}",
            DIVERGED_HINT,
        )


def validate(run: TrainingRun, trainer: Trainer, *, fresh: bool, last: bool) -> bool:
    """Score the validation set where that is due; returns whether it was. After a signal it still is due.

    It may become due where an update has just been made (`fresh`), and does where the run ends (`last`).
    """
    validator, state = trainer.validator, run.state
    if validator is None:
        return False
    if fresh and (last or state.update % run.spec.config.validation.every == 0):
        state.validation_due = True
    if not state.validation_due:
        return False
    started = time.perf_counter()
    with trainer.averaged(), trainer.strategy.whole() as model, _memory_errors(state.update):
        precision = trainer.objective.precision
        validation = validator.run(model, precision, state.update, lambda: run.signals.stop_wanted, last=last)
    run.meter.skip_time()
    run.signals.settle(run.processes)
    if validation is None:
        return False
    state.validation_due, state.scores = False, validation.scores
    if run.spec.config.early_stopping is not None:
        state.patience.update(run.spec.config.early_stopping, validation.scores)
    metric = run.spec.config.validation.metric
    note = f"best {metric} so far" if run.processes.main and _is_among_best(run, 1) else ""
    run.log.valid(state, validation, time.perf_counter() - started, note)
    if trainer.validated is not None:
        trainer.validated(validation)
    run.signals.settle(run.processes)  # it may have asked for the end
    return True


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


def save(run: TrainingRun, trainer: Trainer, *, last: bool, validated: bool) -> None:
    """Write a checkpoint where one is due: regularly, of the best and last models, and when asked for."""
    config, state = run.spec.config, run.state
    wanted, stops = run.signals.save, run.signals.stops
    run.signals.save = False
    changed = state.update > run.saved_at
    periodic = state.update % config.checkpoint_interval == 0
    regular = periodic or wanted or last
    best = False
    if validated:  # the main process knows, and the others save when it does
        here = run.processes.main and _is_among_best(run, config.checkpoint.keep_best)
        best = bool(run.processes.broadcast_value(here))
    if not (best or (changed and (regular or stops)) or (validated and not changed)):
        return
    if run.unread:
        _count_skipped(run, trainer)
    state.seconds, state.interval = run.seconds, run.meter.state()
    state.interim = not (regular or best) and (changed or state.interim)
    with trainer.averaged():
        kept = {} if trainer.average is None else trainer.average.state()
        snapshot = trainer.strategy.snapshot(trainer.optimizer.state() | kept)
        examined = _examined(run, trainer)
        if run.processes.main:
            run.log.sync()
            path = save_checkpoint(run.spec, trainer.model, snapshot, state, examined)
            if wanted or stops:
                run.log.say(f"u {state.update} saved {path}")
    run.saved_at = state.update
    run.meter.skip_time()


def _examined(run: TrainingRun, trainer: Trainer) -> dict[str, object]:
    """Facts about the model that are stored with it; in the main process alone."""
    examine = run.spec.examine
    if examine is None:
        return {}
    with trainer.strategy.whole() as model:
        mode = model.training
        model.eval()
        try:
            return examine(model) if run.processes.main else {}
        finally:
            model.train(mode)


def _is_among_best(run: TrainingRun, keep: int) -> bool:
    metric = run.spec.config.validation.metric
    return among_best(run.spec.run.checkpoints(), metric, run.state.scores.get(metric), keep)
