"""Luna: a short learned sequence packs the text, and positions attend to what it packed.

Ma et al. 2021 (Luna: Linear Unified Nested Attention). The sequence P travels through the layers beside the
stream: encoder layers write what they packed into it, and the decoder goes on with the encoder's.
"""

from __future__ import annotations

import math
from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn.functional import softplus

from deepwire.config.counts import MAX_SIZE
from deepwire.model.context import Context, Memory
from deepwire.model.cross_attention import CrossAttention
from deepwire.model.embedding import SinusoidalConfig, Sinusoids
from deepwire.model.layers import Linear, NoNorm, split_heads
from deepwire.model.mixers.mixer import (
    EncoderMixer,
    Mixer,
    MixerSection,
    SideMixer,
    SideState,
    State,
    one_by_one,
)
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.attention import attention, attention_weights, finite_bias
from deepwire.ops.dropout import Dropout, dropout


class LunaConfig(MixerSection):
    """Linear unified nested attention; a decoder with it has Luna in the place of cross-attention too."""

    type: Literal["luna"] = "luna"
    brings_cross_attention: ClassVar[bool] = True
    has_companion: ClassVar[bool] = True
    has_other_keys: ClassVar[bool] = True
    length: int = Field(
        32,
        ge=1,
        le=MAX_SIZE,
        description="rows of the learned sequence P; a decoder goes on with that of the encoder's luna",
    )
    tie: bool = Field(
        True, description="one projection for keys and values; false: two (the paper's untied form)"
    )
    pack_heads: int | None = Field(
        None,
        ge=1,
        le=MAX_SIZE,
        description="heads of the attention from P to the text; those of the model without it",
    )

    def continues(self, spec: StackSpec) -> bool:
        """Whether this is a decoder that goes on with the encoder's P."""
        return spec.side == "decoder" and isinstance(spec.other_mixer, LunaConfig)

    def check(self, spec: StackSpec) -> None:
        """Heads that divide the width, and one width for a P that both stacks have."""
        if spec.dim % (self.pack_heads or spec.heads):
            raise ValueError(
                f"{spec.side}.mixer: {self.pack_heads} pack_heads do not divide the width {spec.dim}"
            )
        if self.continues(spec) and spec.memory_width != spec.dim:
            raise ValueError(
                "decoder.mixer: luna goes on with the sequence of the encoder's luna, so both have one "
                f"width, not {spec.dim} and {spec.memory_width}"
            )

    def has_norm(self, spec: StackSpec) -> bool:
        """Whether P has norms."""
        return spec.norm_style != "none"

    def companion(self, spec: StackSpec) -> LunaSequence:
        """P of a whole stack."""
        return LunaSequence(self, spec)

    def cross_attention(self, spec: StackSpec) -> CrossAttention:
        """Luna attention to the encoder."""
        return LunaCrossAttention(spec, pack_heads=self.pack_heads, tied=self.tie)

    def build(self, spec: StackSpec) -> Mixer:
        """One Luna self-attention, causal in a decoder."""
        if not spec.causal:
            return LunaSelfAttention(spec, pack_heads=self.pack_heads, tied=self.tie)
        other = spec.other_mixer
        length = other.length if isinstance(other, LunaConfig) else self.length
        return LunaCausalAttention(spec, length=length, tied=self.tie)


class LunaSequence(nn.Module):
    """P, `[B, l, d]`, with a bias `[B, 1, 1, l]` that hides the rows above the length of the sentence.

    It begins as sqrt(d) E + sinusoids with learned E. Like the stream, it becomes LN(P + drop(Y)) around the
    layers of a connection with norms on outputs, and P + drop(Y) with packing by LN(P) where norms are on
    inputs; in a decoder of the latter kind, causal attention reads P itself, as in the authors' code. Norms
    whose result nobody reads are left out.
    """

    def __init__(self, config: LunaConfig, spec: StackSpec) -> None:
        super().__init__()
        dim, layers = spec.dim, spec.layers
        is_read = spec.side == "encoder" and isinstance(spec.other_mixer, LunaConfig)
        writes = layers if is_read else layers - 1

        def norms(style: str, count: int) -> nn.ModuleList:
            return nn.ModuleList(
                spec.norm() if spec.norm_style == style and layer < count else NoNorm()
                for layer in range(layers)
            )

        self.input_norms, self.output_norms = norms("input", layers), norms("output", writes)
        self.final_norm = spec.norm() if spec.norm_style == "input" and is_read else NoNorm()
        self.dropout = Dropout(spec.dropout.sublayer)
        self.embedding_dropout = Dropout(spec.dropout.embedding)
        self.positions = Sinusoids(SinusoidalConfig(layout="halves"), dim)
        self.table: nn.Parameter | None = None
        if not config.continues(spec):
            self.table = nn.Parameter(torch.empty(config.length, dim))
            nn.init.normal_(self.table, std=dim**-0.5)

    def start(self, context: Context, received: SideState = ()) -> SideState:
        """E for each sentence, or P of the encoder as it is."""
        if self.table is None:
            return received
        assert context.padding is not None
        length, dim = self.table.shape
        p = self.table * dim**0.5
        positions = self.positions(0, length, p)
        if positions is not None:
            p = p + positions
        words = (context.padding == 0).sum(-1, keepdim=True)
        hidden = torch.arange(length, device=p.device) >= words
        bias = torch.zeros_like(hidden, dtype=p.dtype).masked_fill(hidden, float("-inf"))
        return self.embedding_dropout(p.expand(words.size(0), -1, -1)), finite_bias(bias, p.dtype)

    def read(self, side: SideState, layer: int, context: Context) -> SideState:
        """P for the packing attention, normalised where norms are on inputs."""
        p, bias = side
        return self.input_norms[layer](p, context), bias

    def write(self, side: SideState, layer: int, moved: Tensor, context: Context) -> SideState:
        """Add what was packed, and normalise where norms are on outputs."""
        p, bias = side
        return self.output_norms[layer](p + self.dropout(moved), context), bias

    def result(self, side: SideState, context: Context) -> SideState:
        """P with the final norm, where there is one."""
        p, bias = side
        return self.final_norm(p, context), bias


class PackAttention(nn.Module):
    """Y = heads of softmax(P W_q (C W_k)^T / sqrt(h)) C W_v, without an output map.

    Args:
        spec: The stack's measures.
        width: Of C, which is packed.
        heads: Of the attention; those of the model for None.
        tied: Whether W_k and W_v are one.
    """

    def __init__(self, spec: StackSpec, width: int, *, heads: int | None, tied: bool) -> None:
        super().__init__()
        self.heads, self.dropout = heads or spec.heads, spec.dropout.attention
        dim, bias, self.parts = spec.dim, spec.attention_bias, 1 if tied else 2
        self.query = Linear(dim, dim, bias=bias, role="cross_attention")
        self.key_value = Linear(width, self.parts * dim, bias=bias, role="cross_attention", parts=self.parts)

    def forward(self, p: Tensor, text: Tensor, padding: Tensor | None) -> Tensor:
        """Pack C `[B, S, w]` into `[B, l, d]` by P of that shape; padding `[B, 1, 1, S]`, -inf at padding."""
        query, key, value = self._project(p, text)
        drop = self.dropout if self.training else 0.0
        seen = attention(query, key, value, bias=padding, causal=False, dropout=drop)
        return seen.transpose(1, 2).flatten(2)

    def weights(self, p: Tensor, text: Tensor, padding: Tensor | None) -> Tensor:
        """The weight of each position of C in each row of Y, `[B, H, l, S]`; arguments as above."""
        query, key, _ = self._project(p, text)
        return attention_weights(query, key, bias=padding, causal=False)

    def _project(self, p: Tensor, text: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries `[B, H, l, h]`, keys and values `[B, H, S, h]`."""
        both = [split_heads(part, self.heads) for part in self.key_value(text).chunk(self.parts, -1)]
        return split_heads(self.query(p), self.heads), both[0], both[-1]


class LunaSelfAttention(SideMixer, EncoderMixer):
    """Positions attend to Y, what P packed of them; of an encoder."""

    def __init__(self, spec: StackSpec, *, pack_heads: int | None, tied: bool) -> None:
        super().__init__()
        self.packing = PackAttention(spec, spec.dim, heads=pack_heads, tied=tied)
        self.unpack = CrossAttention(replace(spec, memory_width=spec.dim), tied=tied)

    def forward_beside(self, x: Tensor, side: SideState, context: Context) -> tuple[Tensor, SideState]:
        """Mix `[B, S, d]` with P and its bias; what P is moved by is Y."""
        p, bias = side
        packed = self.packing(p, x, context.padding)
        memory = self.unpack.project(packed, context.replace(padding=bias, spans=None))
        return self.unpack(x, memory), (packed,)

    def step_beside(
        self, x: Tensor, state: State, side: SideState, context: Context
    ) -> tuple[Tensor, State, SideState]:
        """None: it reads whole sentences."""
        raise NotImplementedError("Luna attention of an encoder reads whole sentences, not step by step")


class LunaCrossAttention(CrossAttention):
    """Target positions attend to Y, what P packed of the encoder's output; keys and values are those of Y."""

    def __init__(self, spec: StackSpec, *, pack_heads: int | None, tied: bool) -> None:
        super().__init__(replace(spec, memory_width=spec.dim), tied=tied)
        self.packing = PackAttention(spec, spec.memory_width, heads=pack_heads, tied=tied)

    def packed(self, encoded: Tensor, side: SideState, context: Context) -> Tensor:
        """Y `[N, l, d]` of encoder output `[N, S, w]`, by P and its bias."""
        return self.packing(side[0], encoded, context.padding)

    def packed_weights(self, encoded: Tensor, side: SideState, context: Context) -> Tensor:
        """The weight of each source position in each row of Y, `[N, 1, l, S]`.

        It is the mean over the heads that pack, as each head that reads Y reads what all of them made.
        """
        return self.packing.weights(side[0], encoded, context.padding).mean(1, keepdim=True)


class LunaCausalAttention(Mixer):
    """W_o heads of 1/t a_t sum_{s<=t} w_s v_s^T, a_t = softmax(1/t q_t sum_{s<=t} k_s w_s^T / sqrt(h)).

    w_s = softplus_2(x_s W_pc (P W_pq)^T / sqrt(h)), with softplus_2(z) = log(1 + 2^z) / log 2, says how much
    of position s goes to each row of P. The memory holds P W_pq as its keys, and the bias of P; it has no
    values. The state while decoding has the same size at every position: the sums of k w^T `[rows, H, h, l]`
    and of w v^T `[rows, H, l, h]`.
    """

    def __init__(self, spec: StackSpec, *, length: int, tied: bool) -> None:
        super().__init__()
        self.layer, self.heads, self.length = spec.layer, spec.heads, length
        self.dropout = spec.dropout.attention
        dim, bias, self.parts = spec.dim, spec.attention_bias, 1 if tied else 2
        self.pack_query = Linear(dim, dim, bias=bias, role="self_attention")
        self.pack_key = Linear(dim, dim, bias=bias, role="self_attention")
        self.query = Linear(dim, dim, bias=bias, role="self_attention")
        self.key_value = Linear(dim, self.parts * dim, bias=bias, role="self_attention", parts=self.parts)
        self.output = Linear(dim, dim, bias=bias, role="attention_output")

    def remember(self, side: SideState) -> Memory:
        """P W_pq `[N, H, l, h]` with the bias of P."""
        p, bias = side
        keys = split_heads(self.pack_query(p), self.heads).contiguous()
        return Memory(keys, keys.new_empty(keys.size(0), 0), bias.to(keys.dtype))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Mix `[N * W, T, d]`, with the memory of N sentences; W rows of one follow each other."""
        shares, query, key, value, bias = self._project(x, context)
        # In float32, as larger counts are no numbers of narrower types.
        count = torch.arange(1, x.size(1) + 1, device=x.device, dtype=torch.float32).unsqueeze(-1)
        scores = (causal_product(query, key, shares) / count).to(shares.dtype)
        mixed = causal_product(self._weights(scores, bias), shares, value) / count
        return self._join(mixed.to(value.dtype))

    def init_state(self, rows: int, like: Tensor) -> State:
        """Two empty sums, of float32 at least."""
        wide, width = torch.promote_types(like.dtype, torch.float32), like.size(-1) // self.heads
        return (
            like.new_zeros(rows, self.heads, width, self.length, dtype=wide),
            like.new_zeros(rows, self.heads, self.length, width, dtype=wide),
        )

    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        """Mix `[rows, T, d]` with the positions up to each."""
        if x.size(1) > 1:
            return one_by_one(self, x, state, context)
        shares, query, key, value, bias = self._project(x, context)
        key_sum = state[0] + key.transpose(-2, -1) * shares
        value_sum = state[1] + shares.transpose(-2, -1) * value
        count = context.positions.count
        if isinstance(count, Tensor) and count.dim():
            count = count.unsqueeze(-1)  # for heads
        weights = self._weights((query.to(key_sum.dtype) @ key_sum / count).to(x.dtype), bias)
        mixed = weights.to(value_sum.dtype) @ value_sum / count
        return self._join(mixed.to(x.dtype)), (key_sum, value_sum)

    def _project(self, x: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Shares `[R, H, T, l]`, scaled queries, keys and values `[R, H, T, h]`, bias of P `[R, 1, 1, l]`."""
        memory = context.memory[len(context.memory) // 2 + self.layer]  # behind those of cross-attentions
        rows, length, dim = x.shape
        sentences = memory.key.size(0)
        scale = (dim // self.heads) ** -0.5
        # The W rows of a sentence become further positions, so that one P W_pq serves them all.
        keys = self.pack_key(x).view(sentences, -1, self.heads, dim // self.heads).transpose(1, 2)
        shares = softplus(keys @ memory.key.transpose(-2, -1) * scale, beta=math.log(2))
        shares = shares.transpose(1, 2).reshape(rows, length, self.heads, -1).transpose(1, 2)
        shares = dropout(shares, self.dropout, training=self.training)
        both = [split_heads(part, self.heads) for part in self.key_value(x).chunk(self.parts, -1)]
        query = split_heads(self.query(x), self.heads) * scale
        bias = memory.bias.unsqueeze(1).expand(-1, rows // sentences, -1, -1, -1).flatten(0, 1)
        return shares, query, both[0], both[-1], bias

    def _weights(self, scores: Tensor, bias: Tensor) -> Tensor:
        return dropout((scores + bias).softmax(-1), self.dropout, training=self.training)

    def _join(self, mixed: Tensor) -> Tensor:
        return self.output(mixed.transpose(1, 2).flatten(2))


# Positions whose products are made at once; states of all positions would take much more memory.
CHUNK = 128


def causal_product(x: Tensor, y: Tensor, z: Tensor) -> Tensor:
    """sum over s <= t of (x_t . y_s) z_s, `[..., T, n]`, of x and y `[..., T, m]` and z `[..., T, n]`."""
    if torch.compiler.is_compiling():  # one graph for all lengths
        return (x @ y.transpose(-2, -1)).tril() @ z
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
