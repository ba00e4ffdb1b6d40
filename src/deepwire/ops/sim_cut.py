"""SimCut: a plain pass, a pass over inputs of which some tokens were cut, and how far the second one strays.

For each target token with the distributions p of the plain pass and q of the other one (Gao et al. 2022,
Bi-SimCut, Eq. 5 and 6)

    loss = ce(p) + alpha KL(p || q)

with the label-smoothed cross-entropy of the plain pass as ce.
"""

from __future__ import annotations

from functools import partial
from typing import Literal

import torch
from torch import Tensor

from deepwire.ops.cross_entropy import SmoothingForm
from deepwire.ops.pair_loss import PairSums, Terms, linear_pair_loss

StopGradient = Literal["none", "plain", "cut"]
"""Which of the two passes learns nothing from the divergence."""


def linear_sim_cut(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    *,
    alpha: float,
    smoothing: float,
    form: SmoothingForm = "uniform_wrong",
    stop_gradient: StopGradient = "none",
    weights: Tensor | None = None,
    chunk: int | None = None,
) -> PairSums:
    """Sum the loss of both passes without holding all logits; `nll` is that of the plain pass.

    Under autocast the products run in its type; softmax, sums and the weights' gradient stay float32.

    Args:
        hidden: What the decoder says of each target token, `[2, N, d]`: in the plain pass, then in the other.
        weight: Output projection `[V, d]`; may be the embedding matrix.
        bias: Output bias `[V]`, or None.
        target: Token ids `[N]`, int64, no padding.
        alpha: Weight of the divergence.
        smoothing: The probability mass taken from the true token, at least 0 and below 1.
        form: Who receives that mass, see `deepwire.ops.cross_entropy.linear_cross_entropy`.
        stop_gradient: The pass whose distribution is taken as given in the divergence.
        weights: How often each token counts in the sums, `[N]`; once without.
        chunk: Tokens taken at a time; chosen by device and vocabulary when None.

    Raises:
        ValueError: smoothing or form is none of the above.
    """
    return linear_pair_loss(
        hidden,
        weight,
        bias,
        target,
        partial(_sums, stop_gradient=stop_gradient),
        alpha=alpha,
        smoothing=smoothing,
        form=form,
        weights=weights,
        chunk=chunk,
    )


def _sums(terms: Terms, stop_gradient: StopGradient) -> Tensor:
    smoothed, nll = terms.smoothed_and_nll(terms.log_probs[:1])
    plain, cut = terms.log_probs.unbind()
    plain = plain.detach() if stop_gradient == "plain" else plain
    cut = cut.detach() if stop_gradient == "cut" else cut
    divergence = terms.total(plain.exp() * (plain - cut))
    return torch.stack([smoothed + terms.alpha * divergence, nll, divergence])
