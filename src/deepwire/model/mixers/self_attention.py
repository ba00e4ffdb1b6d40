"""Multi-head self-attention, with or without relative or rotary positions."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.config.counts import MAX_SIZE
from deepwire.model.context import Context
from deepwire.model.embedding import RotaryConfig, SinusoidalConfig, Sinusoids
from deepwire.model.kv_cache import KeyValueCache
from deepwire.model.layers import Linear
from deepwire.model.mixers.mixer import Mixer, MixerSection, SideMixer, SideState, State
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.attention import attention, attention_weights, head_product


class SelfAttentionSection(MixerSection):
    """Settings that all kinds of multi-head self-attention share."""

    has_inner_norm: ClassVar[bool] = True
    has_rotary: ClassVar[bool] = True

    relative: int | None = Field(
        None,
        ge=1,
        le=MAX_SIZE,
        description="clipping distance k of relative positions on the keys; none without it",
    )
    relative_values: bool = Field(
        False, description="relative positions on the values too, with a table of their own (Shaw et al.)"
    )
    relative_table: Literal["compact", "full"] = Field(
        "compact",
        description="rows of a decoder's tables: compact k + 2 (past only, Neutron), full 2k + 1 (fairseq)",
    )

    def check(self, spec: StackSpec) -> None:
        """One kind of positions."""
        width = spec.dim // spec.heads
        if spec.rotary is not None and width % 2:
            raise ValueError(
                f"{spec.side}.positions: rotary positions turn pairs of numbers, and heads have {width} "
                f"(d_model {spec.dim}, {spec.heads} heads); take heads of even width"
            )
        if self.relative is not None and spec.rotary is not None:
            raise ValueError(
                f"{spec.side}.mixer.relative: rotary positions tell the distance of two words already; "
                "leave one of them out"
            )

    def has_norm(self, spec: StackSpec) -> bool:
        """In front of the output projection, where the model wants that."""
        return spec.inner_norm

    def relative_positions(self, spec: StackSpec) -> tuple[RelativeKeys | None, RelativeValues | None]:
        """The tables of relative positions of keys and of values, where there are any."""
        if self.relative is None:
            return None, None
        dim, past = spec.dim // spec.heads, self.relative
        future = 1 if spec.causal and self.relative_table == "compact" else past
        values = RelativeValues(dim, past=past, future=future) if self.relative_values else None
        return RelativeKeys(dim, past=past, future=future), values


class SelfAttentionConfig(SelfAttentionSection):
    """Multi-head self-attention."""

    takes_ways: ClassVar[bool] = True

    type: Literal["self_attention"] = "self_attention"

    def build(self, spec: StackSpec) -> Mixer:
        """One self-attention of the stack."""
        kind = SplitSelfAttention if spec.ways else SelfAttention
        return kind(spec, *self.relative_positions(spec))


class RelativePositions(nn.Module):
    """Learned vectors of clipped distances (Shaw et al. 2018, section 3.2).

    One table `[past + future + 1, h]` for all heads; row `clamp(s - t, -past, future) + past` serves query t
    and key s.
    """

    def __init__(self, dim: int, *, past: int, future: int) -> None:
        super().__init__()
        self.past, self.future = past, future
        self.table = nn.Parameter(torch.empty(past + future + 1, dim))

    def rows(self, distance: Tensor) -> Tensor:
        """The row of the table for each distance."""
        return distance.clamp(-self.past, self.future) + self.past


class RelativeKeys(RelativePositions):
    """Added to the keys: (x_t W^Q) (x_s W^K + a_ts)^T / sqrt(h) (Shaw et al. 2018, equation 4)."""

    def forward(self, query: Tensor, distance: Tensor) -> Tensor:
        """Bias `[B, H, T, S]` of queries `[B, H, T, h]` to S keys.

        Args:
            query: Not scaled.
            distance: Position of each key minus that of the query, broadcastable to `[B, H, T, S]`.
        """
        by_distance = (query * query.size(-1) ** -0.5) @ self.table.t().to(query.dtype)
        return by_distance.gather(-1, self.rows(distance).expand(*query.shape[:-1], -1))


class RelativeValues(RelativePositions):
    """Added to the values: sum_s alpha_ts (x_s W^V + a_ts) (Shaw et al. 2018, equation 3)."""

    def forward(self, weights: Tensor, distance: Tensor) -> Tensor:
        """The table's part of the output of attention, `[B, H, T, h]`.

        Args:
            weights: alpha, `[B, H, T, S]`.
            distance: See `RelativeKeys`.
        """
        # The weights of each distance are summed first: one vector a pair of words would be S times as many.
        by_distance = weights.new_zeros(*weights.shape[:-1], self.table.size(0))
        by_distance = by_distance.scatter_add(-1, self.rows(distance).expand_as(weights), weights)
        return by_distance @ self.table.to(weights.dtype)


class SelfAttention(Mixer):
    """softmax(Q K^T / sqrt(h)) V over the own sequence (Vaswani et al. 2017, section 3.2).

    Queries, keys and values come from one product. A decoder sees itself and the past only. An inner norm
    normalises the concatenated heads (Sub-LN; Wang et al. 2022, Magneto). With fewer heads of keys and values
    each serves several heads of queries (Ainslie et al. 2023, GQA). Queries and keys of each head may be
    normalised (Henry et al. 2020; Dehghani et al. 2023, section 2.1, with gains of all heads alike), and then
    turned by their positions. The state while decoding is a `KeyValueCache` of keys and values as they are
    used.

    Args:
        spec: The stack's measures.
        relative, relative_values: Relative positions on keys and on values; None: none.
        own_values: Whether it makes values of its own.
    """

    def __init__(
        self,
        spec: StackSpec,
        relative: RelativeKeys | None = None,
        relative_values: RelativeValues | None = None,
        *,
        own_values: bool = True,
    ) -> None:
        super().__init__()
        self.heads, self.key_heads = spec.heads, spec.key_heads
        self.causal, self.dropout = spec.causal, spec.dropout.attention
        self.query_scale = spec.scaling.query
        self.parts = 3 if own_values else 2
        self.make_maps(spec)
        self.output = Linear(spec.dim, spec.dim, bias=spec.attention_bias, role="attention_output")
        self.query_norm = spec.head_norm() if spec.qk_norm else None
        self.key_norm = spec.head_norm() if spec.qk_norm else None
        self.rotary = None if spec.rotary is None else Rotary(spec.rotary, spec.dim // self.heads)
        self.relative, self.relative_values = relative, relative_values
        self.inner_norm = spec.norm() if spec.inner_norm else None

    def make_maps(self, spec: StackSpec) -> None:
        """Make what maps x to queries, keys and values."""
        dim, width, makes_values = spec.dim, spec.dim // self.heads * self.key_heads, self.parts == 3

        def linear(outputs: int, parts: int, *, makes_values: bool) -> Linear:
            return Linear(
                dim,
                outputs,
                bias=spec.attention_bias,
                role="self_attention",
                parts=parts,
                makes_values=makes_values,
            )

        # Maps side by side are one product; they have one size, so fewer heads of keys lie apart.
        if self.key_heads < self.heads:
            self.query = linear(dim, 1, makes_values=False)
            self.key_value = linear((self.parts - 1) * width, self.parts - 1, makes_values=makes_values)
        else:
            self.query_key_value = linear(self.parts * dim, self.parts, makes_values=makes_values)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Attend within `[B, T, d]`."""
        return self.attend(*self.qkv(x), context.padding, context)

    def init_state(self, rows: int, like: Tensor) -> State:
        """No positions yet."""
        empty = like.new_empty(rows, self.key_heads, 0, like.size(-1) // self.heads)
        return KeyValueCache(empty, empty)

    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        """Attend from `[rows, T, d]` to themselves and the positions before, and fill the cache."""
        index = context.positions
        return self.attend_cached(*self.qkv(index.grouped(x), index.query_position), state, x, context)

    def qkv(self, x: Tensor, position: int | Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of `[B, T, d]`, each `[B, heads, T, h]`.

        The vectors are at positions 0 to T - 1, or all at `position`.
        """
        query, key, value = self.normalised(*self.maps(x))
        return *self.turned(query, key, position), value

    def maps(self, x: Tensor) -> Sequence[Tensor]:
        """Queries, keys and values, each `[B, T, heads, h]`; no values where there are none of its own."""
        if self.key_heads == self.heads:
            fused = self.query_key_value(x).unflatten(-1, (self.parts, self.heads, -1))
            return cast("Sequence[Tensor]", fused.unbind(2))
        both = self.key_value(x).unflatten(-1, (self.parts - 1, self.key_heads, -1))
        return self.query(x).unflatten(-1, (self.heads, -1)), *both.unbind(2)

    def normalised(self, query: Tensor, key: Tensor, *value: Tensor) -> Sequence[Tensor]:
        """The same with norms and scale, each `[B, heads, T, h]`."""
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        if self.query_scale != 1:
            query = query * self.query_scale
        return [part.transpose(1, 2) for part in (query, key, *value)]

    def turned(self, query: Tensor, key: Tensor, position: int | Tensor | None) -> tuple[Tensor, Tensor]:
        """Queries and keys turned by their positions, where there are rotary ones."""
        if self.rotary is None:
            return query, key
        return self.rotary(query, position), self.rotary(key, position)

    def attend(
        self, query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, context: Context
    ) -> Tensor:
        """Attend within whole sequences, `[B, heads, T, h]` to `[B, T, d]`."""
        bias, distance = padding, None
        if self.relative is not None:
            positions = torch.arange(query.size(2), device=query.device)
            distance = positions - positions.unsqueeze(1)
            bias = self.relative(query, distance)
            bias = bias if padding is None else bias + padding
        drop = self.dropout if self.training else 0.0
        if self.relative_values is None or distance is None:
            spans = context.spans if self.relative is None else None
            mixed = attention(query, key, value, bias=bias, causal=self.causal, dropout=drop, spans=spans)
        else:
            weights = attention_weights(query, key, bias=bias, causal=self.causal, dropout=drop)
            mixed = head_product(weights.to(value.dtype), value) + self.relative_values(weights, distance)
        return self.join(mixed.transpose(1, 2).flatten(2), context)

    def attend_cached(
        self, query: Tensor, key: Tensor, value: Tensor, state: State, x: Tensor, context: Context
    ) -> tuple[Tensor, State]:
        """Attend from the rows of groups, `[groups, heads, width, h]`, or of prompts; also the new cache."""
        index = context.positions
        keys, values = cache = index.store(KeyValueCache(*state), key, value)
        if index.length:
            return self.attend(query, key, value, index.prompt_bias, context), cache
        bias = index.bias
        if self.relative is not None:
            bias = self.relative(query, index.distance) + bias
        if self.relative_values is None:
            mixed = attention(query, keys, values, bias=bias, causal=False, finite=True)
        else:
            weights = attention_weights(query, keys, bias=bias, causal=False, finite=True)
            mixed = head_product(weights, values) + self.relative_values(weights, index.distance)
        return self.join(mixed.transpose(1, 2).reshape(x.shape), context), cache

    def join(self, heads: Tensor, context: Context) -> Tensor:
        """Project the concatenated heads `[B, T, d]`."""
        if self.inner_norm is not None:
            heads = self.inner_norm(heads, context)
        return self.output(heads)


class SplitSelfAttention(SideMixer, SelfAttention):
    """Self-attention whose keys and values are made of vectors of their own, which `side` brings (MUDD)."""

    def make_maps(self, spec: StackSpec) -> None:
        """One map each for queries, keys and values."""
        width = spec.dim // self.heads * self.key_heads
        self.apart = nn.ModuleList(
            Linear(spec.dim, outputs, bias=spec.attention_bias, role="self_attention", makes_values=values)
            for outputs, values in ((spec.dim, False), (width, False), (width, True))
        )

    def forward_beside(self, x: Tensor, side: SideState, context: Context) -> tuple[Tensor, SideState]:
        """Attend within `[B, T, d]`."""
        return self.attend(*self._of_three(x, *side), context.padding, context), side

    def step_beside(
        self, x: Tensor, state: State, side: SideState, context: Context
    ) -> tuple[Tensor, State, SideState]:
        """Attend from `[rows, T, d]`."""
        index = context.positions
        of_query, of_key, of_value = (index.grouped(vector) for vector in (x, *side))
        parts = self._of_three(of_query, of_key, of_value, index.query_position)
        return *self.attend_cached(*parts, state, x, context), side

    def _of_three(
        self, of_query: Tensor, of_key: Tensor, of_value: Tensor, position: int | Tensor | None = None
    ) -> tuple[Tensor, Tensor, Tensor]:
        made = [each(x) for each, x in zip(self.apart, (of_query, of_key, of_value), strict=True)]
        width = made[0].size(-1) // self.heads
        query, key, value = self.normalised(*(part.unflatten(-1, (-1, width)) for part in made))
        return *self.turned(query, key, position), value


class Rotary(nn.Module):
    """Turns pair i of a vector at position t by t base^(-2i/h), i from 0 to h/2 - 1 (equation 15).

    Args:
        config: The angles, and which numbers are a pair.
        dim: Width h of the vectors, even.
    """

    def __init__(self, config: RotaryConfig, dim: int) -> None:
        super().__init__()
        self.halves = config.layout == "halves"
        self.angles = _Angles(config.base, dim)

    def forward(self, x: Tensor, position: int | Tensor | None = None) -> Tensor:
        """Turn queries or keys `[..., T, h]`: (a, b) becomes (a cos - b sin, b cos + a sin).

        Args:
            x: The vectors, in the order of their positions from 0.
            position: The position of all of them instead, also `[]` int64.
        """
        cosine, sine = self._rows(x, position).chunk(2, -1)
        if self.halves:
            a, b = x.chunk(2, -1)
        else:
            a, b = x[..., ::2], x[..., 1::2]
        pair = a * cosine - b * sine, b * cosine + a * sine
        return torch.cat(pair, -1) if self.halves else torch.stack(pair, -1).flatten(-2)

    def _rows(self, x: Tensor, position: int | Tensor | None) -> Tensor:
        """Cosines and sines of the positions, `[T, h]`, or `[1, h]` of one for all."""
        if isinstance(position, Tensor):
            return self.angles.at(position.view(1), x)
        if position is None and torch.compiler.is_compiling():
            # A graph that shall serve every length has no table of some length.
            return self.angles.at(torch.arange(x.size(-2), device=x.device), x)
        first, length = (0, x.size(-2)) if position is None else (position, 1)
        return self.angles(first, length, x)


class _Angles(Sinusoids):
    """A table of cosines and then sines, `[h]` a position."""

    def __init__(self, base: float, dim: int) -> None:
        super().__init__(SinusoidalConfig(), dim)
        self.base = base

    def _vectors(self, positions: Tensor) -> Tensor:
        exponent = torch.arange(0, self.dim, 2, dtype=torch.float64, device=positions.device) / self.dim
        angle = positions.to(torch.float64).unsqueeze(1) * self.base**-exponent
        return torch.cat((angle.cos(), angle.sin()), 1).float()
