"""Losses of two passes over the same tokens, without holding all logits.

Like `deepwire.ops.cross_entropy` this holds the logits of one chunk of tokens at a time and takes the
gradients while they are there. What is summed is up to `deepwire.ops.r_drop` and `deepwire.ops.sim_cut`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple, Protocol

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from deepwire.ops.cross_entropy import SmoothingForm, smoothing_masses
from deepwire.ops.logit_chunks import LossContext, autocast_types, chunk_size, scaled


class PairSums(NamedTuple):
    """Sums over target tokens, in nats.

    loss: what is minimised, differentiable; nll: negative log-likelihood; divergence: how far the passes are
    apart, before its weight; both detached.
    """

    loss: Tensor
    nll: Tensor
    divergence: Tensor


class Terms(NamedTuple):
    """The terms of a token's loss.

    Attributes:
        log_probs: Of the two passes, `[2, N, V]`, float32 at least.
        target: `[N]`.
        on_target, on_each: Cross-entropy is - on_target log p(y) - on_each sum_v log p(v).
        alpha: Weight of the divergence.
        weights: How often each token counts, `[N]`; None: once.
    """

    log_probs: Tensor
    target: Tensor
    on_target: float
    on_each: float
    alpha: float
    weights: Tensor | None

    def total(self, values: Tensor) -> Tensor:
        """The sum of values `[..., N, k]`, each token as often as it counts."""
        return (values if self.weights is None else values * self.weights.unsqueeze(1)).sum()

    def smoothed_and_nll(self, log_probs: Tensor) -> tuple[Tensor, Tensor]:
        """Smoothed cross-entropy and negative log-likelihood, summed, of some passes `[n, N, V]`."""
        targets = self.target.expand(len(log_probs), -1).unsqueeze(2)
        at_target = self.total(log_probs.gather(2, targets))
        smoothed = -self.on_target * at_target
        if self.on_each:
            smoothed = smoothed - self.on_each * self.total(log_probs)
        return smoothed, -at_target


Formula = Callable[[Terms], Tensor]
"""Gives (loss, nll, divergence) `[3]`, summed over tokens; the loss is differentiable."""


class PairLoss(Protocol):
    """`linear_r_drop` and `linear_sim_cut` with their own constants."""

    def __call__(
        self,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        target: Tensor,
        /,
        *,
        smoothing: float,
        form: SmoothingForm,
        weights: Tensor | None,
    ) -> PairSums:
        """Sum the loss of two passes."""


class _Constants(NamedTuple):
    on_target: float
    on_each: float
    alpha: float
    chunk: int
    cast: torch.dtype
    formula: Formula


def linear_pair_loss(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    formula: Formula,
    *,
    alpha: float,
    smoothing: float,
    form: SmoothingForm,
    weights: Tensor | None,
    chunk: int | None,
) -> PairSums:
    """Sum a loss of two passes; `formula` says which, the other arguments are those of `linear_r_drop`.

    Raises:
        ValueError: smoothing or form is none of those of `deepwire.ops.cross_entropy`.
    """
    on_target, on_each = smoothing_masses(smoothing, form, weight.size(0))
    size = chunk_size(weight) // 2 if chunk is None else chunk
    constants = _Constants(on_target, on_each, alpha, size, autocast_types(hidden)[0], formula)
    inputs = (hidden, weight, bias, weights)
    needs = [torch.is_grad_enabled() and x is not None and x.requires_grad for x in inputs]
    loss, nll, divergence = _LossOfPairs.apply(  # type: ignore[no-untyped-call]
        *inputs, target, constants, needs
    )
    return PairSums(loss, nll, divergence)


class _LossOfPairs(torch.autograd.Function):
    """The loss and, while the logits of a chunk are there, its gradients; backward only multiplies them."""

    @staticmethod
    def forward(
        ctx: LossContext,
        hidden: Tensor,
        weight: Tensor,
        bias: Tensor | None,
        weights: Tensor | None,
        target: Tensor,
        constants: _Constants,
        needs: list[bool],
    ) -> tuple[Tensor, Tensor, Tensor]:
        """Return (loss, nll, divergence); shapes as in `linear_pair_loss`."""
        wide = autocast_types(hidden)[1]
        sums = torch.zeros(3, dtype=wide, device=hidden.device)
        inputs = (hidden, weight, bias, weights)
        totals = [
            torch.zeros_like(x, dtype=wide) if x is not None and needed else None
            for x, needed in zip(inputs, needs, strict=True)
        ]
        with torch.autocast(hidden.device.type, enabled=False):
            matrix = weight.detach().to(constants.cast)
            for start in range(0, hidden.size(1), constants.chunk):
                rows = slice(start, start + constants.chunk)
                counts = None if weights is None else weights[rows]
                leaves = [hidden[:, rows].detach().to(constants.cast), matrix, bias, counts]
                chunk_sums, gradients = _chunk(leaves, target[rows], constants, needs)
                sums += chunk_sums
                # Hidden and weights have a gradient for these tokens alone.
                parts = ((slice(None), rows), (), (), (rows,))
                for total, part, gradient in zip(totals, parts, gradients, strict=True):
                    if total is not None and gradient is not None:
                        total[part].add_(gradient)
        gradients = [
            None if total is None or x is None else total.to(x.dtype)
            for x, total in zip(inputs, totals, strict=True)
        ]
        ctx.save_for_backward(*gradients)  # type: ignore[arg-type]  # torch takes None too
        loss, nll, divergence = sums.unbind()
        loss, nll, divergence = loss.clone(), nll.clone(), divergence.clone()
        ctx.mark_non_differentiable(nll, divergence)
        return loss, nll, divergence

    @staticmethod
    @once_differentiable
    def backward(ctx: LossContext, grad: Tensor, *_: Tensor) -> tuple[Tensor | None, ...]:
        """Scale the gradients by the one that arrives for the loss."""
        return (*scaled(ctx.saved_tensors, grad), None, None, None)


def _chunk(
    inputs: list[Tensor | None], target: Tensor, constants: _Constants, needs: list[bool]
) -> tuple[Tensor, list[Tensor | None]]:
    """(loss, nll, divergence) `[3]` of some tokens, and the gradients of hidden, weight, bias and weights."""
    with torch.enable_grad():
        leaves = [
            None if x is None else x.detach().requires_grad_(needed)
            for x, needed in zip(inputs, needs, strict=True)
        ]
        sums = _sums(leaves, target, constants)
        learning = [x for x in leaves if x is not None and x.requires_grad]
        remaining = iter(torch.autograd.grad(sums[0], learning) if learning else ())
    return sums.detach(), [next(remaining) if x is not None and x.requires_grad else None for x in leaves]


def _sums(inputs: list[Tensor | None], target: Tensor, constants: _Constants) -> Tensor:
    hidden, weight, bias, weights = inputs
    if hidden is None or weight is None:
        raise ValueError("hidden and weight are needed")
    logits = hidden @ weight.t()
    logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
    if bias is not None:
        logits = logits + bias
    log_probs = logits.log_softmax(-1)
    return constants.formula(
        Terms(log_probs, target, constants.on_target, constants.on_each, constants.alpha, weights)
    )
