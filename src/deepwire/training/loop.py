"""Training, as the papers write it down: one loop over updates."""

from __future__ import annotations

from collections.abc import Generator, Sequence
from dataclasses import dataclass

from torch import Tensor

from deepwire.training.gradient import make_gradient
from deepwire.training.optimizer import StepResult
from deepwire.training.trainer import Trainer


@dataclass(frozen=True)
class UpdateResult:
    """An update that was made. Its numbers are on the device: reading one waits for a GPU.

    Attributes:
        number: Which update it is, from 1.
        epoch: Which epoch it belongs to, from 0.
        learning_rate: What it was made with.
        target_tokens: Target tokens of the update, end symbols included.
        sums: Smoothed loss and nll summed over them, in nats; with R-Drop also the divergence. Scalars.
        step: Norm of the gradient, and whether it was finite.
    """

    number: int
    epoch: int
    learning_rate: float
    target_tokens: int
    sums: Sequence[Tensor]
    step: StepResult

    @property
    def loss(self) -> float:
        """Smoothed loss per target token, nats."""
        return float(self.sums[0]) / self.target_tokens

    @property
    def nll(self) -> float:
        """Negative log-likelihood per target token, nats."""
        return float(self.sums[1]) / self.target_tokens

    @property
    def gradient_norm(self) -> float:
        """Norm of the gradient before it was clipped."""
        return float(self.step.norm)

    @property
    def finite(self) -> bool:
        """Whether loss and gradient were finite; if not, the update changed nothing."""
        return bool(self.step.finite)


def train(trainer: Trainer) -> Generator[UpdateResult]:
    """Minimise the smoothed cross-entropy of the reference translations, update by update.

    It goes on until ``trainer.stop_reason`` is set. For each update: the gradient of the loss per target
    token; its norm limited; one step of Adam at the scheduled rate. The random numbers of an update depend
    on the seed, its number and the process alone, so an interrupted run goes on as if nothing had happened.

    An update is handed out before it is logged, validated and saved: what the caller changes then, such as
    the learning rate, is in the checkpoint of this update.

    Raises:
        DivergedError: If ten updates in a row had a loss or gradient that is not finite.
        ResourceError: If memory does not suffice for a single sentence pair.
    """
    model = trainer.model.train()
    trainer.after_update()
    updates = trainer.updates()
    try:
        while trainer.stop_reason is None:
            update = next(updates)
            sums = make_gradient(trainer, update)
            trainer.recorder.gradients(update.number, model)
            rate = trainer.learning_rate
            step = trainer.step(update, sums[0])
            trainer.count(update, sums, step)
            yield UpdateResult(update.number, update.epoch, rate, update.target_tokens, sums, step)
            trainer.after_update()
    finally:
        updates.close()
        model.eval()
