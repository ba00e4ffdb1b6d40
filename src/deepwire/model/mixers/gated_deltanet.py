"""Gated DeltaNet: a decaying state in which a key's old value is replaced by the new one."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor
from torch.nn.functional import silu

from deepwire.model.context import Context
from deepwire.model.layers import Linear, RMSNorm, split_heads
from deepwire.model.mixers.head_states import (
    HEAD_EPS,
    DecayRate,
    GatedOutput,
    HeadStateSection,
    KeyExpansion,
    ShortConvolution,
    ValueExpansion,
    unit_length,
)
from deepwire.model.mixers.mixer import Mixer, State
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.gated_product import gated_delta_continued, gated_delta_product, gated_delta_step


class GatedDeltaNetConfig(HeadStateSection):
    """Gated DeltaNet (Yang, Kautz, Hatamizadeh 2025)."""

    type: Literal["gated_deltanet"] = "gated_deltanet"
    expand_key: KeyExpansion = 0.75
    expand_value: ValueExpansion = 1.5
    convolution: int | None = Field(
        4, ge=2, le=64, description="positions of the short convolutions of q, k and v; null: there are none"
    )
    negative_eigenvalues: bool = Field(
        False, description="beta up to 2: what is stored under a key may change its sign"
    )

    def one_way(self, spec: StackSpec) -> Mixer:
        """One mixer of one direction."""
        return GatedDeltaNet(self, spec)


class GatedDeltaNet(Mixer):
    """y = W_o (RMS(o) * SiLU(W_g x)) with o_t = S_t^T q_t / sqrt(m) in each head.

    S_t = S + k_t (b_t (v_t - S^T k_t))^T, S = a_t S_{t-1}. q, k and v are SiLU(convolution of a linear map of
    x), q and k at length 1; log a = -exp(A) softplus(W_a x + b_a), b = s(W_b x), twice that with negative
    eigenvalues. Yang, Kautz, Hatamizadeh 2025, "Gated Delta Networks: Improving Mamba2 with Delta Rule",
    section 3, as in the authors' code.
    The state while decoding is (S, tail), `[rows, H, m, n]` in float32 at least, and `[rows, 3, channels]`:
    what the convolutions of q, k and v read of the last positions; without convolutions (S,).
    """

    def __init__(self, config: GatedDeltaNetConfig, spec: StackSpec) -> None:
        super().__init__()
        self.heads, self.largest = config.heads_in(spec), 2.0 if config.negative_eigenvalues else 1.0
        self.key_size = config.head_size(spec, config.expand_key)
        self.value_size = config.head_size(spec, config.expand_value)
        width, keys, values = spec.mixer_width, self.heads * self.key_size, self.heads * self.value_size
        self.widths = [keys, keys, values]
        self.query = Linear(width, keys, bias=False, role="self_attention")
        self.key = Linear(width, keys, bias=False, role="self_attention")
        self.value = Linear(width, values, bias=False)
        self.gates = Linear(width, 2 * self.heads, bias=False, parts=2)
        self.rate = DecayRate(self.heads)
        self.convolution = (
            ShortConvolution(sum(self.widths), config.convolution, bias=False) if config.convolution else None
        )
        self.output = GatedOutput(
            spec, RMSNorm(self.value_size, eps=HEAD_EPS), heads=self.heads, size=self.value_size
        )

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Mix `[B, T, d_in]`; padding on the right is seen by nobody before it."""
        projected = self._projected(x)
        if self.convolution is not None:
            projected = self.convolution(projected)
        return self.output(gated_delta_product(*self._parts(projected, x)), x)

    def init_state(self, rows: int, like: Tensor) -> State:
        """Nothing stored, and zeros before the first position."""
        wide = torch.promote_types(like.dtype, torch.float32)
        stored = like.new_zeros(rows, self.heads, self.key_size, self.value_size, dtype=wide)
        return (stored,) if self.convolution is None else (stored, self.convolution.empty_tail(rows, like))

    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        """Steps on `[rows, T, d_in]`, in chunks."""
        projected, tails = self._next(x, state)
        parts = self._parts(projected, x)
        if x.size(1) == 1:
            seen, stored = gated_delta_step(state[0], *(part.squeeze(2) for part in parts))
            return self.output(seen.unsqueeze(2), x), (stored, *tails)
        seen, stored = gated_delta_continued(*parts, state[0])
        return self.output(seen, x), (stored, *tails)

    def _next(self, x: Tensor, state: State) -> tuple[Tensor, State]:
        """Queries, keys and values side by side, behind the convolutions if there are any; the next tails."""
        projected = self._projected(x)
        if self.convolution is None:
            return projected, ()
        projected, tail = self.convolution.continued(projected, state[1])
        return projected, (tail,)

    def _projected(self, x: Tensor) -> Tensor:
        """Queries, keys and values side by side, before convolutions."""
        return torch.cat((self.query(x), self.key(x), self.value(x)), -1)

    def _parts(self, projected: Tensor, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Queries, keys, values `[B, H, T, m or n]`, beta and log decays `[B, H, T, 1]`."""
        active = silu(projected)
        wide = torch.promote_types(active.dtype, torch.float32)
        query, key, value = (
            split_heads(part, self.heads) for part in torch.split(active.to(wide), self.widths, -1)
        )
        of_decay, of_beta = self.gates(x).to(wide).chunk(2, -1)
        _, decay = self.rate(of_decay)
        beta = self.largest * of_beta.sigmoid()
        return (
            unit_length(query) * self.key_size**-0.5,
            unit_length(key),
            value,
            beta.transpose(1, 2).unsqueeze(-1),
            decay.transpose(1, 2).unsqueeze(-1),
        )
