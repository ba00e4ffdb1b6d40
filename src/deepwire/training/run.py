"""How far a run has come, its checkpoints and decisions: everything that a continuation needs."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, cast

import torch
from pydantic import BaseModel, ConfigDict, Field, PlainValidator, TypeAdapter, ValidationError
from torch import Tensor

from deepwire.checkpoint.model_files import DamagedError, bytes_of, read_tensors, write_tensors
from deepwire.checkpoint.run_directory import LOCK, Checkpoint, RunDirectory, better
from deepwire.checkpoint.store import OPTIMIZER, STATE, read_config, write_model_files
from deepwire.data.batches.batching import StreamPosition
from deepwire.errors import DataError, ModelError, Tell, UsageError
from deepwire.io.atomic import json_text, move_aside, require_space, write_json, write_text
from deepwire.io.regular_files import read_json
from deepwire.model.translation_model import TranslationModel
from deepwire.plugins import check_recorded
from deepwire.training.config import EarlyStoppingConfig
from deepwire.training.device import PrecisionPolicy, describe, usual_micro_batch
from deepwire.training.parallel_strategy import Snapshot
from deepwire.training.spec import TrainingSpec, missing_file_hint, read_run_file, require_same_digests

# More than any run can reach, and few enough to calculate with.
_Count = Annotated[int, Field(ge=0, le=10**15)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]
_SLACK = 1_000_000


def _position(value: dict[str, object]) -> StreamPosition:
    position = StreamPosition.from_json(value)
    if position.epoch > 10**9 or max(position.window, position.index, position.number) > 10**15:
        raise ValueError("it is beyond the end of any text")
    return position


@dataclass
class Patience:
    """Counts the scores since a metric last improved.

    Attributes:
        best: The best score so far; None before the first.
        waited: Scores since then.
        metric: What was scored; empty where an earlier version did not record it.
    """

    __pydantic_config__ = ConfigDict(strict=True)

    best: float | None = None
    waited: _Count = 0
    metric: str = ""

    def update(self, config: EarlyStoppingConfig, scores: dict[str, float]) -> None:
        """Take note of one validation; one without the metric does not count."""
        score = scores.get(config.metric)
        if score is None:
            return
        if self.metric not in ("", config.metric):  # the user changed it: scores of another do not compare
            self.best, self.waited = None, 0
        self.metric = config.metric
        if math.isfinite(score) and (self.best is None or self._improves(config, score, self.best)):
            self.best, self.waited = score, 0
        else:
            self.waited += 1

    def exhausted(self, config: EarlyStoppingConfig) -> bool:
        """Whether it is time to stop; not for the sake of scores of another metric."""
        return self.metric in ("", config.metric) and self.waited >= config.patience

    def _improves(self, config: EarlyStoppingConfig, score: float, best: float) -> bool:
        return better(config.metric, score, best) and abs(score - best) >= config.min_improvement


@dataclass
class TrainingState:
    """Progress of a run after ``update`` updates.

    Attributes:
        update: Updates made, those that were skipped because they were not finite included.
        position: Where the stream of updates goes on.
        epochs: Epochs made, with their fraction.
        epoch: The present epoch, from 0.
        pairs: Sentence pairs read in it.
        target_tokens: Target tokens seen.
        steps: Steps of the optimizer: updates without the skipped ones.
        bad_in_a_row: Skipped updates since the last good one.
        pieces: How many pieces a micro-batch is cut in since memory ran out; 1 as long as it did not.
        seconds: Time spent on the run.
        patience: Early stopping.
        validation_due: Whether the validation of this update was interrupted and has to be made up.
        scores: Validation scores of this update; empty where there was no validation.
        interval: Sums of the interval since the last line of the log.
        learning_rate: What a program has set in place of the schedule; None: nothing.
        interim: Whether it is stored only because training was stopped.
    """

    __pydantic_config__ = ConfigDict(strict=True)

    position: Annotated[StreamPosition, PlainValidator(_position)]
    update: _Count = 0
    epochs: _Finite = 0.0
    epoch: Annotated[int, Field(ge=0, le=10**9)] = 0
    pairs: _Count = 0
    target_tokens: _Count = 0
    steps: _Count = 0
    bad_in_a_row: _Count = 0
    pieces: _Count = 1
    seconds: _Finite = 0.0
    patience: Patience = field(default_factory=Patience)
    validation_due: bool = False
    scores: dict[str, float] = field(default_factory=dict)
    interval: list[float] = field(default_factory=list)
    learning_rate: float | None = None
    interim: bool = False

    def to_json(self) -> dict[str, object]:
        """Plain values for ``state.json``; floats come back to the last bit."""
        values = dataclasses.asdict(self)
        # Versions that do not know these can go on from here.
        if self.learning_rate is None:
            del values["learning_rate"]
        if not self.interim:
            del values["interim"]
        return values

    def pass_epoch(self, epoch: int, pairs: int, size: int) -> None:
        """Take note of ``pairs`` more sentence pairs, read in ``epoch`` (from 0) of ``size`` pairs."""
        if epoch != self.epoch:
            self.epoch, self.pairs = epoch, 0
        self.pairs += pairs
        self.epochs = epoch + self.pairs / size

    @classmethod
    def from_json(cls, value: Mapping[str, object]) -> TrainingState:
        """Read what ``to_json`` gave, in this version or an earlier one.

        Raises:
            ModelError: If it is something else.
        """
        try:
            state = _STATES.validate_json(json.dumps(value))
            if state.position.number != state.update:
                raise ValueError(f"update {state.update} is not where the text goes on")
        except (TypeError, ValueError, ModelError) as error:
            raise ModelError(f"the stored training state is damaged: {first_fault(error)}") from error
        return state


_STATES = TypeAdapter(TrainingState)


def first_fault(error: Exception) -> str:
    """The fault of stored values, in one line."""
    if not isinstance(error, ValidationError):
        return str(error)
    first = error.errors()[0]
    return f"{'.'.join(map(str, first['loc']))}: {first['msg']}"


def save_checkpoint(
    spec: TrainingSpec,
    model: TranslationModel,
    snapshot: Snapshot,
    state: TrainingState,
    examined: Mapping[str, object] | None = None,
) -> Path:
    """Write the checkpoint of ``state`` and delete those that are no longer kept.

    Args:
        spec: What is trained, and where it is kept.
        model: Tells the architecture.
        snapshot: Parameters and moments.
        state: How far training has come.
        examined: What the model was found to be like; stored with it.

    Raises:
        ResourceError: If the disk is full; earlier checkpoints are intact.
    """
    parameters, moments = dict(snapshot.parameters), dict(snapshot.moments)
    folder = spec.run.checkpoints_folder
    folder.mkdir(parents=True, exist_ok=True)
    require_space(folder, bytes_of(parameters) + bytes_of(moments) + _SLACK)

    def write(temporary: Path) -> None:
        metadata = {**spec.metadata, **(examined or {}), "update": state.update, "scores": state.scores}
        if spec.config.ema is not None:
            metadata["ema"] = spec.config.ema.model_dump(mode="json")
        write_model_files(temporary, model, parameters, spec.prepared.vocabularies, metadata)
        write_tensors(temporary / OPTIMIZER, moments)
        (temporary / STATE).write_text(json_text(state.to_json()), encoding="utf-8")

    keep = spec.config.checkpoint
    return spec.run.save(
        state.update,
        write,
        metric=spec.config.validation.metric,
        keep_last=keep.keep_last,
        keep_best=keep.keep_best,
        keep_up_to=spec.config.schedule.last_common_update(spec.config.max_updates),
    )


def load_state(folder: Path) -> TrainingState:
    """The training state in a checkpoint.

    Raises:
        DamagedError: If it is not what training writes.
        ModelError: If it cannot be read, or a newer version wrote it.
    """
    record = read_json(folder / STATE)
    record.pop("metrics", None)  # a digest of records that earlier versions kept
    if unknown := sorted(record.keys() - {field.name for field in dataclasses.fields(TrainingState)}):
        raise ModelError(
            f"{folder / STATE}: {', '.join(unknown)}: unknown to this version",
            "install the version of deepwire that wrote it, or a newer one",
        )
    try:
        return TrainingState.from_json(record)
    except ModelError as error:
        raise DamagedError(folder, f"{STATE}: {error.message}") from error


def load_moments(folder: Path) -> dict[str, Tensor]:
    """The moments of the optimizer in a checkpoint, in host memory.

    Raises:
        ModelError: If they are missing or damaged.
    """
    return read_tensors(folder / OPTIMIZER, torch.device("cpu"))


class Decisions(BaseModel):
    """Decisions that hold for the whole run, as ``env.json`` has it; a continuation repeats it.

    Attributes:
        numerics: Number formats.
        micro_batch_tokens: Padded tokens of one forward pass; with it the grouping of sentences is fixed.
        digests: What stands for the text: digests of the prepared text and vocabularies, corpus weights.
        processes: How many processes train; a continuation may have another number.
    """

    model_config = ConfigDict(strict=True, frozen=True)

    numerics: PrecisionPolicy
    micro_batch_tokens: int = Field(gt=0)
    digests: dict[str, str]
    processes: int = 1

    @classmethod
    def make(cls, spec: TrainingSpec, device: torch.device, processes: int) -> Decisions:
        """Decide for a new run."""
        return cls._with(spec, PrecisionPolicy.choose(spec.config.precision, device), processes)

    @classmethod
    def repeat(cls, spec: TrainingSpec, device: torch.device, processes: int) -> tuple[Decisions, int]:
        """The decisions of a run when it was started, and how many processes trained it before.

        Raises:
            UsageError: If the text or the vocabularies changed since then.
            ModelError: If ``env.json`` is damaged.
        """
        path = spec.run.environment
        stored = read_run_file(path)
        try:
            before = cls.model_validate_json(json.dumps(stored))
        except ValidationError as error:
            why = f"{path}: is damaged: {first_fault(error)}"
            raise ModelError(why, missing_file_hint(path)) from error
        require_same_digests(spec.run.path, before.digests, digests_of(spec), spec.resolved)
        numerics = before.numerics
        if not numerics.serves(spec.config.precision, device):
            numerics = PrecisionPolicy.choose(spec.config.precision, device)
        changes = {"numerics": numerics, "processes": processes}
        return before.model_copy(update=changes), before.processes

    @classmethod
    def _with(cls, spec: TrainingSpec, numerics: PrecisionPolicy, processes: int) -> Decisions:
        tokens = spec.config.micro_batch_tokens
        if tokens is None:
            match spec.resolved:
                case {"model": {"d_model": int(width)}}:
                    pass
                case _:  # not made from a run file
                    width = 0
            tokens = usual_micro_batch(numerics.device_type, numerics.precision, width)
        return cls(
            numerics=numerics, micro_batch_tokens=tokens, digests=digests_of(spec), processes=processes
        )

    def require_here(self, spec: TrainingSpec, device: torch.device) -> None:
        """Refuse to train in a process, which did not decide, with other text or another kind of device.

        Raises:
            DataError: If it has other text.
            UsageError: If it has another kind of device.
        """
        digests = digests_of(spec)
        if digests != self.digests:
            names = ", ".join(name for name in digests if digests[name] != self.digests.get(name))
            raise DataError(
                f"{spec.prepared.folder}: the processes of this run see different text ({names})",
                "see that data.train and data.prepared hold the same on all machines",
            )
        if device.type != self.numerics.device_type:
            raise UsageError(
                f"one process trains on {self.numerics.device_type}, another on {device.type}",
                "set training.device: cpu, or start processes only where there is a GPU for each",
            )


def digests_of(spec: TrainingSpec) -> dict[str, str]:
    """Digests that stand for the text of a run."""
    weights = " ".join(str(part.weight) for part in spec.prepared.train.parts)
    vocabularies = spec.prepared.vocabularies.digest
    return {"text": spec.prepared.digest, "vocabularies": vocabularies, "corpus weights": weights}


@dataclass(frozen=True)
class ResumePoint:
    """The state, checkpoint and decisions that training goes on from.

    Attributes:
        decisions: Those of the run.
        state: How far it has come.
        checkpoint: Where parameters and moments are; None at the very beginning, and in other processes than
            the main one.
    """

    decisions: Decisions
    state: TrainingState
    checkpoint: Checkpoint | None = None

    @classmethod
    def new(cls, spec: TrainingSpec, device: torch.device, processes: int) -> ResumePoint:
        """The beginning of a run."""
        return cls(Decisions.make(spec, device, processes), TrainingState(StreamPosition()))

    def share(self) -> dict[str, str]:
        """Everything that the other processes need, as plain values."""
        return {"decisions": self.decisions.model_dump_json(), "state": json.dumps(self.state.to_json())}

    @classmethod
    def of_main(cls, shared: object, spec: TrainingSpec, device: torch.device) -> ResumePoint:
        """Read what ``share`` gave in the main process, in another one.

        Raises:
            DataError: If this process sees other text.
            UsageError: If it has another kind of device.
        """
        plain = cast("dict[str, str]", shared)
        decisions = Decisions.model_validate_json(plain["decisions"])
        decisions.require_here(spec, device)
        return cls(decisions, TrainingState.from_json(json.loads(plain["state"])))


def find_resume_point(spec: TrainingSpec, device: torch.device, processes: int, say: Tell) -> ResumePoint:
    """The newest sound checkpoint of a run directory that this process holds, and the decisions of its run.

    Raises:
        UsageError: If the text or the vocabularies are not those of the run, nor would its rates be.
        ModelError: If all its checkpoints are damaged or gone.
    """
    run = spec.run
    checkpoint = run.newest_sound(say, load_state)
    if checkpoint is None:
        if run.done.exists() or run.known_checkpoints():
            raise ModelError(
                f"{run.checkpoints_folder}: the checkpoints of this run are gone",
                "put them back, or start over with --fresh, which moves this run aside",
            )
        return ResumePoint.new(spec, device, processes)
    _require_same_rates(spec, checkpoint.update)
    decisions, before = Decisions.repeat(spec, device, processes)
    for change in spec.changes:
        say(f"changed: {change}")
    if before != processes:
        say(f"changed: processes: {before} -> {processes}")
    for warning in check_recorded(read_config(checkpoint.path).get("plugins"), str(checkpoint.path)):
        say(f"warning: {warning}")
    return ResumePoint(decisions, load_state(checkpoint.path), checkpoint)


def _require_same_rates(spec: TrainingSpec, made: int) -> None:
    """Refuse another length where the schedule needs the one that the run began with.

    Raises:
        UsageError: If the updates that were made have other learning rates in a run of the new length.
    """
    match read_run_file(spec.run.resolved_config):
        case {"training": {"max_updates": int() | None as before}}:
            pass
        case _:
            return
    try:
        if spec.config.schedule.follows_length and before != spec.config.max_updates:
            spec.config.schedule.require_same_rates(made, before, spec.config.max_updates)
    except ValueError as error:
        raise UsageError(
            f"{spec.run.path}: cannot go on: {error}",
            "set training.max_updates back; a copy of the run without its checkpoints of the decay goes on "
            "exactly from the newest one that is left",
        ) from None


def write_settings(spec: TrainingSpec, decisions: Decisions, device: torch.device) -> None:
    """Write what a run was asked for and what it decided, and take back that it has ended."""
    run = spec.run
    if spec.user_config:
        write_text(run.user_config, spec.user_config)
    write_json(run.resolved_config, spec.resolved)
    facts = {"environment": describe(device), "scored_by": list(spec.signatures)}
    write_json(run.environment, {**decisions.model_dump(mode="json"), **facts})
    run.done.unlink(missing_ok=True)


def move_run_aside(run: RunDirectory) -> Path | None:
    """Rename a run that is there to ``RUN.1``, ``RUN.2`` and so on; its new name, or None without one.

    Raises:
        UsageError: The folder holds something else or the working directory, or another process trains there.
    """
    if not run.path.is_dir() or not any(run.path.iterdir()):
        return None
    traces = run.resolved_config, run.environment, run.metrics, run.checkpoints_folder, run.path / LOCK
    if not any(trace.exists() for trace in traces):
        raise UsageError(
            f"{run.path}: is no run, and --fresh moves only runs aside", "name another folder with run=FOLDER"
        )
    here = Path.cwd()
    if run.path.resolve() in (here, *here.parents):
        raise UsageError(
            f"{run.path}: --fresh cannot move the working directory aside", "start it in another directory"
        )
    with run.locked():
        return move_aside(run.path)
