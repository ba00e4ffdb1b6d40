"""Sentences turned around in time, each within its own length, for mixers that read in both directions."""

from __future__ import annotations

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx


def backward_order(x: Tensor, padding: Tensor | None) -> Tensor:
    """For every row of `[B * T, ...]` the row that takes its place when each sentence is turned around.

    Padding stays where it is, on the right: whoever reads on from the last word's place never sees it. The
    order is its own inverse.

    Args:
        x: The sentences, `[B, T, ...]`.
        padding: `[B, 1, 1, T]`, 0 at words; None where there is no padding.
    """
    rows, length = x.shape[:2]
    position = torch.arange(length, device=x.device)
    if padding is None:
        turned = (length - 1 - position).expand(rows, -1)
    else:
        words = (padding == 0).sum(-1).view(-1, 1)
        turned = torch.where(position < words, words - 1 - position, position)
    return (turned + length * torch.arange(rows, device=x.device).unsqueeze(1)).flatten()


def turn(x: Tensor, order: Tensor) -> Tensor:
    """Sentences `[B, T, n]` in a `backward_order`."""
    turned: Tensor = _Turn.apply(x.flatten(0, 1), order)  # type: ignore[no-untyped-call]
    return turned.view(x.shape)


class _Context(FunctionCtx):
    """The context between forward and backward pass."""

    saved_tensors: tuple[Tensor]


class _Turn(torch.autograd.Function):
    """Rows in an order that is its own inverse: nothing needs to be scattered in the backward pass."""

    @staticmethod
    def forward(ctx: _Context, x: Tensor, order: Tensor) -> Tensor:
        """Reorder `[N, n]`."""
        ctx.save_for_backward(order)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor, None]:
        """Reorder back."""
        (order,) = ctx.saved_tensors
        return grad.index_select(0, order), None
