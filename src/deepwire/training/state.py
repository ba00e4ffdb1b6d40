"""How far a run has come: all that a continuation needs besides parameters and optimizer."""

from __future__ import annotations

import dataclasses
import json
import math
from dataclasses import dataclass, field

from deepwire.data.batching import StreamPosition
from deepwire.errors import ModelError
from deepwire.training.stopping import Patience

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
        metrics: Digest of ``metrics.jsonl`` up to here; empty where it was not recorded.
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
    metrics: str = ""

    def to_json(self) -> dict[str, object]:
        """Plain values for ``state.json``; floats come back to the last bit."""
        return dataclasses.asdict(self)

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
        if not isinstance(self.metrics, str):
            raise ValueError(f"metrics is {self.metrics!r}")
        best = [] if self.patience.best is None else [self.patience.best]
        if not all(map(_is_number, [*best, *self.scores.values(), *self.interval])):
            raise ValueError("scores or sums are not numbers")
