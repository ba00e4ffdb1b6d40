"""Parts of mixers whose heads each keep a matrix: sizes, short convolutions, decays and output."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Annotated, ClassVar

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from deepwire.config.counts import MAX_SIZE
from deepwire.model.layers import Linear
from deepwire.model.mixers.both_directions import DirectionalSection
from deepwire.model.stack_spec import StackSpec

HEAD_EPS = 1e-5
"""Inside the roots of the norms of heads, as in the authors' code."""


KeyExpansion = Annotated[
    float,
    Field(gt=0, le=64, description="width of all keys over that of the output, rounded up in each head"),
]
ValueExpansion = Annotated[float, Field(gt=0, le=64, description="likewise of all values")]


class HeadStateSection(DirectionalSection):
    """Settings of a mixer whose heads each keep a matrix."""

    # None that is each target language's own.
    normalises: ClassVar[bool] = False
    heads: int | None = Field(
        None,
        ge=1,
        le=MAX_SIZE,
        description="matrices side by side, in each direction; model.heads without it",
    )

    def heads_in(self, spec: StackSpec) -> int:
        """How many heads a direction has."""
        return self.heads or spec.heads

    def head_size(self, spec: StackSpec, expansion: float = 1.0) -> int:
        """Features of a head, where all of them have `expansion` times the width together, rounded up."""
        exact = spec.dim * expansion / self.heads_in(spec)
        return max(1, math.ceil(round(exact, 6)))


def unit_length(x: Tensor) -> Tensor:
    """x / sqrt(x . x + 1e-6) along the last axis."""
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()


class HeadLayerNorm(nn.Module):
    """Layer norm of each head alone, with a gain `[H, h]` and without bias."""

    def __init__(self, heads: int, size: int, *, eps: float) -> None:
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(heads, size))

    def forward(self, x: Tensor) -> Tensor:
        """Normalise `[..., H, h]`."""
        normal = functional.layer_norm(x, x.shape[-1:], None, None, self.eps)
        return normal * self.weight.to(x.dtype)


class GatedOutput(nn.Module):
    """W_o (norm(o) * act(W_g x)), the norm of each head alone; both maps without bias.

    Args:
        spec: Of the mixer.
        norm: Of `[..., H, h]`.
        heads, size: H and h.
        activation: act.
    """

    def __init__(
        self,
        spec: StackSpec,
        norm: nn.Module,
        *,
        heads: int,
        size: int,
        activation: Callable[[Tensor], Tensor] = functional.silu,
    ) -> None:
        super().__init__()
        self.norm, self.activation = norm, activation
        self.gate = Linear(spec.mixer_width, heads * size, bias=False)
        self.output = Linear(heads * size, spec.dim, bias=False, role="attention_output")

    def forward(self, heads: Tensor, x: Tensor) -> Tensor:
        """Combine the outputs of the heads, `[B, H, T, h]`, with their input, `[B, T, d_in]`."""
        gate = self.activation(self.gate(x))
        normal = self.norm(heads.transpose(1, 2)).flatten(2)
        return self.output(normal.to(gate.dtype) * gate)


class ShortConvolution(nn.Module):
    """y_t = sum_i w_i * x_{t-width+1+i} + b for each channel alone: the newest position has the last weight.

    Positions before the first are zeros. `weight` is `[channels, width]`, and begins uniform in
    +-1/sqrt(width), as `bias`.
    """

    def __init__(self, channels: int, width: int, *, bias: bool) -> None:
        super().__init__()
        self.width = width
        bound = width**-0.5
        self.weight = nn.Parameter(torch.empty(channels, width).uniform_(-bound, bound))
        self.bias = nn.Parameter(torch.empty(channels).uniform_(-bound, bound)) if bias else None

    def forward(self, x: Tensor, tail: Tensor | None = None) -> Tensor:
        """Convolve `[B, T, channels]`; `tail`, `[B, width - 1, channels]`, came before, None for nothing."""
        if tail is None:
            padded = functional.pad(x, (0, 0, self.width - 1, 0))
        else:
            padded = torch.cat((tail.to(x.dtype), x), 1)
        weight, length = self.weight.to(x.dtype), x.size(1)
        result = padded.narrow(1, 0, length) * weight[:, 0]
        if self.bias is not None:
            result = result + self.bias.to(x.dtype)
        for position in range(1, self.width):
            result = torch.addcmul(result, padded.narrow(1, position, length), weight[:, position])
        return result

    def empty_tail(self, rows: int, like: Tensor) -> Tensor:
        """The tail before the first position, `[rows, width - 1, channels]`."""
        return like.new_zeros(rows, self.width - 1, self.weight.size(0))

    def continued(self, x: Tensor, tail: Tensor) -> tuple[Tensor, Tensor]:
        """Convolve one or more positions `[rows, T, channels]`; also the next tail."""
        return self(x, tail), torch.cat((tail, x.to(tail.dtype)), 1)[:, x.size(1) :]


class DecayRate(nn.Module):
    """Log decays g = -exp(A) dt and steps dt = softplus(a + b) of heads, for numbers a made of the input.

    exp(A) begins uniform in 1 to 16, and softplus(b) log-uniform in 0.001 to 0.1, as in Mamba-2 (Dao, Gu
    2024): a head then forgets half of its state after 1 to 700 positions.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.log_rate = nn.Parameter(torch.empty(heads).uniform_(1, 16).log())
        step = torch.empty(heads).uniform_(math.log(0.001), math.log(0.1)).exp()
        self.step_bias = nn.Parameter(step.expm1().log())  # the inverse of softplus

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
        """dt and g, each `[..., H]` and in float32 at least, of `[..., H]`."""
        wide = torch.promote_types(x.dtype, torch.float32)
        logits = x.to(wide) + self.step_bias.to(wide)
        # softplus; that of torch has a gradient whose layout is not the one that compilers expect.
        step = logits.clamp(min=0) + (-logits.abs()).exp().log1p()
        return step, -self.log_rate.to(wide).exp() * step
