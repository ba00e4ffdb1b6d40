"""Sizes, types and sums of losses that hold the logits of one chunk of tokens at a time."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx
from torch.nn import functional

# Logits held at a time. On a CPU they should stay in the cache between the passes over them; a GPU needs
# large products to be busy (docs/understand/speed.md).
CPU_LOGITS = 4 * 2**20
# Products with fewer rows than this are slower than the cache is worth.
LEAST_TOKENS = 256
# The rows of a chunk's products are a multiple of this, those added all zero. The number of real tokens is
# another one in every batch, and making products ready for a new shape takes longer than so few rows.
ROWS = 32
GPU_LOGITS = 64 * 2**20


def chunk_size(weight: Tensor) -> int:
    """Return how many tokens to take at a time for an output projection `[V, d]`."""
    logits = CPU_LOGITS if weight.device.type == "cpu" else GPU_LOGITS
    return max(LEAST_TOKENS, logits // weight.size(0) // ROWS * ROWS)


def autocast_types(hidden: Tensor) -> tuple[torch.dtype, torch.dtype]:
    """Return the type of the products and that of sums and softmax."""
    device = hidden.device.type
    cast = torch.get_autocast_dtype(device) if torch.is_autocast_enabled(device) else hidden.dtype
    return cast, torch.promote_types(hidden.dtype, torch.float32)


class LossContext(FunctionCtx):
    """The context between forward and backward pass, with the gradients."""

    saved_tensors: tuple[Tensor | None, ...]


def scaled(gradients: Sequence[Tensor | None], grad: Tensor) -> tuple[Tensor | None, ...]:
    """Multiply the gradients of a sum by the one that arrives for it; None stays None."""
    return tuple(None if kept is None else kept * grad.to(kept.dtype) for kept in gradients)


def in_whole_rows(rows: Tensor) -> Tensor:
    """`[N, d]` with zeros below, as many rows as whole steps of `ROWS` need."""
    return functional.pad(rows, (0, 0, 0, -rows.size(0) % ROWS))


def sum_of_rows(x: Tensor, wide: torch.dtype) -> Tensor:
    """`[N, V]` added up to `[V]`, in the type `wide` or, like the weights' gradient, rounded to that of x."""
    if x.dtype == wide or x.device.type != "cpu":
        return x.sum(0, dtype=wide)
    # torch would write all of it anew in the wider type first; a product adds in float32 as it reads.
    return (x.new_ones(1, x.size(0)) @ x).squeeze(0)


def row_maximum(x: Tensor) -> Tensor:
    """The largest number of each row of `[N, V]`, `[N, 1]`."""
    if x.dtype != torch.bfloat16 or x.device.type != "cpu":
        return x.amax(1, keepdim=True)
    # torch widens every bfloat16 first. Their bits as integers are ordered like the numbers if these are
    # positive, the other way round if they are negative: a seventh of the time.
    bits = x.view(torch.int16)
    largest = bits.amax(1, keepdim=True)
    return torch.where(largest >= 0, largest, bits.amin(1, keepdim=True)).view(torch.bfloat16)
