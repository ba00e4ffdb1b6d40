"""Training, as the papers write it down: one loop over updates.

One process trains. What several would share is here and nowhere else: the gradient, which is a sum over the
micro-batches of an update divided by all its target tokens.
"""

from __future__ import annotations

import torch

from deepwire.training.ending import Ending
from deepwire.training.trainer import Trainer


def train(trainer: Trainer) -> Ending:
    """Minimise the smoothed cross-entropy of the reference translations.

    For each update: the gradient of the loss per target token, summed over micro-batches; its length limited;
    one step of Adam at the scheduled rate. The random numbers of an update depend on the seed and its number
    alone, so an interrupted run goes on as if nothing had happened.

    Raises:
        DivergedError: If ten updates in a row had a loss or gradient that is not finite.
    """
    model, optimizer = trainer.model.train(), trainer.optimizer
    ending = trainer.between_updates()
    updates = trainer.updates()
    while ending is None:
        update = next(updates)
        torch.manual_seed(trainer.seed_of(update.number))
        optimizer.zero_grad()
        loss, nll = trainer.zero(), trainer.zero()
        for batch in update.batches:
            with trainer.numerics.autocast():
                sums = trainer.loss(batch.source, batch.target_input, batch.target_output, *trainer.smoothing)
            # Adds up over micro-batches; several processes would add theirs too.
            torch.autograd.backward(sums.smoothed / update.target_tokens)
            loss += sums.smoothed.detach()
            nll += sums.nll
        step = optimizer.step(trainer.schedule(update.number), loss)
        trainer.count(update, loss, nll, step)
        ending = trainer.between_updates()
    updates.close()
    model.eval()
    return ending
