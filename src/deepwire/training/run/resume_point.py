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
from deepwire.data.batches.batching import StreamPosition
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import ModelError
from deepwire.training.device import describe
from deepwire.training.logging.depth_records import DepthRecords
from deepwire.training.logging.metrics_log import MetricsLog, cut_after
from deepwire.training.logging.progress import Display
from deepwire.training.logging.recorder import RunRecorder
from deepwire.training.logging.tensorboard import EventWriter, NoEvents, TensorBoardEvents
from deepwire.training.run.checkpoints import load_state
from deepwire.training.run.record import RunRecord, processes_before
from deepwire.training.run.same_settings import require_same_settings
from deepwire.training.run.spec import TrainingSpec
from deepwire.training.run.state import TrainingState


@dataclass(frozen=True)
class ResumePoint:
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
    def of_main(cls, shared: object, spec: TrainingSpec, device: torch.device) -> ResumePoint:
        """Read what ``share`` gave in the main process, in another one.

        Raises:
            DataError: If this process sees other text.
            UsageError: If it has another kind of device.
            ModelError: If it is something else.
        """
        match shared:
            case {"record": record, "state": dict(state)}:
                resume_point = cls(RunRecord.from_json(record), TrainingState.from_json(state), None)
                resume_point.record.require_here(spec, device)
                return resume_point
            case _:
                raise ModelError(f"not what a run begins with: {shared!r}")


@contextmanager
def open_run(
    spec: TrainingSpec, device: torch.device, processes: ProcessGroup, *, fresh: bool, quiet: bool
) -> Iterator[tuple[ResumePoint, RunRecorder]]:
    """Hold the run directory, and bring it into a state to go on from; for the main process.

    Raises:
        UsageError: If another run trains there, or the settings or text are not those of the run.
        ModelError: If all its checkpoints are damaged.
        ResourceError: If the directory cannot be written.
    """
    if fresh and spec.run.path.exists():
        with locked(spec.run.path):
            move_aside(spec.run.path)
    with locked(spec.run.path), ExitStack() as stack:
        display = stack.enter_context(Display(spec.run.log, quiet))
        with disk_errors(spec.run.path):
            recover(spec.run.path)
        checkpoint = spec.run.newest_sound(display.say)
        if checkpoint is not None:
            for change in _changes(spec, processes):
                display.say(f"changed: {change}")
        record = RunRecord.settle(spec, device, processes.count, continued=checkpoint is not None)
        _write_settings(spec, record, device)
        state = _state(spec, checkpoint)
        metrics = stack.enter_context(MetricsLog(spec.run.metrics))
        events = stack.enter_context(_events(spec, state))
        records = stack.enter_context(DepthRecords(spec.run, spec.config.record))
        yield ResumePoint(record, state, checkpoint), RunRecorder(spec, display, metrics, events, records)


def _changes(spec: TrainingSpec, processes: ProcessGroup) -> list[str]:
    changes = require_same_settings(spec.run.resolved_config, spec.resolved, spec.complete, spec.changeable)
    before = processes_before(spec)
    if before != processes.count:
        changes.append(f"processes: {before} -> {processes.count}")
    return changes


def _write_settings(spec: TrainingSpec, record: RunRecord, device: torch.device) -> None:
    run = spec.run
    if spec.user_config:
        write_text(run.user_config, spec.user_config)
    write_json(run.resolved_config, spec.resolved)
    write_json(run.environment, {**record.to_json(), "environment": describe(device)})
    run.done.unlink(missing_ok=True)


def _state(spec: TrainingSpec, checkpoint: Checkpoint | None) -> TrainingState:
    """The state to go on from; what was logged after it is forgotten."""
    state = TrainingState(StreamPosition()) if checkpoint is None else load_state(checkpoint.path)
    cut_after(spec.run.metrics, state.update, drop_validation=state.validation_due)
    for path in (spec.run.bad_batch, spec.run.gradients, spec.run.depth_weights):
        cut_after(path, state.update)
    return state


@contextmanager
def _events(spec: TrainingSpec, state: TrainingState) -> Iterator[EventWriter]:
    events = TensorBoardEvents(spec.run.tensorboard, state.update) if spec.config.tensorboard else NoEvents()
    try:
        yield events
    finally:
        events.close()
