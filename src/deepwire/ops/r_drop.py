"""R-Drop: two passes with different dropout over the same tokens, and how far apart they are.

For each target token with the distributions p and q of the two passes (Liang et al. 2021, R-Drop, Eq. 1 to 4)

    ce = -log p(y) - log q(y),  kl = (KL(p || q) + KL(q || p)) / 2,  loss = ce + alpha kl

with the label-smoothed cross-entropy in the place of ce. Here everything is divided by two, so that without
dropout the loss is that of plain training.
"""

from __future__ import annotations

import torch
from torch import Tensor

from deepwire.ops.cross_entropy import SmoothingForm
from deepwire.ops.pair_loss import PairSums, Terms, linear_pair_loss


def linear_r_drop(
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    *,
    alpha: float,
    smoothing: float,
    form: SmoothingForm = "uniform_wrong",
    weights: Tensor | None = None,
    chunk: int | None = None,
) -> PairSums:
    """Sum the loss of two passes without holding all logits.

    Under autocast the products run in its type; softmax, sums and the weights' gradient stay float32.

    Args:
        hidden: What the decoder says of each target token in the two passes, `[2, N, d]`.
        weight: Output projection `[V, d]`; may be the embedding matrix.
        bias: Output bias `[V]`, or None.
        target: Token ids `[N]`, int64, no padding.
        alpha: Weight of the divergence.
        smoothing: The probability mass taken from the true token, at least 0 and below 1.
        form: Who receives that mass, see `deepwire.ops.cross_entropy.linear_cross_entropy`.
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
        _sums,
        alpha=alpha,
        smoothing=smoothing,
        form=form,
        weights=weights,
        chunk=chunk,
    )


def _sums(terms: Terms) -> Tensor:
    smoothed, nll = terms.smoothed_and_nll(terms.log_probs)
    first, second = terms.log_probs.unbind()
    # p (log p - log q) + q (log q - log p), halved
    divergence = terms.total((first.exp() - second.exp()) * (first - second)) / 2
    return torch.stack([smoothed / 2 + terms.alpha / 2 * divergence, nll / 2, divergence])
