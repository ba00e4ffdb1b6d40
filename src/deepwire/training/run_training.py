"""From a specification to a finished run: lock, continue or begin, train, mark the end."""

from __future__ import annotations

import warnings
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import cast

import torch
from torch import Tensor

from deepwire.checkpoint.run_directory import Checkpoint, RunDirectory
from deepwire.checkpoint.store import read_weights
from deepwire.command_line import again
from deepwire.config.counts import counted
from deepwire.data.batches.batching import StreamPosition
from deepwire.data.batches.epoch_order import EpochOrder, share_lines
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import DeepwireError, ModelError, ResourceError, UsageError
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel
from deepwire.model.update_scales import update_scales
from deepwire.ops.process import given_back, own_random_numbers, seed_random_numbers, this_thread_alone
from deepwire.training.config import TrainingConfig
from deepwire.training.device import choose_device, idle_gpus
from deepwire.training.device_batches import feed
from deepwire.training.ema import MovingAverage
from deepwire.training.freezing import freeze, with_rate_factors
from deepwire.training.logging.progress import short
from deepwire.training.optimizers.optimizer import Optimizer, make_optimizer
from deepwire.training.parallel_strategy import ParallelStrategy
from deepwire.training.recorder import Recorder, SilentRecorder
from deepwire.training.resume_point import ResumePoint, RunRecord, open_run
from deepwire.training.run.spec import CHANGEABLE, Complete, TrainingSpec, as_recorded, require_same_settings
from deepwire.training.run.state import TrainingState, load_moments, newest_state
from deepwire.training.run.stopping import Signals, StopReason, cut_short, limit_reached, tiny_batches
from deepwire.training.schedule import rates_of
from deepwire.training.session import Callback, TrainingSession
from deepwire.training.trainer import Trainer
from deepwire.training.training_stream import training_stream
from deepwire.training.validation import DirectionsValidator, Validator, directions_in
from deepwire.training.warm_start.pretrained import start_pretrained
from deepwire.training.warm_start.start_from import start_from


@dataclass(frozen=True)
class Outcome:
    """What became of a run.

    Attributes:
        stop_reason: Why it stopped.
        best: The best checkpoint, or the newest where nothing was scored; None if nothing was saved.
    """

    stop_reason: StopReason
    best: Checkpoint | None


def nothing_to_do_reason(
    run: RunDirectory,
    config: TrainingConfig,
    resolved: Mapping[str, object],
    complete: Complete = as_recorded,
    changeable: Collection[str] = CHANGEABLE,
) -> str | None:
    """Why there is nothing to do in ``run``; None if there is. Nothing is written.

    Arguments as in `require_same_settings`.

    Raises:
        UsageError: If the run was started with other settings.
    """
    if not run.checkpoints() or not run.resolved_config.exists():
        return None
    try:
        require_same_settings(run.resolved_config, resolved, complete, changeable)
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


def run_training(
    spec: TrainingSpec,
    *,
    processes: ProcessGroup | None = None,
    fresh: bool = False,
    quiet: bool = False,
    handle_signals: bool = True,
    callbacks: Sequence[Callback] = (),
) -> Outcome:
    """Train in the run directory of the specification; a run that is there already is continued.

    Arguments and errors as in `open_session`, but signals are handled unless asked otherwise.
    """
    with open_session(
        spec,
        processes=processes,
        fresh=fresh,
        quiet=quiet,
        handle_signals=handle_signals,
        callbacks=callbacks,
    ) as session:
        for _ in session:
            pass
    assert session.stop_reason is not None, "a session that was left without an error has ended"
    return Outcome(session.stop_reason, session.trainer.recorder.best())


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
    GPU, the state of random numbers. It is given back afterwards.

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
        resume_point, recorder = None, cast("Recorder", SilentRecorder())
        if processes.main:
            opened = open_run(spec, device, processes, fresh=fresh, quiet=quiet)
            resume_point, recorder = stack.enter_context(opened)
        shared = processes.broadcast_value(resume_point.share() if resume_point is not None else None)
        if resume_point is None:
            resume_point = ResumePoint.of_main(shared, spec, device)
        trainer = make_trainer(spec, resume_point, recorder, device, processes, signals)
        recorder.begin()
        _introduce(trainer, resume_point.checkpoint)
        stack.enter_context(_memory_errors(spec))
        stack.enter_context(_begun_anew(fresh))
        session = stack.enter_context(closing(TrainingSession(trainer, callbacks)))
        yield session
        session.finish()


@contextmanager
def training_process(config: TrainingConfig, processes: ProcessGroup) -> Iterator[torch.device]:
    """The device to train on; within the block the process is set up for it.

    Raises:
        UsageError: If the device is not there, or another thread of this process trains.
    """
    with this_thread_alone(), given_back(), _views_unmentioned(config):
        device = choose_device(config.device, processes)
        # Setting the number, even to what it is, also keeps MKL from choosing one of its own call by call.
        torch.set_num_threads(processes.threads(config.threads))
        with own_random_numbers(device):
            yield device


@contextmanager
def _views_unmentioned(config: TrainingConfig) -> Iterator[None]:
    """Leave out what torch says about views where parameters are sharded.

    Results of sub-layers that are views are never changed in place here, which is what it warns of.
    """
    if config.sharding == "none":
        yield
        return
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", message="FSDP2-wrapped module")
        yield


def make_trainer(
    spec: TrainingSpec,
    resume_point: ResumePoint,
    recorder: Recorder,
    device: torch.device,
    processes: ProcessGroup,
    signals: Signals,
) -> Trainer:
    """Build model, optimizer and stream, filled from the checkpoint or the model that the run begins with.

    Raises:
        UsageError: If a setting does not fit the model.
        ModelError: If the checkpoint or the model to begin with does not fit.
    """
    config, record, state = spec.config, resume_point.record, resume_point.state
    record.precision_policy.apply()
    seed_random_numbers(spec.seed, device)
    model = spec.build()
    for stack in model.stacks().values():
        stack.recomputes = config.activation_checkpointing
    if resume_point.checkpoint is not None:
        read_weights(resume_point.checkpoint.path, model)
    elif processes.main:
        _begin_with_another(spec, model, recorder)
    frozen = freeze(model, config.freeze)
    scales = with_rate_factors(update_scales(model), model, config.rate_factors)
    model = model.to(device)
    if resume_point.checkpoint is None and processes.main:
        _profile(spec, model, record, device, recorder)
    strategy = _strategy(spec, model, processes)
    learning = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
    low = torch.bfloat16 if record.precision_policy.precision == "bf16" else torch.float32
    optimizer = make_optimizer(
        model, config.optimizer, config.clip_norm, strategy, product_dtype=low, scales=scales
    )
    average = MovingAverage(learning, config.ema, strategy) if config.ema is not None else None
    moments = load_moments(resume_point.checkpoint.path) if resume_point.checkpoint is not None else None
    _restore(optimizer, average, moments, state)
    _tell_what_to_know(spec, model.config, frozen, recorder)
    return Trainer(
        spec=spec,
        processes=processes,
        device=device,
        precision_policy=record.precision_policy,
        model=model,
        strategy=strategy,
        loss=torch.compile(model.forward, dynamic=True) if config.compile else strategy.loss,
        optimizer=optimizer,
        average=average,
        schedule=rates_of(config.schedule, d_model=model.config.base_width, max_updates=config.max_updates),
        stream=training_stream(spec, record.micro_batch_tokens, (processes.rank, processes.count)),
        epoch_size=EpochOrder(spec.prepared.train.parts, spec.seed).size,
        validator=_validator(spec, processes),
        state=state,
        recorder=recorder,
        signals=signals,
    )


def _tell_what_to_know(
    spec: TrainingSpec, model: ModelConfig, frozen: Mapping[str, int], recorder: Recorder
) -> None:
    """What does not learn, and what seems not to be meant."""
    for pattern, size in frozen.items():
        recorder.say(f"frozen by {pattern}: {short(size)} parameters")
    config, text = spec.config, spec.prepared.train
    of_batches = tiny_batches(config, len(text), text.tokens[1])
    for warning in (cut_short(config), of_batches, model.initialization_left_out()):
        if warning is not None:
            recorder.say(f"warning: {warning}")


def _profile(
    spec: TrainingSpec, model: TranslationModel, record: RunRecord, device: torch.device, recorder: Recorder
) -> None:
    """Let connections that need it look at the first micro-batch, the same for any number of processes."""
    if spec.begins_with_a_model or not model.needs_profile:
        return
    stream = training_stream(spec, record.micro_batch_tokens, (0, 1))
    with closing(feed(stream, StreamPosition(), device)) as updates:
        batch = next(updates).batches[0]
    with record.precision_policy.autocast():
        model.profile(batch.source, batch.target_input, languages=batch.languages)
    recorder.say("one pass over the first batch set the numbers that connections begin with")


def _begin_with_another(spec: TrainingSpec, model: TranslationModel, recorder: Recorder) -> None:
    """Fill the model from the one that the run is to begin with, if any."""
    config, words = spec.config, spec.prepared.vocabularies
    bos, languages, context = spec.source_bos, spec.prepared.languages, spec.prepared.context
    if config.start_from is not None:
        report = start_from(
            config.start_from, model, words, source_bos=bos, languages=languages, context=context
        )
        recorder.started_from(report)
    elif config.pretrained is not None:
        recorder.started_from(start_pretrained(config.pretrained, model, words))


def _restore(
    optimizer: Optimizer,
    average: MovingAverage | None,
    kept: Mapping[str, Tensor] | None,
    state: TrainingState,
) -> None:
    """Fill optimizer and averages with what a checkpoint has kept; None where this process has none."""
    if average is None:
        optimizer.load_state(kept, state.steps)
        return
    moments = kept and {name: tensor for name, tensor in kept.items() if not average.owns(name)}
    optimizer.load_state(moments, state.steps)
    if state.update > 0:  # all processes know that, and only the main one has what was kept
        average.load_state(kept)


def _strategy(spec: TrainingSpec, model: TranslationModel, processes: ProcessGroup) -> ParallelStrategy:
    if spec.config.sharding == "none" or processes.count == 1:
        return ParallelStrategy(model, processes)
    from deepwire.training.sharded_strategy import ShardedStrategy  # a second to import

    return ShardedStrategy(model, processes, spec.build)


def _validator(spec: TrainingSpec, processes: ProcessGroup) -> Validator | DirectionsValidator | None:
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


def _introduce(trainer: Trainer, checkpoint: Checkpoint | None) -> None:
    spec, say, device, processes = trainer.spec, trainer.recorder.say, trainer.device, trainer.processes
    parameters = sum(parameter.numel() for parameter in trainer.model.parameters())
    valid = spec.prepared.valid
    where = f"{processes.count} processes on {device.type}" if processes.count > 1 else f"on {device}"
    precision = trainer.precision_policy.precision
    say(f"run {spec.run.path} {where}, {precision}, {counted(torch.get_num_threads(), 'thread')}")
    if (wanted := spec.config.processes or 1) > processes.count:
        say(
            f"training.processes is {wanted}, but {processes.count} trains here: 'deepwire train' makes more "
            "on a CPU of a Linux machine, without training.compile and training.sharding"
        )
    if idle := idle_gpus(device, processes):
        every = again(processes=idle + processes.local_count)
        way = f"; all of them train with: {every}" if every else ""
        say(f"{counted(idle, 'more GPU stays', 'more GPUs stay')} idle{way}")
    unit = "blocks" if spec.prepared.train.packed else "pairs"
    say(
        f"{short(parameters)} parameters, {len(spec.prepared.train)} training {unit}, "
        f"{len(valid) if valid is not None else 'no'} validation {unit}"
    )
    for line in share_lines(spec.prepared.mix, spec.prepared.temperature) if spec.prepared.mix else ():
        say(line)
    if spec.prepared.languages is not None and valid is not None:
        scored = directions_in(valid, spec.prepared.languages)
        if missing := [
            name for direction in spec.prepared.languages.directions if (name := str(direction)) not in scored
        ]:
            say(f"no validation text for {', '.join(missing)}")
    for signature in spec.signatures:
        say(f"translations of the validation text are scored by {signature}")
    for note in spec.notes:
        say(f"note: {note}")
    if checkpoint is not None:
        epoch = trainer.state.epochs
        say(f"continued from {checkpoint.path.name}, update {trainer.state.update} (epoch {epoch:.2f})")


@contextmanager
def _begun_anew(fresh: bool) -> Iterator[None]:
    """What --fresh asked for is done when training has begun: once more it would move this run aside."""
    try:
        yield
    except DeepwireError as error:
        if fresh:
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
