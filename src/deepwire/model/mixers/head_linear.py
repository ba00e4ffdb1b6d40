"""Linear maps and norms of several heads side by side, each head with its own parameters.

The heads are the first axis, so that the maps of all heads are one batched product.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn
from torch.nn import functional

from deepwire.model.context import Context
from deepwire.model.layers import of_languages


class HeadLinear(nn.Module):
    """y^k = x^k W^k + b^k for every head k.

    Attributes:
        weight: `[heads, inputs, outputs]`, begins uniform in +-1/sqrt(inputs), whatever the initialisation.
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
    With L languages, each target language has its own gains and biases: `[L, heads, parts, dim]`.
    """

    def __init__(
        self,
        heads: int,
        parts: int,
        dim: int,
        *,
        eps: float,
        joint: bool,
        languages: int = 0,
    ) -> None:
        super().__init__()
        self.eps, self.joint, self.languages = eps, joint, languages
        self.shape = (heads, parts, dim)
        table = (languages, *self.shape) if languages else self.shape
        self.weight = nn.Parameter(torch.ones(table))
        self.bias = nn.Parameter(torch.zeros(table))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Normalise `[heads, T, B, parts * dim]`; the result is `[heads, T, B, parts, dim]`."""
        x = x.view(*x.shape[:-1], *self.shape[1:])
        if self.joint:
            together = x.permute(1, 2, 0, 3, 4)
            if self.languages:
                normal = functional.layer_norm(together, self.shape, None, None, self.eps)
                gain, shift = (
                    of_languages(table, context.languages).to(x.dtype) for table in (self.weight, self.bias)
                )
                together = torch.addcmul(shift, normal, gain)
            else:
                together = functional.layer_norm(together, self.shape, self.weight, self.bias, self.eps)
            return together.permute(2, 0, 1, 3, 4)
        # A fused kernel has one gain for all rows, so the gains of the heads are applied after it, in the
        # type of the vectors: wider gains would widen all that follows.
        normal = functional.layer_norm(x, self.shape[-1:], None, None, self.eps)
        gain, shift = (self._by_head(table, context).to(normal.dtype) for table in (self.weight, self.bias))
        return torch.addcmul(shift, normal, gain)

    def _by_head(self, table: Tensor, context: Context) -> Tensor:
        """Gains or biases as `[heads, 1, B or 1, parts, dim]`."""
        if not self.languages:
            return table[:, None, None]
        return of_languages(table, context.languages).transpose(0, 1).unsqueeze(1)

    def extra_repr(self) -> str:
        """Show the measures when printed."""
        heads, parts, dim = self.shape
        return f"heads={heads}, parts={parts}, dim={dim}, joint={self.joint}"
