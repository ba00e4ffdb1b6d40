"""Opening the run directory: lock it, find where to go on, settle what holds for the whole run.

One process does this and tells the others, which need not even see the directory.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import cast

import torch

from deepwire.checkpoint.run_directory import Checkpoint
from deepwire.checkpoint.store import read_config
from deepwire.data.batches.batching import StreamPosition
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import DataError, ModelError, UsageError
from deepwire.io.atomic import disk_errors, recover, write_json, write_text
from deepwire.io.regular_files import read_json
from deepwire.plugins import check_recorded
from deepwire.training.device import PrecisionPolicy, describe, usual_micro_batch
from deepwire.training.fresh_start import hold_run
from deepwire.training.logging.depth_records import DepthRecords
from deepwire.training.logging.metrics_log import (
    EventWriter,
    MetricsLog,
    NoEvents,
    TensorBoardEvents,
    cut_after,
    read_records,
)
from deepwire.training.logging.progress import Display
from deepwire.training.recorder import RunRecorder
from deepwire.training.run.spec import (
    TrainingSpec,
    changed_settings,
    missing_file_hint,
    read_run_file,
    require_same_digests,
    require_same_settings,
)
from deepwire.training.run.state import TrainingState, load_state
from deepwire.training.schedule import rates_of


@dataclass(frozen=True)
class RunRecord:
    """Decisions that a continuation repeats.

    Attributes:
        precision_policy: Number formats.
        micro_batch_tokens: Padded tokens of one forward pass; with it the grouping of sentences is fixed.
        digests: What stands for the text: digests of the prepared text and vocabularies, corpus weights.
        processes: How many processes train; not a decision, because a continuation may have another number.
    """

    precision_policy: PrecisionPolicy
    micro_batch_tokens: int
    digests: dict[str, str]
    processes: int

    @classmethod
    def settle(
        cls, spec: TrainingSpec, device: torch.device, processes: int, *, continued: bool
    ) -> RunRecord:
        """Decide, or repeat what the run decided when it was started.

        Raises:
            UsageError: If the text or the vocabularies changed since then.
            ModelError: If ``env.json`` is damaged.
        """
        digests = _digests(spec)
        wanted = spec.config.micro_batch_tokens
        if not continued:
            precision_policy = PrecisionPolicy.choose(spec.config.precision, device)
            return cls(precision_policy, wanted or _micro_batch(spec, precision_policy), digests, processes)
        path = spec.run.environment
        stored = read_run_file(path)
        before, micro_batch = stored.get("digests"), stored.get("micro_batch_tokens")
        if not isinstance(before, dict):
            raise _damaged(path, f"digests are {before!r}")
        if micro_batch is not None and not (isinstance(micro_batch, int) and micro_batch > 0):
            raise _damaged(path, f"micro_batch_tokens is {micro_batch!r}")
        require_same_digests(spec.run.path, before, digests, spec.resolved)
        try:
            precision_policy = PrecisionPolicy.from_json(stored.get("numerics"))
        except ModelError as error:
            raise _damaged(path, error.message) from error
        if not precision_policy.serves(spec.config.precision, device):
            precision_policy = PrecisionPolicy.choose(spec.config.precision, device)
        tokens = micro_batch or wanted or _micro_batch(spec, precision_policy)
        return cls(precision_policy, tokens, digests, processes)

    @classmethod
    def from_json(cls, value: object) -> RunRecord:
        """Read what ``to_json`` gave.

        Raises:
            ModelError: If it is something else.
        """
        match value:
            case {
                "numerics": precision_policy,
                "micro_batch_tokens": int(tokens),
                "digests": dict(digests),
                "processes": int(processes),
            }:
                return cls(PrecisionPolicy.from_json(precision_policy), tokens, digests, processes)
            case _:
                raise ModelError(f"stored decisions are damaged: {value!r}")

    def require_here(self, spec: TrainingSpec, device: torch.device) -> None:
        """See that this process, which did not decide, has the same text and the same kind of device.

        Raises:
            DataError: If it has other text.
            UsageError: If it has another kind of device.
        """
        digests = _digests(spec)
        if digests != self.digests:
            names = ", ".join(name for name in digests if digests[name] != self.digests.get(name))
            raise DataError(
                f"{spec.prepared.folder}: the processes of this run see different text ({names})",
                "see that data.train and data.prepared hold the same on all machines",
            )
        if device.type != self.precision_policy.device_type:
            raise UsageError(
                f"one process trains on {self.precision_policy.device_type}, another on {device.type}",
                "set training.device: cpu, or start processes only where there is a GPU for each",
            )

    def to_json(self) -> dict[str, object]:
        """Plain values for ``env.json``."""
        return {
            "digests": self.digests,
            "numerics": self.precision_policy.to_json(),
            "micro_batch_tokens": self.micro_batch_tokens,
            "processes": self.processes,
        }


def _damaged(path: Path, reason: str) -> ModelError:
    return ModelError(f"{path}: is damaged: {reason}", missing_file_hint(path))


def processes_before(spec: TrainingSpec) -> int:
    """How many processes trained the run before.

    Raises:
        ModelError: If ``env.json`` is damaged.
    """
    count = read_run_file(spec.run.environment).get("processes")
    return count if isinstance(count, int) else 1


def _micro_batch(spec: TrainingSpec, precision_policy: PrecisionPolicy) -> int:
    match spec.resolved:
        case {"model": {"d_model": int(width)}}:
            return usual_micro_batch(precision_policy.device_type, precision_policy.precision, width)
        case _:  # not made from a run file
            return usual_micro_batch(precision_policy.device_type, precision_policy.precision, 0)


def _digests(spec: TrainingSpec) -> dict[str, str]:
    weights = " ".join(str(part.weight) for part in spec.prepared.train.parts)
    vocabularies = spec.prepared.vocabularies.digest
    return {"text": spec.prepared.digest, "vocabularies": vocabularies, "corpus weights": weights}


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
        UsageError: If another run trains there, what is there cannot be moved, or the settings or text are
            not those of the run.
        ModelError: If all its checkpoints are damaged or gone.
        ResourceError: If the directory cannot be written.
    """
    with hold_run(spec.run, fresh=fresh) as (attempt, aside), ExitStack() as stack:
        spec.run.require_config_kept(spec.user_config)
        display = stack.enter_context(Display(spec.run.log, quiet))
        if aside is not None:
            display.say(f"the run that was in {spec.run.path} is now {aside}")
        with disk_errors(spec.run.path):
            recover(spec.run.path)
        checkpoint = spec.run.newest_sound(display.say, load_state)
        if checkpoint is None:
            _require_nothing_lost(spec)
        else:
            for change in _changes(spec, processes, checkpoint.update):
                display.say(f"changed: {change}")
            for warning in check_recorded(read_config(checkpoint.path).get("plugins"), str(checkpoint.path)):
                display.say(f"warning: {warning}")
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


def _require_nothing_lost(spec: TrainingSpec) -> None:
    """See that a run without a checkpoint never had one: it begins anew, which cuts its records."""
    run, last = spec.run, 0
    with suppress(DataError):  # what is damaged is kept, and said
        updates = [record.get("update") for record in read_records(run.metrics)]
        last = max((update for update in updates if isinstance(update, int)), default=0)
    if last > _first_checkpoint(spec) or run.done.exists() or run.known_checkpoints():
        raise ModelError(
            f"{run.checkpoints_folder}: the checkpoints of this run are gone; "
            f"its records go up to update {last}",
            "put them back, or start over with --fresh, which moves this run aside",
        )


def _first_checkpoint(spec: TrainingSpec) -> int:
    """The update of the first checkpoint, as the run was begun and as it would be now: the later one."""
    now = spec.config.checkpoint_interval
    try:
        begun = cast("dict[str, dict[str, int]]", read_json(spec.run.resolved_config)["training"])
        return max(now, begun["checkpoint"]["every"] or begun["validation"]["every"])
    except (ModelError, KeyError, TypeError):  # what is damaged is said elsewhere
        return now


def _changes(spec: TrainingSpec, processes: ProcessGroup, made: int) -> list[str]:
    rates = _rates_of_other_length(spec, made)
    changes = require_same_settings(spec.run.resolved_config, spec.resolved, spec.complete, spec.changeable)
    changes += rates
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


def _rates_of_other_length(spec: TrainingSpec, made: int) -> list[str]:
    """What becomes of the learning rate where a run becomes longer or shorter.

    Nothing where the updates so far had the rates that they have in a run of this length.

    Raises:
        UsageError: If the schedule refuses another length by now.
    """
    changed = changed_settings(spec.run.resolved_config, spec.resolved, spec.complete)
    schedule = spec.config.schedule
    if any("schedule" in key for key in changed) or not schedule.follows_length:
        return []
    before, now = (_count(length) for length in changed.get("training.max_updates", (None, None)))
    if before == now:
        return []
    try:
        schedule.require_same_rates(made, before, now)
    except ValueError as error:
        raise UsageError(
            f"{spec.run.path}: cannot go on: {error}",
            "set training.max_updates back; a copy of the run without its checkpoints of the decay goes on "
            "exactly from the newest one that is left",
        ) from None
    # Of any width: they are compared with each other alone.
    old, new = (rates_of(schedule, d_model=1, max_updates=length) for length in (before, now))
    was, is_now = old(made + 1), new(made + 1)
    # From the last one on: where the lengths matter at all, rates of early updates are the most alike.
    if was == is_now or all(old(update) == new(update) for update in range(made, 0, -1)):
        return []
    change = "rises" if is_now > was else "falls"
    return [
        f"the learning rate {change} to that of a run of {now} updates, which schedule {schedule.type} "
        f"follows; the {made} updates so far had that of a run of {before}"
    ]


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
