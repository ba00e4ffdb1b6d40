"""Losses of two passes over the same tokens, R-Drop and SimCut, without holding all logits.

Like `deepwire.ops.cross_entropy` this holds the logits of one chunk of tokens at a time and takes the
gradients while they are there.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import once_differentiable

from deepwire.ops.cross_entropy import (
    LossContext,
    SmoothingForm,
    autocast_types,
    chunk_size,
    scaled,
    smoothing_masses,
)


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


def r_drop(terms: Terms) -> Tensor:
    """R-Drop, for the distributions p and q of two passes with different dropout.

    ce = -log p(y) - log q(y), kl = (KL(p || q) + KL(q || p)) / 2, loss = ce + alpha kl (Liang et al. 2021,
    R-Drop, Eq. 1 to 4) with the label-smoothed cross-entropy in the place of ce. Here everything is divided
    by two, so that without dropout the loss is that of plain training.
    """
    smoothed, nll = terms.smoothed_and_nll(terms.log_probs)
    first, second = terms.log_probs.unbind()
    # p (log p - log q) + q (log q - log p), halved
    divergence = terms.total((first.exp() - second.exp()) * (first - second)) / 2
    return torch.stack([smoothed / 2 + terms.alpha / 2 * divergence, nll / 2, divergence])


def sim_cut(terms: Terms) -> Tensor:
    """SimCut, for the distributions p of a plain pass and q of one over inputs of which some tokens were cut.

    loss = ce(p) + alpha KL(p || q) (Gao et al. 2022, Bi-SimCut, Eq. 5 and 6) with the label-smoothed
    cross-entropy of the plain pass as ce.
    """
    smoothed, nll = terms.smoothed_and_nll(terms.log_probs[:1])
    plain, cut = terms.log_probs.unbind()
    divergence = terms.total(plain.exp() * (plain - cut))
    return torch.stack([smoothed + terms.alpha * divergence, nll, divergence])


PairLoss = Callable[..., PairSums]
"""`linear_pair_loss` with a formula and its weight."""


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
    *,
    formula: Formula,
    alpha: float,
    smoothing: float,
    form: SmoothingForm = "uniform_wrong",
    weights: Tensor | None = None,
    chunk: int | None = None,
) -> PairSums:
    """Sums the loss of two passes without holding all logits.

    Under autocast the products run in its type; softmax, sums and the weights' gradient stay float32.

    Args:
        hidden: Outputs of the decoder for each target token in both passes, `[2, N, d]`; the plain one first.
        weight: Output projection `[V, d]`; may be the embedding matrix.
        bias: Output bias `[V]`, or None.
        target: Token ids `[N]`, int64, no padding.
        formula: `r_drop` or `sim_cut`.
        alpha: Weight of the divergence.
        smoothing: The probability mass taken from the true token, at least 0 and below 1.
        form: Who receives that mass, see `deepwire.ops.cross_entropy.linear_cross_entropy`.
        weights: How often each token counts in the sums, `[N]`; once without.
        chunk: Tokens taken at a time; chosen by device and vocabulary when None.

    Raises:
        ValueError: smoothing or form is none of those of `deepwire.ops.cross_entropy`.
    """
    on_target, on_each = smoothing_masses(smoothing, form, weight.size(0))
    size = chunk_size(weight) // 2 if chunk is None else chunk
    cast = autocast_types(hidden)[0]
    constants = _Constants(on_target, on_each, alpha, size, cast, formula)
    inputs = (hidden, weight, bias, weights)
    needs = [torch.is_grad_enabled() and x is not None and x.requires_grad for x in inputs]
    loss, nll, divergence = _LossOfPairs.apply(  # type: ignore[no-untyped-call]
        *inputs, target, constants, needs
    )
    return PairSums(loss, nll, divergence)


linear_r_drop = partial(linear_pair_loss, formula=r_drop)
linear_sim_cut = partial(linear_pair_loss, formula=sim_cut)


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
        hidden, weight, bias, weights = leaves
        assert hidden is not None
        assert weight is not None
        logits = hidden @ weight.t()
        logits = logits.to(torch.promote_types(logits.dtype, torch.float32))
        if bias is not None:
            logits = logits + bias
        on_target, on_each, alpha, *_ = constants
        terms = Terms(logits.log_softmax(-1), target, on_target, on_each, alpha, weights)
        sums = constants.formula(terms)
        learning = [x for x in leaves if x is not None and x.requires_grad]
        remaining = iter(torch.autograd.grad(sums[0], learning) if learning else ())
    return sums.detach(), [next(remaining) if x is not None and x.requires_grad else None for x in leaves]
