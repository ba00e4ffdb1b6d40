"""The gradient of an update: a sum over its micro-batches and processes, divided by all its target tokens.

Each process goes through its share of the micro-batches, and the sums meet once an update, when all have
finished theirs. DistributedDataParallel adds up inside the backward pass instead, which hides the time of the
network behind that of the last micro-batch. But it needs the same number of passes in every process, where a
share here may have any, and a process that ran out of memory within a pass would leave the others waiting in
the middle of a sum. Here nothing is exchanged until all processes have said that they got through.
"""

from __future__ import annotations

import gc
from collections.abc import Sequence

import torch
from torch import Tensor

from deepwire.errors import ResourceError
from deepwire.ops.process import seed_random_numbers
from deepwire.training.device_batches import DeviceBatch, DeviceUpdate
from deepwire.training.trainer import Trainer


def make_gradient(trainer: Trainer, update: DeviceUpdate) -> list[Tensor]:
    """Set the gradient of the loss per target token; returns sums over target tokens, in nats.

    They are those of smoothed loss and nll, and with R-Drop of the divergence of the two passes.

    If memory runs out in any process, all cut their micro-batches in half and make the update again.

    Raises:
        ResourceError: If memory does not suffice for a single sentence pair.
    """
    processes, parameters = trainer.processes, list(trainer.optimizer.parameters.values())
    while True:
        own = [piece for batch in update.batches for piece in batch.cut(trainer.state.pieces)]
        pieces = trainer.strategy.passes(own)
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
    r_drop = trainer.spec.config.r_drop
    totals = [trainer.zero() for _ in range(3 if r_drop else 2)]
    try:
        for batch in pieces:
            with trainer.precision_policy.autocast():
                sums = trainer.loss(
                    batch.source,
                    batch.target_input,
                    batch.target_output,
                    *trainer.smoothing,
                    r_drop,
                    languages=batch.languages,
                )
            torch.autograd.backward(sums.smoothed / update.target_tokens)
            found = (sums.smoothed.detach(), sums.nll, sums.divergence)
            for total, one in zip(totals, found, strict=False):
                if one is not None:
                    total += one
    except RuntimeError as error:
        if not (trainer.strategy.retries and _out_of_memory(error)):
            raise
        return None
    return totals


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


def _out_of_memory(error: RuntimeError) -> bool:
    return isinstance(error, torch.OutOfMemoryError) or "can't allocate memory" in str(error)
