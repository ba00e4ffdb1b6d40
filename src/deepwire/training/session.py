"""A training under way: opened from a specification, iterated over, and closed with a checkpoint."""

from __future__ import annotations

import math
from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from functools import partial
from pathlib import Path

import torch

from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.checkpoint.store import read_weights
from deepwire.config.counts import counted
from deepwire.data.batches.batching import StreamPosition
from deepwire.data.batches.epoch_order import share_lines
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import DeepwireError, ModelError, ResourceError, UsageError
from deepwire.io.atomic import disk_errors, recover
from deepwire.model.config import ModelConfig
from deepwire.model.connections.connection import Connection
from deepwire.model.recurrent_depth import RecurrentStack
from deepwire.model.translation_model import TranslationModel
from deepwire.model.update_scales import update_scales
from deepwire.ops.process import (
    own_random_numbers,
    restore_torch_settings,
    seed_random_numbers,
    training_lock,
)
from deepwire.training.config import TrainingConfig
from deepwire.training.device import choose_device, feed
from deepwire.training.extras import (
    ConnectionUpdates,
    DepthWeightRecords,
    Extra,
    GradientRecords,
    GuidedAlignment,
    LayerDrop,
    MovingAverage,
    RoundsDraw,
)
from deepwire.training.freezing import freeze, with_rate_factors
from deepwire.training.log import Display, RunLog, short
from deepwire.training.loop import Objective, Trainer, UpdateResult, after_update, learning_rate, train
from deepwire.training.optimizers.optimizer import Optimizer, make_optimizer
from deepwire.training.parallel_strategy import ParallelStrategy
from deepwire.training.run import (
    TrainingRun,
    load_moments,
    load_state,
    move_run_aside,
    open_run,
    write_settings,
)
from deepwire.training.spec import TrainingSpec
from deepwire.training.state import Signals, StopReason, cut_short, limit_reached
from deepwire.training.validation import DirectionsValidator, Validation, Validator, directions_in


class Callback:
    """Hooks for a program during training: override the methods that you need.

    Where several processes train together, each calls its own callbacks, and what these change (the learning
    rate, parameters) must be the same in all.
    """

    def on_start(self, session: TrainingSession) -> None:
        """Before the first update; of a run that is continued too."""

    def after_update(self, session: TrainingSession, update: UpdateResult) -> None:
        """After each update, before it is logged, validated and saved."""

    def after_validation(self, session: TrainingSession, validation: Validation) -> None:
        """After each validation, before the checkpoint that it decides on."""

    def on_end(self, session: TrainingSession, stop_reason: StopReason) -> None:
        """When training has ended and the last checkpoint is written; not after an error."""


class TrainingSession:
    """A training under way. Iterating over it makes the updates; what is left of them when the caller breaks
    off is made when the run is continued.

    Attributes:
        training: The run in motion: its specification, state, log.
        trainer: The parts that train: model, objective, optimizer, schedule, stream.
        scores: Of the last validation in this session, such as ``loss`` and ``bleu``; empty before it.
    """

    def __init__(self, training: TrainingRun, trainer: Trainer, callbacks: Sequence[Callback] = ()) -> None:
        self.training, self.trainer = training, trainer
        self.scores: Mapping[str, float] = {}
        self._callbacks = tuple(callbacks)
        self._updates: Generator[UpdateResult] | None = None
        trainer.validated = self._validated

    @property
    def stop_reason(self) -> StopReason | None:
        """Why training ended; None while it goes on."""
        return self.training.stop_reason

    @property
    def model(self) -> TranslationModel:
        """The model that is trained; in training mode."""
        return self.trainer.model

    @property
    def run(self) -> Path:
        """The run directory."""
        return self.training.spec.run.path

    @property
    def update(self) -> int:
        """Updates made, those of earlier sessions included."""
        return self.training.state.update

    @property
    def learning_rate(self) -> float:
        """The rate of the next update. Setting it replaces the schedule.

        What was set is stored in checkpoints: whoever continues the run, the command too, goes on with it.
        A continued run repeats no callback for updates that are in its checkpoint.
        """
        return learning_rate(self.training, self.trainer, self.update + 1)

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        if not 0 <= rate < math.inf:
            raise UsageError(f"a learning rate must be a number of 0 or more, not {rate}")
        self.training.state.learning_rate = float(rate)

    def stop(self) -> None:
        """End the training after the present update, with a checkpoint; a later call continues it."""
        self.training.signals.ask_to_stop()

    def __iter__(self) -> Iterator[UpdateResult]:
        """Make the updates that are left, one for each step of the iteration."""
        if self._updates is None:
            self._updates = self._run()
        return self._updates

    def _run(self) -> Generator[UpdateResult]:
        for callback in self._callbacks:
            callback.on_start(self)
        with closing(train(self.training, self.trainer)) as updates:
            for update in updates:
                for callback in self._callbacks:
                    callback.after_update(self, update)
                yield update

    def close(self) -> None:
        """Make no more updates."""
        if self._updates is not None:
            self._updates.close()

    def finish(self) -> None:
        """Save where the caller broke off, record why training ended, and tell the callbacks."""
        self.close()
        if self.stop_reason is None:
            self.stop()
            after_update(self.training, self.trainer)
        stop_reason = self.stop_reason
        assert stop_reason is not None, "stop() ends every run"
        self.training.log.end(self.training.state, stop_reason)
        for callback in self._callbacks:
            callback.on_end(self, stop_reason)

    def _validated(self, validation: Validation) -> None:
        self.scores = validation.scores
        for callback in self._callbacks:
            callback.after_validation(self, validation)


def nothing_to_do_reason(run: RunDirectory, config: TrainingConfig) -> str | None:
    """Why there is nothing to do in ``run``; None if there is. Nothing is written."""
    checkpoints = run.checkpoints()
    if not checkpoints or not run.done.exists():
        return None
    try:
        state = load_state(checkpoints[-1].path)
    except ModelError:  # damaged: there is something to do, and opening the run says what
        return None
    reason = limit_reached(config, state)
    stopping = config.early_stopping
    if reason is None and stopping is not None and state.patience.exhausted(stopping):
        reason = f"training.early_stopping.patience={stopping.patience}"
    return f"nothing to do: run finished at update {state.update} ({reason})" if reason else None


@contextmanager
def open_session(
    spec: TrainingSpec,
    *,
    processes: ProcessGroup | None = None,
    fresh: bool = False,
    quiet: bool = False,
    handle_signals: bool = False,
    callbacks: Sequence[Callback] = (),
) -> Iterator[TrainingSession]:
    """Open the run directory and make everything ready to train; leaving the block saves and closes it.

    What training needs for the whole process holds within the block: threads, float32 products, the current
    GPU, the state of random numbers. It is restored afterwards.

    Args:
        spec: What to train.
        processes: Those that train together, each of which calls this; default: this one alone.
        fresh: Move a run that is there aside, to ``RUN.1``, and begin anew.
        quiet: Show nothing; ``log.txt`` is written all the same.
        handle_signals: Within the block, SIGTERM and SIGINT ask to save and stop, SIGUSR1 to save.
        callbacks: Called during training.

    Raises:
        UsageError: If another run trains there, or the settings or text are not those of the run.
        ModelError: If all its checkpoints are damaged.
        DivergedError: If the loss stays not finite.
        ResourceError: If disk or memory do not suffice.
    """
    processes = processes or ProcessGroup()
    with ExitStack() as stack:
        signals = stack.enter_context(Signals(listen=handle_signals))
        device = stack.enter_context(training_process(spec.config, processes))
        run, log = spec.run, RunLog(spec)
        resume = processes.main and not fresh and (run.checkpoints_folder.exists() or run.done.exists())
        if resume:
            stack.enter_context(_held(run))
        training = open_run(spec, processes, device, log, signals, resume=resume)
        # A run that cannot be trained leaves no trace, and an old one where it is.
        trainer = make_trainer(training)
        if processes.main:
            aside = move_run_aside(run) if fresh else None
            if not resume:
                run.require_config_kept(spec.user_config)
                stack.enter_context(_held(run))
            display = stack.enter_context(Display(run.log, quiet))
            if aside is not None:
                display.say(f"the run that was in {run.path} is now {aside}")
            continued = training.checkpoint is not None
            stack.enter_context(log.opened(display, training.state, continued=continued))
            write_settings(training)
        log_run_summary(training, trainer)
        stack.enter_context(_memory_errors(spec))
        if fresh:
            stack.enter_context(_drop_fresh_from_hints())
        session = stack.enter_context(closing(TrainingSession(training, trainer, callbacks)))
        yield session
        session.finish()


@contextmanager
def _held(run: RunDirectory) -> Iterator[None]:
    """The run directory is that of this process, and clear of what crashes left."""
    with run.locked():
        with disk_errors(run.path):
            recover(run.path)
        yield


@contextmanager
def training_process(config: TrainingConfig, processes: ProcessGroup) -> Iterator[torch.device]:
    """The device to train on; within the block the process is set up for it.

    Raises:
        UsageError: If the device is not there, or another thread of this process trains.
    """
    with training_lock(), restore_torch_settings():
        device = choose_device(config.device, processes)
        # Setting the number, even to what it is, also keeps MKL from choosing one of its own call by call.
        torch.set_num_threads(processes.threads(config.threads))
        with own_random_numbers(device):
            yield device


def make_trainer(run: TrainingRun) -> Trainer:
    """Build model, optimizer and stream, filled from the checkpoint or the model that the run begins with.

    Raises:
        UsageError: If a setting does not fit the model.
        ModelError: If the checkpoint or the model to begin with does not fit.
    """
    spec, config, processes, numerics = run.spec, run.spec.config, run.processes, run.decisions.numerics
    seed_random_numbers(spec.seed, run.device)
    model = spec.build()
    for stack in model.stacks().values():
        stack.recomputes = config.activation_checkpointing
    if run.checkpoint is not None:
        read_weights(run.checkpoint.path, model)
    elif processes.main and spec.begin is not None:
        run.log.begun_with(spec.begin(model))
    frozen = freeze(model, config.freeze)
    scales = with_rate_factors(update_scales(model), model, config.rate_factors)
    model = model.to(run.device)
    if run.checkpoint is None and processes.main:
        _profile(run, model)
    strategy = _strategy(spec, model, processes)
    learning = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    low = torch.bfloat16 if numerics.precision == "bf16" else torch.float32
    optimizer = make_optimizer(
        model, config.optimizer, config.clip_norm, strategy, product_dtype=low, scales=scales
    )
    average = MovingAverage(learning, config.ema, strategy) if config.ema is not None else None
    _restore(run, optimizer, average)
    _log_startup_warnings(spec, model.config, frozen, run.log)
    extras = list(_extras(run, model, average))
    if config.compile:
        # With torch's compiler, seconds to import.
        from deepwire.training.compilation import compile_layers, warm_up

        compile_layers(model, run.log.say)
        seconds = warm_up(model, strategy.loss, numerics, run.decisions.micro_batch_tokens)
        run.log.say(f"layers compiled in {seconds:.0f} s")
    return Trainer(
        model=model,
        strategy=strategy,
        objective=Objective(config, spec.prepared.vocabularies, strategy.loss, numerics, extras),
        optimizer=optimizer,
        schedule=config.schedule.build(d_model=model.config.base_width, max_updates=config.max_updates),
        stream=spec.stream(run.decisions.micro_batch_tokens, (processes.rank, processes.count)),
        extras=extras,
        average=average,
        validator=make_validator(spec, processes),
    )


def _extras(run: TrainingRun, model: TranslationModel, average: MovingAverage | None) -> Iterator[Extra]:
    spec, config, encoder = run.spec, run.spec.config, model.stacks().get("encoder")
    connections = [type(stack.connection) for stack in model.stacks().values()]
    changing = any(each.begin_update is not Connection.begin_update for each in connections)
    if changing and spec.begin is None:  # else they are past their start
        yield ConnectionUpdates(model)
    if config.layer_drop is not None:
        yield LayerDrop(config.layer_drop, model, spec.seed)
    if isinstance(encoder, RecurrentStack):
        yield RoundsDraw(encoder, spec.seed)
    if config.guided_alignment is not None:
        yield GuidedAlignment(config.guided_alignment, model)
    if average is not None:
        yield average
    if run.processes.main and config.record.gradients:
        yield GradientRecords(run.log.append, spec.run.gradients, model, config.record.gradients)
    if run.processes.main and config.record.depth_weights:
        yield DepthWeightRecords(run.log.append, spec.run.depth_weights, model, config.record.depth_weights)


def _log_startup_warnings(
    spec: TrainingSpec, model: ModelConfig, frozen: Mapping[str, int], log: RunLog
) -> None:
    """Say which parameters do not learn, and which settings seem not to be meant."""
    for pattern, size in frozen.items():
        log.say(f"frozen by {pattern}: {short(size)} parameters")
    for warning in (cut_short(spec.config), model.initialization_left_out()):
        if warning is not None:
            log.say(f"warning: {warning}")


def _profile(run: TrainingRun, model: TranslationModel) -> None:
    """Let connections that need it look at the first micro-batch, the same for any number of processes."""
    if run.spec.begin is not None or not model.needs_profile:
        return
    stream = run.spec.stream(run.decisions.micro_batch_tokens)
    with closing(feed(stream, StreamPosition(), run.device)) as updates:
        batch = next(updates).batches[0]
    with run.decisions.numerics.autocast():
        model.profile(batch.source, batch.target_input, languages=batch.languages)
    run.log.say("one pass over the first batch set the numbers that connections begin with")


def _restore(run: TrainingRun, optimizer: Optimizer, average: MovingAverage | None) -> None:
    """Fill optimizer and averages with what the checkpoint has kept, which only the main process has."""
    kept = load_moments(run.checkpoint.path) if run.checkpoint is not None else None
    moments = kept and {name: each for name, each in kept.items() if not (average and average.owns(name))}
    optimizer.load_state(moments, run.state.steps)
    if average is not None and run.state.update > 0:  # all processes know that
        average.load_state(kept)


def _strategy(spec: TrainingSpec, model: TranslationModel, processes: ProcessGroup) -> ParallelStrategy:
    if spec.config.sharding == "none" or processes.count == 1:
        return ParallelStrategy(model, processes)
    from deepwire.training.sharded_strategy import ShardedStrategy  # a second to import

    return ShardedStrategy(model, processes, spec.build)


def make_validator(spec: TrainingSpec, processes: ProcessGroup) -> Validator | DirectionsValidator | None:
    """The validator of a run; None where it has no validation set."""
    store, config = spec.prepared.valid, spec.config
    if store is None or len(store) == 0:
        if config.early_stopping is not None:
            raise UsageError("training.early_stopping needs a validation set", "set data.valid")
        return None
    make = partial(
        Validator,
        store,
        config.validation,
        smoothing=(config.label_smoothing, config.label_smoothing_form),
        source_bos=spec.source_bos,
        context=spec.prepared.context,
        vocabularies=spec.prepared.vocabularies,
        translate=spec.translate,
        score=spec.score,
        processes=processes,
    )
    languages = spec.prepared.languages
    if languages is None:
        return make()
    parts = directions_in(store, languages)
    return DirectionsValidator({name: make(part=part) for name, part in parts.items()})


def log_run_summary(run: TrainingRun, trainer: Trainer) -> None:
    """Say where and on what the run trains, and where it goes on."""
    spec, say, device, processes = run.spec, run.log.say, run.device, run.processes
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    valid = spec.prepared.valid
    where = f"{processes.count} processes on {device.type}" if processes.count > 1 else f"on {device}"
    precision = run.decisions.numerics.precision
    say(f"run {spec.run.path} {where}, {precision}, {counted(torch.get_num_threads(), 'thread')}")
    unit = "blocks" if spec.prepared.train.packed else "pairs"
    say(
        f"{short(parameters)} parameters, {len(spec.prepared.train)} training {unit}, "
        f"{len(valid) if valid is not None else 'no'} validation {unit}"
    )
    for line in share_lines(spec.prepared.mix, spec.prepared.temperature) if spec.prepared.mix else ():
        say(line)
    for signature in spec.signatures:
        say(f"translations of the validation text are scored by {signature}")
    for note in spec.notes:
        say(f"note: {note}")
    if run.checkpoint is not None:
        name, state = run.checkpoint.path.name, run.state
        say(f"continued from {name}, update {state.update} (epoch {state.epochs:.2f})")


@contextmanager
def _drop_fresh_from_hints() -> Iterator[None]:
    """When training has begun, ``--fresh`` is done: once more it would move this run aside."""
    try:
        yield
    except DeepwireError as error:
        error.hint = error.hint.replace("the same command", "the same command without --fresh")
        raise


@contextmanager
def _memory_errors(spec: TrainingSpec) -> Iterator[None]:
    try:
        yield
    except torch.OutOfMemoryError as error:
        raise ResourceError(
            f"out of GPU memory: {str(error).splitlines()[0][:200]}",
            f"set training.micro_batch_tokens lower and start over with --fresh; {spec.run.path} is intact",
        ) from error
