"""Opening the run directory: lock it, find where to go on, settle what holds for the whole run.

One process does this and tells the others, which need not even see the directory.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import torch

from deepwire.checkpoint.run_directory import Checkpoint, RunDirectory
from deepwire.data.batches.batching import StreamPosition
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import ModelError, UsageError
from deepwire.io.atomic import disk_errors, move_aside, recover, remove_folder, write_json, write_text
from deepwire.io.regular_files import read_json
from deepwire.training.device import describe
from deepwire.training.logging.depth_records import DepthRecords
from deepwire.training.logging.metrics_log import MetricsLog, cut_after
from deepwire.training.logging.progress import Display
from deepwire.training.logging.tensorboard import EventWriter, NoEvents, TensorBoardEvents
from deepwire.training.recorder import Attempt, RunRecorder
from deepwire.training.run.checkpoints import load_state
from deepwire.training.run.record import RunRecord, processes_before
from deepwire.training.run.same_settings import changed_settings, require_same_settings
from deepwire.training.run.spec import TrainingSpec
from deepwire.training.run.state import TrainingState
from deepwire.training.schedule import WarmupStableDecayConfig

_SCORED_BY = "scored_by"


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
    aside, before = None, None
    if fresh and spec.run.path.exists():
        with spec.run.locked():
            aside = move_aside(spec.run.path)
    if spec.run.path.is_dir():
        before = frozenset(spec.run.path.iterdir())
    with spec.run.locked(), _taken_back(spec.run, before, aside) as attempt, ExitStack() as stack:
        display = stack.enter_context(Display(spec.run.log, quiet))
        with disk_errors(spec.run.path):
            recover(spec.run.path)
        checkpoint = spec.run.newest_sound(display.say, load_state)
        if checkpoint is not None:
            for change in _changes(spec, processes, checkpoint.update):
                display.say(f"changed: {change}")
        record = RunRecord.settle(spec, device, processes.count, continued=checkpoint is not None)
        _write_settings(spec, record, device)
        state, said = _state(spec, checkpoint)
        metrics = stack.enter_context(MetricsLog(spec.run.metrics))
        if checkpoint is not None:
            for line in said or _changed_metrics(state, metrics):
                display.say(f"warning: {line}")
        events = stack.enter_context(_events(spec, state))
        records = stack.enter_context(DepthRecords(spec.run, spec.config.record))
        recorder = RunRecorder(spec, display, metrics, events, records, attempt)
        yield ResumePoint(record, state, checkpoint), recorder


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


def _changes(spec: TrainingSpec, processes: ProcessGroup, made: int) -> list[str]:
    _require_same_rates(spec, made)
    changes = require_same_settings(spec.run.resolved_config, spec.resolved, spec.complete, spec.changeable)
    before = processes_before(spec)
    if before != processes.count:
        changes.append(f"processes: {before} -> {processes.count}")
    counted, now = read_json(spec.run.environment).get(_SCORED_BY), list(spec.signatures)
    if isinstance(counted, list) and counted and now and counted != now:
        changes.append(
            f"scores of translations: {', '.join(map(str, counted))} -> {', '.join(now)}; "
            "those from before the change do not compare with those after it"
        )
    return changes


def _require_same_rates(spec: TrainingSpec, made: int) -> None:
    """See that a run whose learning rate has begun to decay does not become longer or shorter."""
    schedule = spec.config.schedule
    changed = changed_settings(spec.run.resolved_config, spec.resolved, spec.complete)
    if not isinstance(schedule, WarmupStableDecayConfig) or any("schedule" in key for key in changed):
        return
    before, now = changed.get("training.max_updates", (spec.config.max_updates,) * 2)
    try:
        schedule.require_same_rates(made, _count(before), _count(now))
    except ValueError as error:
        raise UsageError(
            f"{spec.run.path}: cannot go on: {error}",
            "set training.max_updates back; a copy of the run without its checkpoints of the decay goes on "
            "exactly from the newest one that is left",
        ) from None


def _count(value: object) -> int | None:
    return value if isinstance(value, int) else None


def _write_settings(spec: TrainingSpec, record: RunRecord, device: torch.device) -> None:
    run = spec.run
    if spec.user_config:
        write_text(run.user_config, spec.user_config)
    write_json(run.resolved_config, spec.resolved)
    facts = {**record.to_json(), "environment": describe(device), _SCORED_BY: list(spec.signatures)}
    write_json(run.environment, facts)
    run.done.unlink(missing_ok=True)


def _state(spec: TrainingSpec, checkpoint: Checkpoint | None) -> tuple[TrainingState, list[str]]:
    """The state to go on from, and what of the records up to it is damaged; later ones are forgotten."""
    run = spec.run
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
def _events(spec: TrainingSpec, state: TrainingState) -> Iterator[EventWriter]:
    events = TensorBoardEvents(spec.run.tensorboard, state.update) if spec.config.tensorboard else NoEvents()
    try:
        yield events
    finally:
        events.close()
