"""Opening the run directory: lock it, find where to go on, settle what holds for the whole run.

One process does this and tells the others, which need not even see the directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass

import torch

from deepwire.checkpoint.files import disk_errors, recover, write_json, write_text
from deepwire.checkpoint.lock import locked
from deepwire.checkpoint.retention import Checkpoint
from deepwire.checkpoint.run_directory import move_aside
from deepwire.data.batching import StreamPosition
from deepwire.errors import ModelError
from deepwire.training.depth_records import DepthRecords
from deepwire.training.device import describe
from deepwire.training.job import Job
from deepwire.training.metrics_log import MetricsLog, cut_after
from deepwire.training.processes import Processes
from deepwire.training.progress import Display
from deepwire.training.recorder import RunRecorder
from deepwire.training.resume import require_same_settings
from deepwire.training.run_record import RunRecord, processes_before
from deepwire.training.saving import load_state
from deepwire.training.state import TrainingState
from deepwire.training.tensorboard import EventWriter, NoEvents, TensorBoardEvents


@dataclass(frozen=True)
class Beginning:
    """What training goes on from.

    Attributes:
        record: The decisions of the run.
        state: How far it has come.
        checkpoint: Where parameters and moments are; None at the very beginning, and in other processes than
            the main one.
    """

    record: RunRecord
    state: TrainingState
    checkpoint: Checkpoint | None

    def share(self) -> dict[str, object]:
        """What the other processes need, as plain values."""
        return {"record": self.record.to_json(), "state": self.state.to_json()}

    @classmethod
    def of_main(cls, shared: object, job: Job, device: torch.device) -> Beginning:
        """Read what ``share`` gave in the main process, in another one.

        Raises:
            DataError: If this process sees other text.
            UsageError: If it has another kind of device.
            ModelError: If it is something else.
        """
        match shared:
            case {"record": record, "state": dict(state)}:
                begun = cls(RunRecord.from_json(record), TrainingState.from_json(state), None)
                begun.record.require_here(job, device)
                return begun
            case _:
                raise ModelError(f"not what a run begins with: {shared!r}")


@contextmanager
def open_run(
    job: Job, device: torch.device, processes: Processes, *, fresh: bool, quiet: bool
) -> Iterator[tuple[Beginning, RunRecorder]]:
    """Hold the run directory, and bring it into a state to go on from; for the main process.

    Raises:
        UsageError: If another run trains there, or the settings or text are not those of the run.
        ModelError: If all its checkpoints are damaged.
        ResourceError: If the directory cannot be written.
    """
    if fresh and job.run.path.exists():
        with locked(job.run.path):
            move_aside(job.run.path)
    with locked(job.run.path), ExitStack() as stack:
        display = stack.enter_context(Display(job.run.log, quiet))
        with disk_errors(job.run.path):
            recover(job.run.path)
        checkpoint = job.run.newest_sound(display.say, load_state)
        if checkpoint is not None:
            for change in _changes(job, processes):
                display.say(f"changed: {change}")
        record = RunRecord.settle(job, device, processes.count, continued=checkpoint is not None)
        _write_settings(job, record, device)
        state, said = _state(job, checkpoint)
        metrics = stack.enter_context(MetricsLog(job.run.metrics))
        if checkpoint is not None:
            for line in said or _changed_metrics(state, metrics):
                display.say(f"warning: {line}")
        events = stack.enter_context(_events(job, state))
        records = stack.enter_context(DepthRecords(job.run, job.config.record))
        yield Beginning(record, state, checkpoint), RunRecorder(job, display, metrics, events, records)


def _changes(job: Job, processes: Processes) -> list[str]:
    changes = require_same_settings(job.run.resolved_config, job.resolved, job.complete)
    before = processes_before(job)
    if before != processes.count:
        changes.append(f"processes: {before} -> {processes.count}")
    return changes


def _write_settings(job: Job, record: RunRecord, device: torch.device) -> None:
    run = job.run
    if job.user_config:
        write_text(run.user_config, job.user_config)
    write_json(run.resolved_config, job.resolved)
    write_json(run.environment, {**record.to_json(), "environment": describe(device)})
    run.done.unlink(missing_ok=True)


def _state(job: Job, checkpoint: Checkpoint | None) -> tuple[TrainingState, list[str]]:
    """The state to go on from, and what of the records up to it is damaged; later ones are forgotten."""
    run = job.run
    state = TrainingState(StreamPosition()) if checkpoint is None else load_state(checkpoint.path)
    said = []
    if not run.metrics.exists():
        said.append(f"{run.metrics.name} is missing: the records up to update {state.update} are lost")
    said.append(cut_after(run.metrics, state.update, drop_validation=state.validation_due))
    said += [cut_after(path, state.update) for path in (run.bad_batch, run.gradients, run.depth_weights)]
    return state, [line for line in said if line]


def _changed_metrics(state: TrainingState, metrics: MetricsLog) -> list[str]:
    """A warning where the records up to a checkpoint are not those that were there when it was saved."""
    if state.metrics in ("", metrics.digest):
        return []
    saved = f"since update {state.update} was saved"
    return [f"{metrics.path.name} was changed {saved}: records may be wrong or missing"]


@contextmanager
def _events(job: Job, state: TrainingState) -> Iterator[EventWriter]:
    events = TensorBoardEvents(job.run.tensorboard, state.update) if job.config.tensorboard else NoEvents()
    try:
        yield events
    finally:
        events.close()
