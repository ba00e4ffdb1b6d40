"""Mamba-2: a state space model with one decay a head (state space duality, SSD)."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import silu

from deepwire.config.counts import MAX_SIZE
from deepwire.model.context import Context
from deepwire.model.layers import Linear, RMSNorm, split_heads
from deepwire.model.mixers.head_states import (
    HEAD_EPS,
    DecayRate,
    HeadStateSection,
    ShortConvolution,
)
from deepwire.model.mixers.mixer import Mixer, State
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.gated_product import gated_product, gated_state, gated_step


class Mamba2Config(HeadStateSection):
    """Mamba-2 (Dao, Gu 2024)."""

    type: Literal["mamba2"] = "mamba2"
    expand: float = Field(
        2.0, gt=0, le=64, description="width of all heads over that of the output, rounded up in each head"
    )
    state_size: int = Field(
        64, ge=1, le=MAX_SIZE, description="rows of the state of each head (authors' code: 128)"
    )
    convolution: int = Field(4, ge=2, le=64, description="positions of the short convolution")

    def one_way(self, spec: StackSpec) -> Mixer:
        """One mixer of one direction."""
        return Mamba2(self, spec)


class StateSpace(nn.Module):
    """S_t = exp(-exp(A) dt_t) S_{t-1} + dt_t B_t x_t^T and y_t = S_t^T C_t + D x_t, dt = softplus(a + b).

    A, b and D are one number a head; D begins at 1. The heads share B and C, or have some of their own.
    """

    def __init__(self, heads: int) -> None:
        super().__init__()
        self.rate = DecayRate(heads)
        self.skip = nn.Parameter(torch.ones(heads))

    def forward(self, x: Tensor, b: Tensor, c: Tensor, step: Tensor) -> Tensor:
        """y, `[B, H, T, h]`, in float32 at least.

        Args:
            x: `[B, H, T, h]`.
            b, c: `[B, 1 or H, T, n]`.
            step: a, `[B, T, H]`.
        """
        return self._with_skip(gated_product(*self._inputs(x, b, c, step)), x)

    def continued(
        self, state: Tensor, x: Tensor, b: Tensor, c: Tensor, step: Tensor
    ) -> tuple[Tensor, Tensor]:
        """`forward` from a state S `[B, H, n, h]` on, and the state behind it."""
        query, key, value, decay = self._inputs(x, b, c, step)
        seen = gated_product(query, key, value, decay, state)
        return self._with_skip(seen, x), gated_state(key, value, decay, state)

    def step(self, state: Tensor, x: Tensor, b: Tensor, c: Tensor, step: Tensor) -> tuple[Tensor, Tensor]:
        """The same of one position: `[B, H, h]`, `[B, 1 or H, n]` and `[B, H]`, with S `[B, H, n, h]`."""
        size, decay = (each.unsqueeze(-1) for each in self.rate(step))
        seen, following = gated_step(state, c, b, size * x, decay)
        return self._with_skip(seen, x), following

    def _inputs(self, x: Tensor, b: Tensor, c: Tensor, step: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Queries, keys and values of a decaying state, and log decays, `[B, H, T, n, h or 1]`."""
        size, decay = (each.transpose(1, 2).unsqueeze(-1) for each in self.rate(step))
        # With heads of its own, b goes through the products of each head; the decay does so anyway.
        heads = (*x.shape[:-1], b.size(-1))
        return c.expand(heads), b.expand(heads), size * x, decay

    def _with_skip(self, seen: Tensor, x: Tensor) -> Tensor:
        """D x added to what the state shows, `[B, H, T, h]` or `[B, H, h]`."""
        return seen + self.skip.to(seen.dtype).view(-1, *(1,) * (x.dim() - 2)) * x


class Mamba2(Mixer):
    """y = W_o RMS(SSM(x') * SiLU(W_z x)), with [x' | B | C] = SiLU(convolution of W_x x) and a = W_a x.

    Dao, Gu 2024, "Transformers are SSMs", sections 6 and 7; `StateSpace` is the SSM, with B and C shared by
    all heads. The RMS norm is one of all heads together, behind the gate.
    The state while decoding is (S, tail), `[rows, H, n, h]` in float32 at least, and `[rows, 3, channels]`:
    what the convolution reads of the last positions.
    """

    def __init__(self, config: Mamba2Config, spec: StackSpec) -> None:
        super().__init__()
        self.heads, self.size = config.heads_in(spec), config.head_size(spec, config.expand)
        self.state_size = config.state_size
        width, self.inner = spec.mixer_width, self.heads * self.size
        channels = self.inner + 2 * self.state_size
        self.gate = Linear(width, self.inner, bias=False)
        self.input = Linear(width, channels, bias=False)
        self.step_size = Linear(width, self.heads, bias=False)
        self.convolution = ShortConvolution(channels, config.convolution, bias=True)
        self.state_space = StateSpace(self.heads)
        self.norm = RMSNorm(self.inner, eps=HEAD_EPS)
        self.output = Linear(self.inner, spec.dim, bias=False, role="attention_output")

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Mix `[B, T, d_in]`; padding on the right is seen by nobody before it."""
        inner, b, c = self._parts(self.convolution(self.input(x)))
        return self._out(self.state_space(inner, b, c, self.step_size(x)), x)

    def init_state(self, rows: int, like: Tensor) -> State:
        """Nothing stored, and zeros before the first position."""
        wide = torch.promote_types(like.dtype, torch.float32)
        return (
            like.new_zeros(rows, self.heads, self.state_size, self.size, dtype=wide),
            self.convolution.empty_tail(rows, like),
        )

    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        """Steps on `[rows, T, d_in]`, in chunks."""
        convolved, tail = self.convolution.continued(self.input(x), state[1])
        parts, size = self._parts(convolved), self.step_size(x)
        if x.size(1) == 1:
            inner, b, c = (part.squeeze(2) for part in parts)
            seen, stored = self.state_space.step(state[0], inner, b, c, size.squeeze(1))
            return self._out(seen.unsqueeze(2), x), (stored, tail)
        seen, stored = self.state_space.continued(state[0], *parts, size)
        return self._out(seen, x), (stored, tail)

    def _parts(self, convolved: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """x' `[B, H, T, h]`, B and C `[B, 1, T, n]`."""
        x, b, c = torch.split(silu(convolved), [self.inner, self.state_size, self.state_size], -1)
        return split_heads(x, self.heads), b.unsqueeze(1), c.unsqueeze(1)

    def _out(self, heads: Tensor, x: Tensor) -> Tensor:
        gate = silu(self.gate(x))
        return self.output(self.norm(heads.transpose(1, 2).flatten(2).to(gate.dtype) * gate))
