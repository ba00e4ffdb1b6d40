"""A few real updates that leave nothing behind: what a run will need, and how long it will take."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from statistics import mean

import torch
from rich.filesize import decimal

from deepwire.checkpoint.model_files import bytes_of
from deepwire.checkpoint.store import model_parameters
from deepwire.config.counts import counted
from deepwire.data.batches.batching import StreamPosition
from deepwire.distributed.process_group import ProcessGroup
from deepwire.training.config import TrainingConfig
from deepwire.training.device import DeviceUpdate, feed, peak_memory
from deepwire.training.log import RunLog, human_time, short
from deepwire.training.loop import Trainer, make_update
from deepwire.training.run import TrainingRun, open_run
from deepwire.training.session import make_trainer, training_process
from deepwire.training.spec import TrainingSpec
from deepwire.training.state import Signals

# The first update also pays for what happens once: allocation, choice of kernels, compilation.
_WARM_UP = 1
_TIMED = 4
_ENOUGH_SECONDS = 30.0


@dataclass(frozen=True)
class DryRun:
    """Findings of a few updates about a run. Memory is that of one process, all else that of all together.

    Attributes:
        parameters: Numbers in the model.
        place: Device, number format and threads, in words.
        updates: Updates that were timed, after one that was not.
        loss: Smoothed loss per target token of the first update, nats.
        seconds: Time of an update.
        tokens_per_second: Target tokens.
        memory: Peak, in bytes.
        checkpoint: Bytes of a checkpoint on disk.
        updates_in_epoch: Expected; from the lengths in the prepared text.
        updates_in_run: Expected until the first limit of the run.
    """

    parameters: int
    place: str
    updates: int
    loss: float
    seconds: float
    tokens_per_second: float
    memory: int
    checkpoint: int
    updates_in_epoch: float
    updates_in_run: float

    def lines(self) -> list[str]:
        """The report for people."""
        return [
            f"parameters      {short(self.parameters)}",
            f"computes        {self.place}",
            f"memory          {decimal(self.memory)} at most in {self.updates + _WARM_UP} updates",
            f"checkpoint      {decimal(self.checkpoint)} on disk",
            f"speed           {short(self.tokens_per_second)} target tokens/s, {self.seconds:.3g} s/update",
            f"first loss      {self.loss:.3f} per target token",
            f"an epoch        {_length(self.updates_in_epoch, self.seconds)}",
            f"the whole run   {_length(self.updates_in_run, self.seconds)} without validation and saving",
        ]


def dry_run(spec: TrainingSpec, *, processes: ProcessGroup | None = None) -> DryRun:
    """Make a few updates as training would make its first ones; no run directory is made, read or changed.

    Args:
        spec: What would be trained.
        processes: Those that would train together, each of which calls this; default: this one alone.

    Raises:
        UsageError: If the settings do not fit the model or the machine.
        ResourceError: If memory does not suffice.
    """
    processes = processes or ProcessGroup()
    with training_process(spec.config, processes) as device:
        log = RunLog(spec, partial(print, flush=True) if processes.main else None)
        run = open_run(spec, processes, device, log, Signals())
        for note in spec.notes:
            log.say(f"note: {note}")
        trainer = make_trainer(run)
        trainer.model.train()
        updates, losses, seconds = zip(*_measured(run, trainer), strict=True)
        threads = torch.get_num_threads()
    timed = slice(_WARM_UP if len(updates) > _WARM_UP else 0, None)
    tokens = [float(update.target_tokens) for update in updates[timed]]
    moments = trainer.optimizer.state() | (trainer.average.state() if trainer.average is not None else {})
    in_epoch = _tokens_of_epoch(spec) / mean(tokens)
    precision = run.decisions.numerics.precision
    processes_on = f"{processes.count} processes on " if processes.count > 1 else ""
    return DryRun(
        parameters=sum(parameter.numel() for parameter in trainer.model.parameters()),
        place=f"{processes_on}{device}, {precision}, {counted(threads, 'thread')}",
        updates=len(tokens),
        loss=losses[0],
        seconds=mean(seconds[timed]),
        tokens_per_second=mean(tokens) / mean(seconds[timed]),
        memory=peak_memory(device),
        checkpoint=bytes_of(model_parameters(trainer.model)) + bytes_of(moments),
        updates_in_epoch=in_epoch,
        updates_in_run=_updates_of_run(spec.config, in_epoch, mean(tokens)),
    )


def _measured(run: TrainingRun, trainer: Trainer) -> Iterator[tuple[DeviceUpdate, float, float]]:
    """Make the updates; yields each with its loss per target token and the seconds that it took."""
    begun, enough = time.perf_counter(), False
    with closing(feed(trainer.stream, StreamPosition(), run.device)) as updates:
        for number in range(_WARM_UP + _TIMED):
            if enough:
                break
            started = time.perf_counter()
            update = next(updates)
            sums, step = make_update(run, trainer, update)
            loss = float(sums["loss"]) / update.target_tokens  # waits for the device
            if not bool(step.finite):
                run.log.say(f"u {update.number}: loss or gradient is not finite")
            yield update, loss, time.perf_counter() - started
            slow = time.perf_counter() - begun > _ENOUGH_SECONDS and number >= _WARM_UP
            enough = bool(run.processes.all_reduce_numbers([slow])[0])


def _tokens_of_epoch(spec: TrainingSpec) -> float:
    """Target tokens, end symbols included, that an epoch reads of the weighted corpora."""
    store = spec.prepared.train
    return sum(
        part.weight * (int(store.target_side.lengths[part.start : part.stop].sum()) + part.stop - part.start)
        for part in store.parts
    )


def _updates_of_run(config: TrainingConfig, in_epoch: float, tokens: float) -> float:
    """Updates until the limit that is reached first."""
    limits = [] if config.max_updates is None else [float(config.max_updates)]
    if config.stop_after is not None:
        updates = {"updates": 1.0, "epochs": in_epoch, "tokens": 1 / tokens}
        limits.append(config.stop_after.amount * updates[config.stop_after.unit])
    return min(limits)


def _length(updates: float, seconds: float) -> str:
    return f"{updates:,.0f} updates, {human_time(updates * seconds)}"
