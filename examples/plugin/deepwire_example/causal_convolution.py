"""Causal convolution as a token mixer: each position sees itself and a few before it."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.model.context import Context
from deepwire.model.layers import Linear
from deepwire.model.mixers.mixer import Mixer, MixerSection, State
from deepwire.model.stack_spec import Side, StackSpec


class CausalConvolutionConfig(MixerSection):
    """Depthwise causal convolution; for the decoder."""

    normalises: ClassVar[bool] = False
    sides: ClassVar[frozenset[Side]] = frozenset({"decoder"})

    type: Literal["causal_convolution"] = "causal_convolution"
    width: int = Field(3, ge=1, le=1024, description="positions that are seen, the own one included")

    def build(self, spec: StackSpec) -> Mixer:
        """One convolution of a decoder."""
        return CausalConvolution(spec.dim, self.width)


class CausalConvolution(Mixer):
    """y_t = W (sum_k w_k * x_{t - k}) + b over the last positions, feature by feature.

    `kernel` is w, `[width, d]`, the oldest position first. The state while decoding is the last width - 1
    inputs, `[rows, width - 1, d]`.
    """

    def __init__(self, dim: int, width: int) -> None:
        super().__init__()
        self.kernel = nn.Parameter(torch.full((width, dim), width**-0.5))
        self.output = Linear(dim, dim, bias=True)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Mix `[B, T, d]`; nothing is in front of the first position."""
        return self.step(x, self.init_state(x.size(0), x), context)[0]

    def init_state(self, rows: int, like: Tensor) -> State:
        """Nothing read yet."""
        return (like.new_zeros(rows, self.kernel.size(0) - 1, self.kernel.size(1)),)

    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        """Mix the next positions, `[rows, T, d]`, with those before them."""
        seen = torch.cat((state[0], x), 1)
        return self._mix(seen), (seen[:, x.size(1) :],)

    def _mix(self, x: Tensor) -> Tensor:
        """`[B, T + width - 1, d]` to `[B, T, d]`."""
        windows = x.unfold(1, self.kernel.size(0), 1)  # [B, T, d, width]
        mixed: Tensor = self.output((windows * self.kernel.t().to(x.dtype)).sum(-1))
        return mixed
