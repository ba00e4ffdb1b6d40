"""Training, as the papers write it down: one loop over updates."""

from __future__ import annotations

from deepwire.training.gradient import make_gradient
from deepwire.training.run.stop_reason import StopReason
from deepwire.training.trainer import Trainer


def train(trainer: Trainer) -> StopReason:
    """Minimise the smoothed cross-entropy of the reference translations.

    For each update: the gradient of the loss per target token; its length limited; one step of Adam at the
    scheduled rate. The random numbers of an update depend on the seed, its number and the process alone, so
    an interrupted run goes on as if nothing had happened.

    Raises:
        DivergedError: If ten updates in a row had a loss or gradient that is not finite.
        ResourceError: If memory does not suffice for a single sentence pair.
    """
    model, optimizer = trainer.model.train(), trainer.optimizer
    stop_reason = trainer.after_update()
    updates = trainer.updates()
    while stop_reason is None:
        update = next(updates)
        sums = make_gradient(trainer, update)
        trainer.recorder.gradients(update.number, model)
        step = optimizer.step(trainer.schedule(update.number), sums[0])
        trainer.count(update, sums, step)
        stop_reason = trainer.after_update()
    updates.close()
    model.eval()
    return stop_reason
