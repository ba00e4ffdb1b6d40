"""How far a run has come: what ``state.json`` of a checkpoint says."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated

from pydantic import ConfigDict, Field, PlainValidator, TypeAdapter, ValidationError

from deepwire.checkpoint.run_directory import better
from deepwire.data.batches.batching import StreamPosition
from deepwire.errors import ModelError
from deepwire.training.config import EarlyStoppingConfig

# More than any run can reach, and few enough to calculate with.
_Count = Annotated[int, Field(ge=0, le=10**15)]
_Finite = Annotated[float, Field(allow_inf_nan=False)]


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
