"""Training, as the papers write it down: one loop over updates, and the gradient of each.

The gradient of an update is a sum over its micro-batches and processes, divided by all its target tokens.
Each process goes through its share of the micro-batches, and the sums meet once an update, when all have
finished theirs. DistributedDataParallel adds up inside the backward pass instead, which hides the time of the
network behind that of the last micro-batch. But it needs the same number of passes in every process, where a
share here may have any, and a process that ran out of memory within a pass would leave the others waiting in
the middle of a sum. Here nothing is exchanged until all processes have said that they got through.
"""

from __future__ import annotations

import gc
from collections.abc import Generator, Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import torch
from torch import Tensor

from deepwire.errors import ResourceError
from deepwire.model.cross_attention_recorder import CrossAttentionRecorder
from deepwire.ops.process import seed_random_numbers
from deepwire.training.device import is_out_of_memory
from deepwire.training.device_batches import DeviceBatch, DeviceUpdate
from deepwire.training.optimizers.optimizer import StepResult
from deepwire.training.trainer import Trainer


@dataclass(frozen=True)
class UpdateResult:
    """An update that was made. Its numbers are on the device: reading one waits for a GPU.

    Attributes:
        number: Which update it is, from 1.
        epoch: Which epoch it belongs to, from 0.
        learning_rate: What it was made with.
        target_tokens: Target tokens of the update, end symbols included.
        sums: Smoothed loss and nll summed over them, in nats, of two passes the divergence, of
            guided alignment its loss. Scalars.
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
    token; its norm limited; one step of the optimizer at the scheduled rate. The random numbers of an update
    depend on the seed, its number and the process alone, so an interrupted run goes on as if nothing had
    happened.

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


def make_gradient(trainer: Trainer, update: DeviceUpdate) -> list[Tensor]:
    """Set the gradient of the loss per target token; returns sums over target tokens, in nats.

    They are those of smoothed loss and nll, with R-Drop or SimCut of the divergence of the two passes, and
    with guided alignment of its loss.

    If memory runs out in any process, all cut their micro-batches in half and make the update again.

    Raises:
        ResourceError: If memory does not suffice for a single sentence pair.
    """
    processes, parameters = trainer.processes, list(trainer.optimizer.parameters.values())
    if not trainer.spec.begins_with_a_model:
        trainer.model.begin_update(update.number)
    while True:
        share = [piece for batch in update.batches for piece in batch.cut(trainer.state.pieces)]
        pieces = trainer.strategy.passes(share)
        sums = _own_gradient(trainer, update, pieces)
        failed = sums is None
        hopeless = failed and all(len(piece.source) == 1 for piece in pieces)
        # A process without a share has no gradients, but must know which parameters have one elsewhere.
        used = [parameter.grad is not None for parameter in parameters]
        failures, hopes_gone, *counts = processes.all_reduce_numbers([failed, hopeless, *used])
        if sums is not None and not failures:
            break
        _make_room(trainer, update.number, hopeless=hopes_gone > 0)
    learning = [parameter for parameter, count in zip(parameters, counts, strict=True) if count]
    return trainer.strategy.all_reduce_tensors(learning, sums)


def _own_gradient(
    trainer: Trainer, update: DeviceUpdate, pieces: Sequence[DeviceBatch]
) -> list[Tensor] | None:
    """Forward and backward passes over the share of this process; None if memory ran out."""
    seed_random_numbers(trainer.seed_of(update.number), trainer.device)
    trainer.optimizer.zero_grad()
    if trainer.layer_drop is not None:
        trainer.layer_drop.draw(update.number)
    if trainer.rounds is not None:
        trainer.rounds.draw(update.number)
    config = trainer.spec.config
    more = (config.divergence is not None) + (trainer.guide is not None)
    totals = [trainer.zero() for _ in range(2 + more)]
    try:
        for batch in pieces:
            # The backward pass may compute layers once more: these must record then, too.
            with nullcontext() if trainer.guide is None else trainer.guide.recording() as recorder:
                loss, parts = _loss(trainer, batch, recorder)
                torch.autograd.backward(loss / update.target_tokens)
            for total, part in zip(totals, parts, strict=True):
                total += part
    except (RuntimeError, MemoryError) as error:
        if not (trainer.strategy.retries and is_out_of_memory(error)):
            raise
        return None
    return totals


def _loss(
    trainer: Trainer, batch: DeviceBatch, recorder: CrossAttentionRecorder | None
) -> tuple[Tensor, list[Tensor]]:
    """What is minimised, and the sums that are recorded, of one forward pass."""
    guide = trainer.guide
    with trainer.precision_policy.autocast():
        sums = trainer.loss(
            batch.source,
            batch.target_input,
            batch.target_output,
            *trainer.smoothing,
            trainer.spec.config.r_drop,
            languages=batch.languages,
            perturbation=trainer.perturbation,
        )
    parts = [sums.smoothed.detach(), sums.nll, *([] if sums.divergence is None else [sums.divergence])]
    if guide is None or recorder is None:
        return sums.smoothed, parts
    aligned = guide.loss(recorder, batch)
    if aligned is None:
        return sums.smoothed, [*parts, trainer.zero()]
    return sums.smoothed + guide.weight * aligned, [*parts, aligned.detach()]


def _make_room(trainer: Trainer, update: int, *, hopeless: bool) -> None:
    """Free what the failed attempt left, and halve the micro-batches from here on."""
    if hopeless:
        raise ResourceError(
            f"out of memory at update {update} with a single sentence pair",
            "make the model smaller, lower data.filters.max_length, or free memory; the same command goes on",
        )
    trainer.optimizer.zero_grad()
    gc.collect()
    if trainer.device.type == "cuda":
        torch.cuda.empty_cache()
    trainer.state.pieces *= 2
    trainer.recorder.say(
        f"u {update} out of memory: from here on micro-batches are cut in {trainer.state.pieces}"
    )
