"""Gated linear attention (GLA): its state decays, each channel of the keys at a rate of its own."""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import logsigmoid

from deepwire.config.counts import MAX_SIZE
from deepwire.model.context import Context
from deepwire.model.layers import Linear, RMSNorm, split_heads
from deepwire.model.mixers.head_states import (
    HEAD_EPS,
    GatedOutput,
    HeadStateSection,
    KeyExpansion,
    ValueExpansion,
)
from deepwire.model.mixers.mixer import Mixer, State
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.gated_product import gated_product, gated_state, gated_step


class GLAConfig(HeadStateSection):
    """Gated linear attention (Yang et al. 2024)."""

    type: Literal["gla"] = "gla"
    expand_key: KeyExpansion = 0.5
    expand_value: ValueExpansion = 1.0
    gate_rank: int = Field(16, ge=1, le=MAX_SIZE, description="rank of the map that makes the decays")
    gate_divisor: float = Field(
        16.0, gt=0, description="what the logarithm of a decay is divided by: the larger, the longer a memory"
    )

    def one_way(self, spec: StackSpec) -> Mixer:
        """One mixer of one direction."""
        return GLA(self, spec)


class GLA(Mixer):
    """y = W_o (RMS(o) * SiLU(W_g x)), o_t = S_t^T q_t / sqrt(m), S_t = diag(a_t) S_{t-1} + k_t v_t^T.

    log a_t = log s(W_2 W_1 x_t + b) / 16; q, k and v are linear maps without bias. Yang et al. 2024, "Gated
    Linear Attention Transformers with Hardware-Efficient Training", section 4.4; norms as in their code.
    The state while decoding is (S,), `[rows, H, m, n]`, in float32 at least.
    """

    def __init__(self, config: GLAConfig, spec: StackSpec) -> None:
        super().__init__()
        self.heads, self.divisor = config.heads_in(spec), config.gate_divisor
        self.key_size = config.head_size(spec, config.expand_key)
        self.value_size = config.head_size(spec, config.expand_value)
        width, keys = spec.mixer_width, self.heads * self.key_size
        self.query = Linear(width, keys, bias=False, role="self_attention")
        self.key = Linear(width, keys, bias=False, role="self_attention")
        self.value = Linear(width, self.heads * self.value_size, bias=False)
        self.decay = nn.Sequential(
            Linear(width, config.gate_rank, bias=False), Linear(config.gate_rank, keys, bias=True)
        )
        self.output = GatedOutput(
            spec, RMSNorm(self.value_size, eps=HEAD_EPS), heads=self.heads, size=self.value_size
        )

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Mix `[B, T, d_in]`; padding on the right is seen by nobody before it."""
        return self.output(gated_product(*self._parts(x)), x)

    def init_state(self, rows: int, like: Tensor) -> State:
        """An empty matrix in each head."""
        wide = torch.promote_types(like.dtype, torch.float32)
        return (like.new_zeros(rows, self.heads, self.key_size, self.value_size, dtype=wide),)

    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        """Steps on `[rows, T, d_in]`, in chunks."""
        query, key, value, decay = self._parts(x)
        if x.size(1) == 1:
            parts = (part.squeeze(2) for part in (query, key, value, decay))
            seen, following = gated_step(state[0], *parts)
            return self.output(seen.unsqueeze(2), x), (following,)
        seen = gated_product(query, key, value, decay, state[0])
        return self.output(seen, x), (gated_state(key, value, decay, state[0]),)

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        """Scaled queries, keys, values and log decays, `[B, H, T, m or n]`."""
        logits = self.decay(x)
        wide = torch.promote_types(logits.dtype, torch.float32)
        parts = (
            self.query(x) * self.key_size**-0.5,
            self.key(x),
            self.value(x),
            logsigmoid(logits.to(wide)) / self.divisor,
        )
        query, key, value, decay = (split_heads(part, self.heads) for part in parts)
        return query, key, value, decay
