"""Dropout (Srivastava et al. 2014, JMLR 15, section 4), with cheap random numbers on a CPU.

torch draws one Mersenne number per element on one thread, about 10 ns each. Here an element gets 16 random
bits in one vectorised addition: of two stretches of a store of random numbers, which begin where torch's own
generator says. Everything else is a vectorised pass too (docs/understand/speed.md).
"""

from __future__ import annotations

from functools import cache

import numpy as np
import torch
from torch import Tensor, nn
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

_LEVELS = 2**16
# Of 16 bits each: 4 MiB, more than most tensors need at once, and less than a cache holds.
_STORE = 2**21

Bits = np.ndarray[tuple[int], np.dtype[np.uint16]]


def dropout(x: Tensor, probability: float, *, training: bool) -> Tensor:
    """Zero each number of `x` with the given probability and scale the rest by 1 / (1 - probability).

    Repeatable under `torch.manual_seed`. On a CPU the probability is met to within 2 ** -17.

    Raises:
        ValueError: The probability is not at least 0 and below 1.
    """
    if not 0 <= probability < 1:
        raise ValueError(f"dropout must be at least 0 and below 1, not {probability}")
    if not training or probability == 0:
        return x
    if x.device.type != "cpu" or torch.compiler.is_compiling():
        return functional.dropout(x, probability, training=True)
    dropped: Tensor = _CpuDropout.apply(x, probability)  # type: ignore[no-untyped-call]
    return dropped


class Dropout(nn.Module):
    """`dropout` as a module; takes the place of `torch.nn.Dropout`."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        if not 0 <= probability < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, not {probability}")
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Drop from `x` of any shape when training; return it unchanged otherwise."""
        return dropout(x, self.probability, training=self.training)

    def extra_repr(self) -> str:
        """Show the probability when printed."""
        return str(self.probability)


class _Context(FunctionCtx):
    saved_tensors: tuple[Tensor, ...]
    scale: float


class _CpuDropout(torch.autograd.Function):
    """Keeps one byte per element for the backward pass."""

    @staticmethod
    def forward(ctx: _Context, x: Tensor, probability: float) -> Tensor:
        mask, ctx.scale = _cpu_mask(x.shape, probability)
        ctx.save_for_backward(mask)
        return _masked(x, mask, ctx.scale)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor, None]:
        (mask,) = ctx.saved_tensors
        return _masked(grad, mask, ctx.scale), None


def keep_mask(like: Tensor, probability: float) -> tuple[Tensor | None, float]:
    """A mask of `dropout`, of bytes or booleans that are 1 where numbers are kept, and the scale of those.

    None where nothing is dropped. The mask has the shape and place of `like`.
    """
    if probability == 0:
        return None, 1.0
    if like.device.type == "cpu":
        return _cpu_mask(like.shape, probability)
    return torch.native_dropout(torch.ones_like(like), probability, True)[1], 1 / (1 - probability)


def _cpu_mask(shape: torch.Size, probability: float) -> tuple[Tensor, float]:
    threshold = round(probability * _LEVELS)
    kept = _random_bits(shape.numel()) >= threshold
    mask = torch.from_numpy(kept.view(np.uint8)).view(shape)
    # A probability just below 1 may round up to it; then everything is dropped.
    return mask, _LEVELS / max(_LEVELS - threshold, 1)


def _masked(x: Tensor, mask: Tensor, scale: float) -> Tensor:
    """`x` times `scale` where the mask of bytes is 1, else 0."""
    if x.element_size() != 2:
        return (x * mask.to(x.dtype)).mul_(scale)
    # A product of numbers of 2 bytes widens them first; to clear their bits is a fraction of that.
    scaled = x.contiguous() * scale
    scaled.view(torch.int16).bitwise_and_(mask.to(torch.int16).neg_())
    return scaled


def _random_bits(count: int) -> Bits:
    """Return `count` random 16-bit numbers, determined by torch's generator."""
    store, bits = _store(), np.empty(count, dtype=np.uint16)
    for start in range(0, count, _STORE // 2):
        part = bits[start : start + _STORE // 2]
        first, second = (
            store[place : place + part.size] for place in torch.randint(_STORE // 2, (2,)).tolist()
        )
        np.add(first, second, out=part)
    return bits


@cache
def _store() -> Bits:
    """Random numbers that are the same in every process of every run."""
    return np.random.SFC64(1).random_raw(_STORE // 4).view(np.uint16)
