"""From a job to a finished run: lock, continue or begin, train, mark the end."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from deepwire.checkpoint.files import disk_errors, recover, write_json, write_text
from deepwire.checkpoint.lock import locked
from deepwire.checkpoint.retention import Checkpoint
from deepwire.checkpoint.run_directory import RunDirectory, move_aside
from deepwire.data.batching import BatchSettings, StreamPosition, UpdateStream
from deepwire.data.order import EpochOrder
from deepwire.errors import ModelError, ResourceError, UsageError
from deepwire.training.allocator import keep_memory
from deepwire.training.config import TrainingConfig
from deepwire.training.device import choose_device, describe, idle_gpus
from deepwire.training.ending import Ending
from deepwire.training.job import Job
from deepwire.training.limits import limit_reached
from deepwire.training.loop import train
from deepwire.training.metrics_log import MetricsLog, cut_after
from deepwire.training.optimizer import Optimizer
from deepwire.training.progress import Display, short
from deepwire.training.resume import Complete, as_recorded, require_same_settings
from deepwire.training.run_record import RunRecord
from deepwire.training.saving import load_state, newest_state, restore
from deepwire.training.schedule import build_schedule
from deepwire.training.signals import Signals
from deepwire.training.state import TrainingState
from deepwire.training.tensorboard import EventWriter, NoEvents, TensorBoardEvents
from deepwire.training.trainer import Trainer
from deepwire.training.validation import Validator


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    Attributes:
        ending: Why it stopped.
        best: The best checkpoint, or the newest where nothing was scored; None if nothing was saved.
    """

    ending: Ending
    best: Checkpoint | None


def finished(
    run: RunDirectory,
    config: TrainingConfig,
    resolved: Mapping[str, object],
    complete: Complete = as_recorded,
) -> str | None:
    """Why there is nothing to do in ``run``; None if there is. Nothing is written.

    Arguments as in `require_same_settings`.

    Raises:
        UsageError: If the run was started with other settings.
    """
    if not run.checkpoints() or not run.resolved_config.exists():
        return None
    try:
        require_same_settings(run.resolved_config, resolved, complete)
        state = newest_state(run)
    except ModelError:  # damaged: there is something to do, and start says what
        return None
    if not run.done.exists() or state is None:
        return None
    reason = limit_reached(config, state)
    stopping = config.early_stopping
    if reason is None and stopping is not None and state.patience.exhausted(stopping):
        reason = f"training.early_stopping.patience={stopping.patience}"
    return f"nothing to do: run finished at update {state.update} ({reason})" if reason else None


def start(job: Job, *, fresh: bool = False, quiet: bool = False) -> Outcome:
    """Train a job in its run directory; a run that is there already is continued.

    Args:
        job: What to train.
        fresh: Move a run that is there aside, to ``RUN.1``, and begin anew.
        quiet: Show nothing; ``log.txt`` is written all the same.

    Raises:
        UsageError: If another process trains there, or the settings or text are not those of the run.
        ModelError: If all its checkpoints are damaged.
        DivergedError: If the loss stays not finite.
        ResourceError: If disk or memory do not suffice.
    """
    if fresh and job.run.path.exists():
        with locked(job.run.path):
            move_aside(job.run.path)
    with locked(job.run.path), ExitStack() as stack:
        signals = stack.enter_context(Signals())
        display = stack.enter_context(Display(job.run.log, quiet))
        with disk_errors(job.run.path):
            recover(job.run.path)
        checkpoint = job.run.newest_sound(display.say)
        if checkpoint is not None:
            for change in require_same_settings(job.run.resolved_config, job.resolved, job.complete):
                display.say(f"changed: {change}")
        device = choose_device(job.config.device)
        _set_up_process(job.config)
        record = RunRecord.settle(job, device, continued=checkpoint is not None)
        _write_settings(job, record, device)
        state = _state(job, checkpoint)
        metrics = stack.enter_context(MetricsLog(job.run.metrics))
        events = stack.enter_context(_events(job, state))
        trainer = _trainer(job, record, device, state, checkpoint, display, metrics, events, signals)
        _introduce(trainer, checkpoint)
        with _memory_errors(job):
            ending = train(trainer)
        if ending.finished:
            write_json(job.run.done, {"update": state.update, "reason": ending.reason})
        display.say(f"stopped at update {state.update}: {ending.reason}")
        return Outcome(ending, job.run.best())


def _set_up_process(config: TrainingConfig) -> None:
    """Set what holds for the whole process, before the first computation starts threads that inherit it."""
    keep_memory()
    # CPUs are slow with numbers next to zero, and the moments of rare words decay into them.
    torch.set_flush_denormal(True)
    # Setting the number, even to what it is, also keeps MKL from choosing one of its own from call to call.
    torch.set_num_threads(config.threads or torch.get_num_threads())


def _write_settings(job: Job, record: RunRecord, device: torch.device) -> None:
    run = job.run
    if job.user_config:
        write_text(run.user_config, job.user_config)
    write_json(run.resolved_config, job.resolved)
    write_json(run.environment, {**record.to_json(), "environment": describe(device)})
    run.done.unlink(missing_ok=True)


def _state(job: Job, checkpoint: Checkpoint | None) -> TrainingState:
    """The state to go on from; what was logged after it is forgotten."""
    state = TrainingState(StreamPosition()) if checkpoint is None else load_state(checkpoint.path)
    cut_after(job.run.metrics, state.update, drop_validation=state.validation_due)
    cut_after(job.run.bad_batch, state.update)
    return state


@contextmanager
def _events(job: Job, state: TrainingState) -> Iterator[EventWriter]:
    events = TensorBoardEvents(job.run.tensorboard, state.update) if job.config.tensorboard else NoEvents()
    try:
        yield events
    finally:
        events.close()


def _trainer(
    job: Job,
    record: RunRecord,
    device: torch.device,
    state: TrainingState,
    checkpoint: Checkpoint | None,
    display: Display,
    metrics: MetricsLog,
    events: EventWriter,
    signals: Signals,
) -> Trainer:
    config = job.config
    record.numerics.apply()
    torch.manual_seed(job.seed)
    model = job.build().to(device)
    optimizer = Optimizer(model.named_parameters(), config.optimizer, config.clip_norm)
    if checkpoint is not None:
        restore(checkpoint.path, model, optimizer, state)
    settings = BatchSettings(
        batch_tokens=config.batch_tokens,
        micro_batch_tokens=record.micro_batch_tokens,
        source_bos=job.source_bos,
        sampling=job.sampling,
    )
    store, vocabularies = job.prepared.train, job.prepared.vocabularies
    stream = UpdateStream(store, settings, seed=job.seed, vocabularies=vocabularies)
    return Trainer(
        job=job,
        device=device,
        numerics=record.numerics,
        model=model,
        loss=torch.compile(model.forward, dynamic=True) if config.compile else model.loss,
        optimizer=optimizer,
        schedule=build_schedule(
            config.schedule, d_model=model.config.d_model, max_updates=config.max_updates
        ),
        stream=stream,
        epoch_size=EpochOrder(store.parts, job.seed).size,
        validator=_validator(job),
        state=state,
        metrics=metrics,
        events=events,
        display=display,
        signals=signals,
    )


def _validator(job: Job) -> Validator | None:
    store, config = job.prepared.valid, job.config
    if store is None or len(store) == 0:
        if config.early_stopping is not None:
            raise UsageError("training.early_stopping needs a validation set", "set data.valid")
        return None
    return Validator(
        store,
        config.validation,
        smoothing=(config.label_smoothing, config.label_smoothing_form),
        source_bos=job.source_bos,
        vocabularies=job.prepared.vocabularies,
        translate=job.translate,
        score=job.score,
    )


def _introduce(trainer: Trainer, checkpoint: Checkpoint | None) -> None:
    job, say, device = trainer.job, trainer.display.say, trainer.device
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    valid = job.prepared.valid
    say(f"run {job.run.path} on {device}, {trainer.numerics.precision}, {torch.get_num_threads()} threads")
    if idle := idle_gpus(device):
        say(f"{idle} more GPUs stay idle: a run uses one")
    say(
        f"{short(parameters)} parameters, {len(job.prepared.train)} training pairs, "
        f"{len(valid) if valid is not None else 'no'} validation pairs"
    )
    if checkpoint is not None:
        epoch = trainer.state.epochs
        say(f"continued from {checkpoint.path.name}, update {trainer.state.update} (epoch {epoch:.2f})")


@contextmanager
def _memory_errors(job: Job) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ResourceError(
            f"out of GPU memory: {str(error).splitlines()[0][:200]}",
            f"set training.micro_batch_tokens lower and start over with --fresh; {job.run.path} is intact",
        ) from error
