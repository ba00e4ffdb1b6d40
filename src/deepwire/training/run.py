"""How far a run has come, its checkpoints and decisions: everything that a continuation needs."""

from __future__ import annotations

import dataclasses
import json
import math
import os
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import cast

import torch
from pydantic import BaseModel, ConfigDict, Field, ValidationError
from torch import Tensor

from deepwire.checkpoint.model_files import DamagedError, bytes_of, read_tensors, write_tensors
from deepwire.checkpoint.run_directory import LOCK, Checkpoint, RunDirectory
from deepwire.checkpoint.store import OPTIMIZER, STATE, write_model_files
from deepwire.config.validation_messages import first_fault
from deepwire.data.batches.batching import StreamPosition
from deepwire.data.batches.epoch_order import EpochOrder
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import DataError, LogFn, ModelError, UsageError
from deepwire.io.atomic import json_text, move_aside, require_space, write_json, write_text
from deepwire.io.regular_files import read_json
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.precision import has_fast_bfloat16
from deepwire.training.config import TrainingConfig
from deepwire.training.device import DeviceUpdate, Precision, PrecisionPolicy, describe
from deepwire.training.log import Averages, RunLog, TrainingStatus
from deepwire.training.optimizers.optimizer import StepResult
from deepwire.training.parallel_strategy import Snapshot
from deepwire.training.spec import TrainingSpec, missing_file_hint, read_run_file, require_same_digests
from deepwire.training.state import Signals, StopReason, TrainingState, progress

_SLACK = 1_000_000


def save_checkpoint(
    spec: TrainingSpec,
    model: TranslationModel,
    snapshot: Snapshot,
    state: TrainingState,
    examined: Mapping[str, object] | None = None,
) -> Path:
    """Write the checkpoint of ``state`` and delete those that are no longer kept.

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


# They keep the device busy and its memory in bounds. In float32 a CPU is kept busy by fewer where the model
# is wide, which takes a third less memory; in bfloat16 products are so much faster that rounding the weights
# for every pass shows (docs/understand/speed.md).
_USUAL = {"cpu": 2048, "cuda": 16384}
_WIDE, _OF_WIDE = 256, 512


def usual_micro_batch(device_type: str, precision: Precision, width: int) -> int:
    """Padded tokens of one forward pass on a ``cpu`` or on ``cuda``, of a model of that width."""
    if (device_type, precision) == ("cpu", "fp32") and width >= _WIDE:
        return _OF_WIDE
    return _USUAL[device_type]


# More were not measured.
_MOST = 4
# Tokens of a forward pass that keep a thread busy: with fewer, cores do more as processes of their own.
_A_THREAD = 512
# In bfloat16 threads share the products of larger models as well as processes do, within 2 %, and in much
# less memory; in float32 two processes are 17 % faster (docs/reports/benchmarks.md).
_LARGE = 32_000_000
# Each process has a parameter, its gradient, twice, and two moments, in float32; what is not needed with one
# process may take this part of the memory of the machine.
_BYTES, _SHARE = 20, 4


def processes_wanted(config: TrainingConfig, width: int, parameters: Callable[[], int]) -> int:
    """How many processes are to train on the cores of this machine, where torchrun started none.

    Args:
        config: What the run file says.
        width: d of the model.
        parameters: Gives about how many the model has; asked for only where several processes may train.
    """
    if not sys.platform.startswith("linux") or config.sharding != "none" or config.compile:
        return 1
    if config.device != "cpu" and (config.device != "auto" or torch.cuda.is_available()):
        return 1
    if config.processes is not None:
        return config.processes
    cores = config.threads or torch.get_num_threads()
    # As far as it is known without a timing: no thread may start before the fork.
    fast: Precision = "bf16" if has_fast_bfloat16() else "fp32"
    products = fast if config.precision == "auto" else config.precision
    usual = usual_micro_batch("cpu", products, width)
    tokens = min(config.micro_batch_tokens or usual, config.batch_tokens)
    threads = max(1, tokens // _A_THREAD)
    count = max(1, min(cores // threads, _MOST, config.batch_tokens // tokens))
    if count == 1 or (products == "bf16" and parameters() > _LARGE):
        return 1
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(count, 1 + memory // _SHARE // (_BYTES * parameters()))


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
        numerics = PrecisionPolicy.choose(spec.config.precision, device)
        tokens = spec.config.micro_batch_tokens
        if tokens is None:
            tokens = usual_micro_batch(numerics.device_type, numerics.precision, _width(spec.resolved))
        return cls(
            numerics=numerics, micro_batch_tokens=tokens, digests=digests_of(spec), processes=processes
        )

    @classmethod
    def read(cls, spec: TrainingSpec) -> Decisions:
        """Read those of a run when it was started.

        Raises:
            UsageError: If the text or the vocabularies changed since then.
            ModelError: If ``env.json`` is damaged.
        """
        path = spec.run.environment
        try:
            decisions = cls.model_validate_json(json.dumps(read_run_file(path)))
        except ValidationError as error:
            raise ModelError(f"{path}: is damaged: {first_fault(error)}", missing_file_hint(path)) from error
        require_same_digests(spec.run.path, decisions.digests, digests_of(spec))
        return decisions

    def require_here(self, spec: TrainingSpec, device: torch.device) -> None:
        """Refuse to train in a process, which did not decide, with other text or another kind of device.

        Raises:
            DataError: If it has other text.
            UsageError: If it has another kind of device.
        """
        if digests_of(spec) != self.digests:
            raise DataError(
                f"{spec.prepared.folder}: the processes of this run see different text",
                "see that data.train and data.prepared hold the same on all machines",
            )
        if device.type != self.numerics.device_type:
            raise UsageError(
                f"one process trains on {self.numerics.device_type}, another on {device.type}",
                "set training.device: cpu, or start processes only where there is a GPU for each",
            )


def _width(resolved: Mapping[str, object]) -> int:
    match resolved:
        case {"model": {"d_model": int(width)}}:
            return width
    return 0  # not made from a run file


def digests_of(spec: TrainingSpec) -> dict[str, str]:
    """Digests that stand for the text of a run."""
    weights = " ".join(str(part.weight) for part in spec.prepared.train.parts)
    vocabularies = spec.prepared.vocabularies.digest
    return {"text": spec.prepared.digest, "vocabularies": vocabularies, "corpus weights": weights}


class Meter:
    """Adds up updates; those that were not finite are left out. The losses begin with ``loss``, ``nll``."""

    def __init__(self, device: torch.device, names: Sequence[str] = ("loss", "nll")) -> None:
        self._names = tuple(names)
        # In the order of stored states: loss, nll, tokens, gradient norm, updates, then further losses.
        self._sums = torch.zeros(3 + len(names), dtype=torch.float64, device=device)
        self._finite: list[Tensor] = []
        self._seconds = 0.0
        self._since = time.perf_counter()

    def add(self, sums: Mapping[str, Tensor], tokens: int, step: StepResult) -> None:
        """Take in one update: sums of its losses over target tokens, and its step."""
        loss, nll, *rest = (sums[name].double() for name in self._names)
        count = torch.full_like(loss, tokens)
        row = torch.stack([loss, nll, count, step.norm.double(), torch.ones_like(count), *rest])
        self._sums += torch.where(step.finite, row, 0.0)
        self._finite.append(step.finite)
        now = time.perf_counter()
        self._seconds += now - self._since
        self._since = now

    def skip_time(self) -> None:
        """Do not count the time since the last update: it went into validation or saving."""
        self._since = time.perf_counter()

    def take_finite(self) -> list[bool]:
        """Whether each update since the last call was finite; waits for the device."""
        finite: list[bool] = torch.stack(self._finite).tolist() if self._finite else []
        self._finite.clear()
        return finite

    def averages(self) -> Averages:
        """The interval so far; waits for the device."""
        loss, nll, tokens, norm, updates, *rest = self._sums.tolist()
        per_token = 1 / tokens if tokens else math.nan
        return Averages(
            {name: each * per_token for name, each in zip(self._names, [loss, nll, *rest], strict=True)},
            norm / updates if updates else math.nan,
            int(tokens),
            tokens / max(self._seconds, 1e-9),
        )

    def reset(self) -> None:
        """Begin a new interval."""
        self._sums.zero_()
        self._seconds = 0.0

    def state(self) -> list[float]:
        """The sums, for a checkpoint in the middle of an interval; waits for the device."""
        sums: list[float] = self._sums.tolist()
        return [*sums, self._seconds]

    def load_state(self, state: list[float]) -> None:
        """Continue an interval from what ``state`` gave.

        Raises:
            ModelError: If it has more or fewer sums.
        """
        if len(state) != len(self._sums) + 1:
            raise ModelError(f"the stored training state is damaged: {len(state)} sums of an interval")
        self._sums.copy_(torch.tensor(state[:-1], dtype=torch.float64))
        self._seconds = state[-1]


@dataclass
class TrainingRun:
    """A run in motion: what it is, how far it has come, what has been noted since the last line of its log.

    Attributes:
        spec: What is trained, on what, and how.
        processes: Those that train together.
        device: Where.
        log: Files and screen.
        signals: What the user asks for while it runs.
        decisions: Those that hold for the whole run.
        state: How far it has come.
        checkpoint: Where it goes on from; None at the very beginning, and in other processes than the main
            one.
        stop_reason: Why training ends; None while it goes on.
        meter: Sums of the updates since the last line of the log.
        unread: Updates of which nobody knows yet whether they were finite.
        saved_at: The update of the last checkpoint.
        last_good: The last update that was finite.
        last_rate: The learning rate of the last update.
        memory: Bytes in use at the last line of the log.
    """

    spec: TrainingSpec
    processes: ProcessGroup
    device: torch.device
    log: RunLog
    signals: Signals
    decisions: Decisions
    state: TrainingState
    checkpoint: Checkpoint | None = None
    stop_reason: StopReason | None = None
    meter: Meter = field(init=False)
    unread: list[DeviceUpdate] = field(init=False, default_factory=list)
    saved_at: int = field(init=False)
    last_good: int = field(init=False)
    last_rate: float = 0.0
    memory: int = 0

    def __post_init__(self) -> None:
        self.decisions.numerics.apply()
        self.meter = Meter(self.device, self.spec.config.losses)
        if self.state.interval:
            self.meter.load_state(self.state.interval)
        self.saved_at = self.state.update
        self.last_good = self.state.update - self.state.bad_in_a_row
        self._epochs = EpochOrder(self.spec.prepared.train.parts, self.spec.seed)
        self._started, self._seconds_before = time.perf_counter(), self.state.seconds
        self._pace_from: tuple[float, float] | None = None

    def count(self, update: DeviceUpdate, sums: Mapping[str, Tensor], step: StepResult) -> None:
        """Take note of an update that was made: its losses, and the outcome of its step."""
        self.meter.add(sums, update.target_tokens, step)
        self.unread.append(update)
        state = self.state
        state.update, state.position = update.number, update.after
        state.pass_epoch(update.epoch, len(update.lines), self._epochs.size(update.epoch))
        state.target_tokens += update.target_tokens
        state.steps += 1
        state.scores = {}
        if self._pace_from is None:
            # Not from the very beginning: the first update of a process is slow.
            self._pace_from = self.share, self.seconds

    @property
    def share(self) -> float:
        """Share of the run that is done, from 0 to 1, by the limit that will be reached first."""
        return progress(self.spec.config, self.state)

    @property
    def seconds(self) -> float:
        """Time spent on the run, interruptions not counted."""
        return self._seconds_before + time.perf_counter() - self._started

    @property
    def _seconds_left(self) -> float | None:
        """Until the end, at the pace of this process so far; None while nobody knows."""
        share, seconds = self._pace_from or (self.share, 0.0)
        if self.share <= share:
            return None
        return (1 - self.share) / (self.share - share) * (self.seconds - seconds)

    @property
    def status(self) -> TrainingStatus:
        """Where the run stands, for people."""
        return TrainingStatus(
            update=self.state.update,
            epoch=self.state.epochs,
            share=self.share,
            seconds=self.seconds,
            seconds_left=self._seconds_left,
            learning_rate=self.last_rate,
            memory=self.memory,
        )


def open_run(
    spec: TrainingSpec,
    processes: ProcessGroup,
    device: torch.device,
    log: RunLog,
    signals: Signals,
    *,
    resume: bool = False,
) -> TrainingRun:
    """A new run, or with `resume` the one in the run directory, which the main process must hold.

    It goes on from the newest sound checkpoint; what the main process finds holds for all.

    Raises:
        UsageError: If the text or the vocabularies are not those of the run, or a process has another kind
            of device.
        DataError: If a process sees other text.
        ModelError: If all checkpoints are damaged or gone.
    """
    if processes.main:
        checkpoint = _newest_checkpoint(spec, log.say) if resume else None
        if checkpoint is None:
            decisions, state = Decisions.make(spec, device, processes.count), TrainingState(StreamPosition())
        else:
            state = load_state(checkpoint.path)
            decisions = _continued(spec, device, processes.count, log.say)
        processes.broadcast_value([decisions.model_dump_json(), json.dumps(state.to_json())])
        return TrainingRun(spec, processes, device, log, signals, decisions, state, checkpoint)
    decided, stored = cast("tuple[str, str]", processes.broadcast_value(None))
    decisions = Decisions.model_validate_json(decided)
    decisions.require_here(spec, device)
    state = TrainingState.from_json(json.loads(stored))
    return TrainingRun(spec, processes, device, log, signals, decisions, state)


def _newest_checkpoint(spec: TrainingSpec, say: LogFn) -> Checkpoint | None:
    run = spec.run
    checkpoint = run.newest_sound(say, load_state)
    if checkpoint is None and (run.done.exists() or run.index.exists()):
        raise ModelError(
            f"{run.checkpoints_folder}: the checkpoints of this run are gone",
            "put them back, or start over with --fresh, which moves this run aside",
        )
    return checkpoint


def _continued(spec: TrainingSpec, device: torch.device, processes: int, say: LogFn) -> Decisions:
    """The decisions of a run that goes on here."""
    before = Decisions.read(spec)
    for change in spec.changes:
        say(f"changed: {change}")
    if before.processes != processes:
        say(f"changed: processes: {before.processes} -> {processes}")
    numerics = before.numerics
    if not numerics.serves(spec.config.precision, device):
        numerics = PrecisionPolicy.choose(spec.config.precision, device)
    return before.model_copy(update={"numerics": numerics, "processes": processes})


def write_settings(training: TrainingRun) -> None:
    """Write what a run was asked for and what it decided, and take back that it has ended."""
    spec, run = training.spec, training.spec.run
    if spec.user_config:
        write_text(run.user_config, spec.user_config)
    write_json(run.resolved_config, spec.resolved)
    facts = {"environment": describe(training.device), "scored_by": list(spec.signatures)}
    write_json(run.environment, {**training.decisions.model_dump(mode="json"), **facts})
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
