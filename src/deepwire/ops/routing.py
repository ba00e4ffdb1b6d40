"""Routing by agreement: input capsules vote for output capsules, and say how much of them goes to each.

Dynamic routing: Sabour et al. 2017 (Dynamic Routing Between Capsules). EM routing: Hinton et al. 2018 (Matrix
Capsules with EM Routing). Sums are made in float32 at least, as differences of votes are squared and divided.
"""

from __future__ import annotations

import math
from typing import Literal, NamedTuple

import torch
from torch import Tensor
from torch.nn.functional import logsigmoid

EMForm = Literal["hinton", "normalised"]
# Added to what is divided by, and to variances.
_EPS = 1e-8
_LOG_2_PI = math.log(2 * math.pi)


def squash(x: Tensor) -> Tensor:
    """|x|^2 / (1 + |x|^2) x / |x| over the last axis: the direction stays, the length is below 1."""
    length = x.norm(dim=-1, keepdim=True)
    squashed: Tensor = length.square() / (1 + length.square()) * x / (length + _EPS)
    return squashed


def dynamic_routing(votes: Tensor, iterations: int) -> Tensor:
    """Output capsules o_n = squash(sum_l c_ln V_ln) (Sabour et al. 2017, procedure 1).

    c_l. is the softmax over n of b_l., which begins at 0 and grows by V_ln . o_n after each iteration.

    Args:
        votes: V `[..., L, N, c]` of L input capsules for N output capsules of width c.
        iterations: How often the outputs are made, at least once.

    Returns:
        `[..., N, c]`, of the type of the votes.
    """
    wide = votes.to(torch.promote_types(votes.dtype, torch.float32))
    logits = wide.new_zeros(wide.shape[:-1])
    outputs = _outputs(wide, logits)
    for _ in range(iterations - 1):
        logits = logits + (wide * outputs.unsqueeze(-3)).sum(-1)
        outputs = _outputs(wide, logits)
    return outputs.to(votes.dtype)


def _outputs(votes: Tensor, logits: Tensor) -> Tensor:
    return squash((logits.softmax(-1).unsqueeze(-1) * votes).sum(-3))


class OutputCapsules(NamedTuple):
    """The result of EM routing.

    Attributes:
        mean: mu `[..., N, c]`.
        activation: A `[..., N]`.
        routing: r `[..., L, N]` with which they were made; sums to 1 over N.
    """

    mean: Tensor
    activation: Tensor
    routing: Tensor


def em_routing(
    votes: Tensor,
    activation: Tensor,
    beta_u: Tensor,
    beta_a: Tensor,
    *,
    iterations: int,
    inverse_temperature: float,
    form: EMForm = "hinton",
) -> OutputCapsules:
    """Fit one Gaussian to each output capsule by expectation maximisation (Hinton et al. 2018, procedure 1).

    Args:
        votes: V `[..., L, N, c]`.
        activation: a `[..., L]` of the input capsules, from 0 to 1.
        beta_u, beta_a: `[N]`, the cost of describing a vote and of not being active.
        iterations: Number of M-steps, at least one; an E-step lies between two of them.
        inverse_temperature: lambda of the activation A.
        form: `hinton`, or `normalised`: a_l r_ln is divided by its sum over n, so that a_l cancels and gets
            no gradient, and beta_u is added without the weight of the votes.
    """
    wide = votes.to(torch.promote_types(votes.dtype, torch.float32))
    of_input = activation.to(wide.dtype).unsqueeze(-1)

    def fitted(routing: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The M-step: mean and variance `[..., N, c]` and logit of the activation `[..., N]`."""
        weight = of_input * routing
        if form == "normalised":
            weight = weight / (weight.sum(-1, keepdim=True) + _EPS)
        total = weight.sum(-2).unsqueeze(-1)
        share = weight.unsqueeze(-1) / (total.unsqueeze(-3) + _EPS)
        mean = (share * wide).sum(-3)
        var = (share * (wide - mean.unsqueeze(-3)).square()).sum(-3) + _EPS
        spread, per_vote = 0.5 * var.log(), beta_u.unsqueeze(-1)
        cost = per_vote + spread * total if form == "normalised" else (per_vote + spread) * total
        return mean, var, inverse_temperature * (beta_a - cost.sum(-1))

    routing = wide.new_full(wide.shape[:-1], 1 / wide.size(-2))
    mean, var, logit = fitted(routing)
    for _ in range(iterations - 1):
        distance = (wide - mean.unsqueeze(-3)).square() / var.unsqueeze(-3)
        log_density = -0.5 * (distance + (_LOG_2_PI + var.log()).unsqueeze(-3)).sum(-1)
        routing = (log_density + logsigmoid(logit).unsqueeze(-2)).softmax(-1)
        mean, var, logit = fitted(routing)
    return OutputCapsules(mean.to(votes.dtype), logit.sigmoid().to(votes.dtype), routing)
