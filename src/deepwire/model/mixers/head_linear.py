"""Linear maps and norms of several heads side by side, each head with its own parameters.

The heads are the first axis, so that the maps of all heads are one batched product.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional


class HeadLinear(nn.Module):
    """y^k = x^k W^k + b^k for every head k.

    Attributes:
        weight: `[heads, inputs, outputs]`, begins uniform in +-1/sqrt(inputs).
        bias: `[heads, 1, outputs]`, begins at 0; None without it.
    """

    def __init__(self, heads: int, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, inputs, outputs))
        nn.init.uniform_(self.weight, -(inputs**-0.5), inputs**-0.5)
        self.bias = nn.Parameter(torch.zeros(heads, 1, outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Map `[heads, ..., inputs]` to `[heads, ..., outputs]`."""
        rows = x.flatten(1, -2)
        if self.bias is None:
            mapped = torch.bmm(rows, self.weight)
        else:
            mapped = torch.baddbmm(self.bias, rows, self.weight)
        return mapped.view(*x.shape[:-1], mapped.size(-1))

    def extra_repr(self) -> str:
        """Show the measures when printed."""
        heads, inputs, outputs = self.weight.shape
        return f"heads={heads}, inputs={inputs}, outputs={outputs}, bias={self.bias is not None}"


class HeadNorm(nn.Module):
    """Layer norm of `parts` vectors of width `dim` in every head, each with its own gain and bias.

    Each vector has its own statistics, as in the equations of Xu et al. 2021, where heads do not see each
    other; with `joint`, all parts of all heads have one mean and one variance, as in the released code.
    """

    def __init__(self, heads: int, parts: int, dim: int, *, eps: float, joint: bool) -> None:
        super().__init__()
        self.eps, self.joint = eps, joint
        self.weight = nn.Parameter(torch.ones(heads, parts, dim))
        self.bias = nn.Parameter(torch.zeros(heads, parts, dim))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `[heads, T, B, parts * dim]`; the result is `[heads, T, B, parts, dim]`."""
        x = x.view(*x.shape[:-1], *self.weight.shape[1:])
        if self.joint:
            together = x.permute(1, 2, 0, 3, 4)
            together = functional.layer_norm(together, self.weight.shape, self.weight, self.bias, self.eps)
            return together.permute(2, 0, 1, 3, 4)
        # A fused kernel has one gain for all rows, so the gains of the heads are applied after it.
        normal = functional.layer_norm(x, self.weight.shape[-1:], None, None, self.eps)
        return torch.addcmul(self.bias[:, None, None], normal, self.weight[:, None, None])

    def extra_repr(self) -> str:
        """Show the measures when printed."""
        heads, parts, dim = self.weight.shape
        return f"heads={heads}, parts={parts}, dim={dim}, joint={self.joint}"
