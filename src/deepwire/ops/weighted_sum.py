"""Sums of a few tensors with weights of their own: mixes of lanes, and of what stands at different depths."""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce

import torch
from torch import Tensor


def weighted_sum(weights: Sequence[Tensor], tensors: Sequence[Tensor]) -> Tensor:
    """sum_i w_i v_i of tensors `[B, T, d]`; nothing is stacked, so no tensor is copied.

    A weight broadcasts to its tensor: `[]`, `[d]`, `[B, 1, 1]` or `[B, T, 1]`.
    """
    total = weights[0] * tensors[0]
    for weight, tensor in zip(weights[1:], tensors[1:], strict=True):
        total = torch.addcmul(total, weight, tensor)
    return total


def mix_positions(weights: Sequence[Tensor], tensors: Sequence[Tensor]) -> Tensor:
    """sum_i w_i v_i of tensors `[B, T, d]` with weights `[]` or `[B, T]`, of the widest type of these."""
    # Under autocast a sub-layer gives a narrower type than the lanes have.
    wide = reduce(torch.promote_types, (tensor.dtype for tensor in tensors))
    return weighted_sum([weight.unsqueeze(-1).to(wide) for weight in weights], tensors)
