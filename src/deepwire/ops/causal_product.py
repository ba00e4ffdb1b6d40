"""Sums over the past of outer products, in time that grows with the length and not with its square."""

from __future__ import annotations

import torch
from torch import Tensor

# Positions whose products are made at once; states of all positions would take much more memory.
CHUNK = 128


def causal_product(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """sum over s <= t of (x_t . y_s) z_s, `[..., T, n]`, of x and y `[..., T, m]` and z `[..., T, n]`."""
    length, results = x.size(-2), []
    past: Tensor | None = None
    for begin in range(0, length, CHUNK):
        here = slice(begin, begin + CHUNK)
        queries, keys, values = x[..., here, :], y[..., here, :], z[..., here, :]
        result = (queries @ keys.transpose(-2, -1)).tril() @ values
        if past is not None:
            result = result + queries @ past.to(queries.dtype)
        results.append(result)
        if begin + CHUNK < length:
            new = (keys.transpose(-2, -1) @ values).to(torch.promote_types(z.dtype, torch.float32))
            past = new if past is None else past + new
    return torch.cat(results, -2)
