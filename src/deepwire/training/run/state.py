"""How far a run has come: all that a continuation needs besides parameters and optimizer."""

from __future__ import annotations

import dataclasses
import json
from dataclasses import dataclass, field

from deepwire.data.batches.batching import StreamPosition
from deepwire.errors import ModelError
from deepwire.training.run.early_stopping import Patience


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

    def to_json(self) -> dict[str, object]:
        """Plain values for ``state.json``; floats come back to the last bit."""
        values = dataclasses.asdict(self)
        if self.learning_rate is None:
            del values["learning_rate"]  # versions that do not know it can go on from here
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
            return cls(position=position, patience=patience, **plain)
        except (TypeError, KeyError, ValueError, AttributeError) as error:
            raise ModelError(f"the stored training state is damaged: {error}") from error
