"""A training under way, as a program sees it: updates to iterate over, callbacks, the learning rate."""

from __future__ import annotations

from collections.abc import Generator, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path

from deepwire.errors import UsageError
from deepwire.model.translation_model import TranslationModel
from deepwire.training.loop import UpdateResult, train
from deepwire.training.run.stopping import StopReason
from deepwire.training.trainer import Trainer
from deepwire.training.validation import Validation


class Callback:
    """What a program wants to do during training: override the methods that you need.

    Where several processes train together, each calls its own callbacks, and what these change (the learning
    rate, parameters) must be the same in all.
    """

    def on_start(self, session: TrainingSession) -> None:
        """Before the first update; of a run that is continued too."""

    def after_update(self, session: TrainingSession, update: UpdateResult) -> None:
        """After each update, before it is logged, validated and saved."""

    def after_validation(self, session: TrainingSession, validation: Validation) -> None:
        """After each validation, before the checkpoint that it decides on."""

    def on_end(self, session: TrainingSession, stop_reason: StopReason) -> None:
        """When training has ended and the last checkpoint is written; not after an error."""


class TrainingSession:
    """A training under way. Iterating over it makes the updates; what is left of them when the caller breaks
    off is made when the run is continued.

    Args:
        trainer: What trains.
        callbacks: Are called in this order.

    Attributes:
        trainer: All parts of the training: optimizer, schedule, state, and so on.
        scores: Of the last validation in this session, such as ``loss`` and ``bleu``; empty before it.
    """

    def __init__(self, trainer: Trainer, callbacks: Sequence[Callback] = ()) -> None:
        self.trainer = trainer
        self.scores: Mapping[str, float] = {}
        self._callbacks = tuple(callbacks)
        self._updates: Generator[UpdateResult] | None = None
        self._ended = False
        trainer.validated = self._validated

    @property
    def stop_reason(self) -> StopReason | None:
        """Why training ended; None while it goes on."""
        return self.trainer.stop_reason

    @property
    def model(self) -> TranslationModel:
        """The model that is trained; in training mode."""
        return self.trainer.model

    @property
    def run(self) -> Path:
        """The run directory."""
        return self.trainer.spec.run.path

    @property
    def update(self) -> int:
        """Updates made, those of earlier sessions included."""
        return self.trainer.state.update

    @property
    def learning_rate(self) -> float:
        """Of the next update. Setting it replaces the schedule from there on, until `follow_schedule`.

        What was set is stored in checkpoints: whoever continues the run, the command too, goes on with it.
        A continued run repeats no callback for updates that are in its checkpoint.
        """
        return self.trainer.learning_rate

    @learning_rate.setter
    def learning_rate(self, rate: float) -> None:
        if self._ended:
            raise UsageError(
                "the training session has ended: its learning rate stays as it is",
                "another deepwire.training_session continues the run",
            )
        self.trainer.learning_rate = rate

    def follow_schedule(self) -> None:
        """Take the learning rate of the schedule again."""
        self.trainer.follow_schedule()

    def stop(self) -> None:
        """End the training after the present update, with a checkpoint; a later call continues it."""
        self.trainer.signals.ask_to_stop()

    def __iter__(self) -> Iterator[UpdateResult]:
        """Make the updates that are left, one for each step of the iteration."""
        if self._updates is None:
            self._updates = self._run()
        return self._updates

    def _run(self) -> Generator[UpdateResult]:
        for callback in self._callbacks:
            callback.on_start(self)
        with closing(train(self.trainer)) as updates:
            for update in updates:
                for callback in self._callbacks:
                    callback.after_update(self, update)
                yield update

    def close(self) -> None:
        """End: nothing can be set any more."""
        self._make_no_more()
        self._ended = True

    def _make_no_more(self) -> None:
        if self._updates is not None:
            self._updates.close()

    def finish(self) -> None:
        """Save where the caller broke off, record why training ended, and tell the callbacks."""
        self._make_no_more()
        if self.stop_reason is None:
            self.stop()
            self.trainer.after_update()
        stop_reason = self.stop_reason
        assert stop_reason is not None, "stop() ends every run"
        self.trainer.recorder.end(self.trainer.state, stop_reason)
        for callback in self._callbacks:
            callback.on_end(self, stop_reason)

    def _validated(self, validation: Validation) -> None:
        self.scores = validation.scores
        for callback in self._callbacks:
            callback.after_validation(self, validation)
