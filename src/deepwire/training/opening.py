"""Opening the run directory: lock it, find where to go on, settle what holds for the whole run.

One process does this and tells the others, which need not even see the directory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from deepwire.checkpoint.files import (
    disk_errors,
    read_json,
    recover,
    remove_folder,
    write_json,
    write_text,
)
from deepwire.checkpoint.lock import locked
from deepwire.checkpoint.retention import Checkpoint
from deepwire.checkpoint.run_directory import RunDirectory, move_aside
from deepwire.data.batching import StreamPosition
from deepwire.errors import ModelError
from deepwire.training.depth_records import DepthRecords
from deepwire.training.device import describe
from deepwire.training.job import Job
from deepwire.training.metrics_log import MetricsLog, cut_after
from deepwire.training.processes import Processes
from deepwire.training.progress import Display
from deepwire.training.recorder import Attempt, RunRecorder
from deepwire.training.resume import require_same_settings
from deepwire.training.run_record import RunRecord, processes_before
from deepwire.training.saving import load_state
from deepwire.training.state import TrainingState
from deepwire.training.tensorboard import EventWriter, NoEvents, TensorBoardEvents

_SCORED_BY = "scored_by"


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
    aside, before = None, None
    if fresh and job.run.path.exists():
        with locked(job.run.path):
            aside = move_aside(job.run.path)
    if job.run.path.is_dir():
        before = frozenset(job.run.path.iterdir())
    with locked(job.run.path), _taken_back(job.run, before, aside) as attempt, ExitStack() as stack:
        display = stack.enter_context(Display(job.run.log, quiet))
        with disk_errors(job.run.path):
            recover(job.run.path)
        checkpoint = job.run.newest_sound(display.say, load_state)
        if checkpoint is not None:
            for change in _changes(job, processes):
                display.say(f"changed: {change}")
        record = RunRecord.settle(job, device, processes.count, continued=checkpoint is not None)
        _write_settings(job, record, device)
        state = _state(job, checkpoint)
        metrics = stack.enter_context(MetricsLog(job.run.metrics))
        events = stack.enter_context(_events(job, state))
        records = stack.enter_context(DepthRecords(job.run, job.config.record))
        recorder = RunRecorder(job, display, metrics, events, records, attempt)
        yield Beginning(record, state, checkpoint), recorder


@contextmanager
def _taken_back(run: RunDirectory, before: Collection[Path] | None, aside: Path | None) -> Iterator[Attempt]:
    """Leave things as they were where a run fails before it trains: the next try begins without its traces.

    Args:
        run: Held by this process.
        before: What was in its folder; None where there was none.
        aside: Where a run was moved that was there before.
    """
    attempt = Attempt()
    try:
        yield attempt
    except BaseException:
        if not attempt.training and not run.checkpoints():
            with suppress(OSError):
                for path in set(run.path.iterdir()).difference(before or ()):
                    if path.is_dir():
                        remove_folder(path)
                    else:
                        path.unlink()
                if before is None:
                    run.path.rmdir()
                if aside is not None:
                    aside.rename(run.path)
        raise


def _changes(job: Job, processes: Processes) -> list[str]:
    changes = require_same_settings(job.run.resolved_config, job.resolved, job.complete)
    before = processes_before(job)
    if before != processes.count:
        changes.append(f"processes: {before} -> {processes.count}")
    counted, now = read_json(job.run.environment).get(_SCORED_BY), list(job.signatures)
    if isinstance(counted, list) and counted and now and counted != now:
        changes.append(
            f"scores of translations: {', '.join(map(str, counted))} -> {', '.join(now)}; "
            "those from before the change do not compare with those after it"
        )
    return changes


def _write_settings(job: Job, record: RunRecord, device: torch.device) -> None:
    run = job.run
    if job.user_config:
        write_text(run.user_config, job.user_config)
    write_json(run.resolved_config, job.resolved)
    facts = {**record.to_json(), "environment": describe(device), _SCORED_BY: list(job.signatures)}
    write_json(run.environment, facts)
    run.done.unlink(missing_ok=True)


def _state(job: Job, checkpoint: Checkpoint | None) -> TrainingState:
    """The state to go on from; what was logged after it is forgotten."""
    state = TrainingState(StreamPosition()) if checkpoint is None else load_state(checkpoint.path)
    cut_after(job.run.metrics, state.update, drop_validation=state.validation_due)
    for path in (job.run.bad_batch, job.run.gradients, job.run.depth_weights):
        cut_after(path, state.update)
    return state


@contextmanager
def _events(job: Job, state: TrainingState) -> Iterator[EventWriter]:
    events = TensorBoardEvents(job.run.tensorboard, state.update) if job.config.tensorboard else NoEvents()
    try:
        yield events
    finally:
        events.close()
