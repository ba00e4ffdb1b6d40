"""How far a run has come, and its checkpoints: everything that a continuation needs."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from pathlib import Path

import torch
from torch import Tensor

from deepwire.checkpoint.model_files import DamagedError, bytes_of, read_tensors, write_tensors
from deepwire.checkpoint.run_directory import RunDirectory, better
from deepwire.checkpoint.store import OPTIMIZER, STATE, write_model_files
from deepwire.data.batches.batching import StreamPosition
from deepwire.errors import ModelError
from deepwire.io.atomic import json_text, require_space
from deepwire.io.regular_files import read_json
from deepwire.model.translation_model import TranslationModel
from deepwire.training.config import EarlyStoppingConfig
from deepwire.training.parallel_strategy import Snapshot
from deepwire.training.run.spec import TrainingSpec


@dataclass
class Patience:
    """Counts the scores since a metric last improved.

    Attributes:
        best: The best score so far; None before the first.
        waited: Scores since then.
        metric: What was scored; empty where an earlier version did not record it.
    """

    best: float | None = None
    waited: int = 0
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


# More than any run can reach, and few enough to calculate with.
_MANY = 10**15
_COUNTS = {
    **dict.fromkeys(("update", "pairs", "target_tokens", "steps", "bad_in_a_row", "pieces", "waited"), _MANY),
    **dict.fromkeys(("window", "index", "number"), _MANY),
    "epoch": 10**9,
}
_NUMBERS = ("epochs", "seconds")


def _is_number(value: object) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


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
        metrics: Digest of ``metrics.jsonl`` up to here; empty where it was not recorded.
        interim: Whether it is stored only because training was stopped.
    """

    position: StreamPosition
    update: int = 0
    epochs: float = 0.0
    epoch: int = 0
    pairs: int = 0
    target_tokens: int = 0
    steps: int = 0
    bad_in_a_row: int = 0
    pieces: int = 1
    seconds: float = 0.0
    patience: Patience = field(default_factory=Patience)
    validation_due: bool = False
    scores: dict[str, float] = field(default_factory=dict)
    interval: list[float] = field(default_factory=list)
    learning_rate: float | None = None
    metrics: str = ""
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
    def from_json(cls, value: dict[str, object]) -> TrainingState:
        """Read what ``to_json`` gave.

        Raises:
            ModelError: If it is something else.
        """
        try:
            plain = json.loads(json.dumps(value))
            position = StreamPosition.from_json(plain.pop("position"))
            patience = Patience(**plain.pop("patience"))
            state = cls(position=position, patience=patience, **plain)
            state._check()
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ModelError(f"the stored training state is damaged: {error}") from error
        return state

    def _check(self) -> None:
        """See that the values are such as training writes: later they would fail in odd places.

        Raises:
            ValueError: Naming the first that is not.
        """
        values = dataclasses.asdict(self)
        position, patience = values.pop("position"), values.pop("patience")
        for name, value in [*values.items(), *position.items(), *patience.items()]:
            if name in _COUNTS and not (type(value) is int and 0 <= value <= _COUNTS[name]):
                raise ValueError(f"{name} is {value!r}")
            if name in _NUMBERS and not (_is_number(value) and math.isfinite(value)):
                raise ValueError(f"{name} is {value!r}")
        if position["number"] != self.update:
            raise ValueError(f"update {self.update} is not where the text goes on: {position['number']}")
        if not isinstance(self.interim, bool):
            raise ValueError(f"interim is {self.interim!r}")
        if not isinstance(self.metrics, str):
            raise ValueError(f"metrics is {self.metrics!r}")
        best = [] if self.patience.best is None else [self.patience.best]
        if not all(map(_is_number, [*best, *self.scores.values(), *self.interval])):
            raise ValueError("scores or sums are not numbers")


_SLACK = 1_000_000


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
    if unknown := sorted(record.keys() - {field.name for field in fields(TrainingState)}):
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


def newest_state(run: RunDirectory) -> TrainingState | None:
    """The state of the newest checkpoint of ``run``; None where there is no checkpoint.

    Raises:
        ModelError: If it is damaged.
    """
    checkpoints = run.checkpoints()
    return load_state(checkpoints[-1].path) if checkpoints else None
