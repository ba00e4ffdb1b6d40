"""Layer normalisation of several parts side by side in one tensor."""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class PartsNorm(nn.Module):
    """Layer norm over `parts` vectors of width `dim` that lie next to each other on the last axis.

    Each part has its own gain and bias. `joint` takes one mean and one variance over all parts together, as
    Neutron's recurrent cells do; otherwise each part has its own statistics, as the papers' equations say.
    """

    def __init__(self, parts: int, dim: int, *, eps: float, joint: bool = False) -> None:
        super().__init__()
        self.parts, self.dim, self.eps, self.joint = parts, dim, eps, joint
        self.weight = nn.Parameter(torch.ones(parts, dim))
        self.bias = nn.Parameter(torch.zeros(parts, dim))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `[..., parts * dim]`; the result is `[..., parts, dim]`."""
        x = x.view(*x.shape[:-1], self.parts, self.dim)
        if self.joint:
            return functional.layer_norm(x, (self.parts, self.dim), self.weight, self.bias, self.eps)
        # A fused kernel has one gain for all rows, so the gains of the parts are applied after it.
        return torch.addcmul(
            self.bias, functional.layer_norm(x, (self.dim,), None, None, self.eps), self.weight
        )

    def extra_repr(self) -> str:
        """Show the measures when printed."""
        return f"parts={self.parts}, dim={self.dim}, joint={self.joint}"
