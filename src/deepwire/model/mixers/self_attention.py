"""Multi-head self-attention, with or without relative or rotary positions."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.config.counts import MAX_SIZE
from deepwire.config.section import UnusedSettings
from deepwire.model.cross_attention import Memory
from deepwire.model.kv_cache import CacheIndex, KeyValueCache
from deepwire.model.layers import Linear
from deepwire.model.mixers.mixer import Below, MixerSection, State, TokenMixer
from deepwire.model.rotary import Rotary
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

    def unused_settings_in(self, spec: StackSpec) -> UnusedSettings:
        """The form of a table that is not there or has no other form."""
        if self.relative is None:
            yield "relative_table", "there is no table without relative"
            yield "relative_values", "there are no relative positions without relative"
        elif spec.side == "encoder":
            yield "relative_table", "an encoder's table always has 2k + 1 rows"

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

    def below(self, spec: StackSpec) -> BelowMix | None:
        """How keys and values are mixed with those of the layers below; they are not, as a rule."""
        return None

    def build(self, spec: StackSpec) -> TokenMixer:
        """One self-attention of the stack."""
        below = self.below(spec)
        if self.relative is None:
            return SelfAttention(spec, below=below)
        dim, past = spec.dim // spec.heads, self.relative
        future = 1 if spec.causal and self.relative_table == "compact" else past
        values = RelativeValues(dim, past=past, future=future) if self.relative_values else None
        return SelfAttention(spec, RelativeKeys(dim, past=past, future=future), values, below)


class SelfAttentionConfig(SelfAttentionSection):
    """Multi-head self-attention."""

    takes_ways: ClassVar[bool] = True

    type: Literal["self_attention"] = "self_attention"


class BelowMix(nn.Module, ABC):
    """Mixes the keys and values of a layer with those of the layers below, before attention and cache.

    Attributes:
        own_values: Whether the layer makes values of its own.
    """

    own_values: bool = True

    @abstractmethod
    def forward(self, key: Tensor, value: Tensor | None, below: Below) -> tuple[Tensor, Tensor, Below]:
        """The keys and values to use, `[B, H, T, h]`, and what the layer above gets.

        Args:
            key, value: The layer's own, `[B, H, T, h]`; no values without `own_values`.
            below: What the layer below left.
        """

    def weights(self) -> Tensor | None:
        """See `TokenMixer.depth_weights`."""
        return None


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
        bias: Tensor = by_distance.gather(-1, self.rows(distance).expand(*query.shape[:-1], -1))
        return bias


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


class SelfAttention(TokenMixer):
    """softmax(Q K^T / sqrt(h)) V over the own sequence (Vaswani et al. 2017, section 3.2).

    Queries, keys and values come from one product, or from one each where they are made of different vectors
    (`spec.ways`). A decoder sees itself and the past only. An inner norm normalises the concatenated heads
    (Sub-LN; Wang et al. 2022, Magneto). With fewer heads of keys and values each serves several heads of
    queries (Ainslie et al. 2023, GQA). Queries and keys of each head may be normalised (Henry et al. 2020;
    Dehghani et al. 2023, section 2.1, with gains of all heads alike), and then turned by their positions.
    The state while decoding is a `KeyValueCache`.
    """

    def __init__(
        self,
        spec: StackSpec,
        relative: RelativeKeys | None = None,
        relative_values: RelativeValues | None = None,
        below: BelowMix | None = None,
    ) -> None:
        super().__init__()
        self.heads, self.key_heads = spec.heads, spec.key_heads
        self.causal, self.dropout = spec.causal, spec.dropout.attention
        self.query_scale = spec.scaling.query
        dim, bias, width = spec.dim, spec.attention_bias, spec.dim // spec.heads * self.key_heads

        def linear(outputs: int, parts: int = 1, *, makes_values: bool) -> Linear:
            return Linear(
                dim, outputs, bias=bias, role="self_attention", parts=parts, makes_values=makes_values
            )

        # Maps side by side are one product; they have one size, so fewer heads of keys lie apart.
        own_values = below is None or below.own_values
        self.parts = 3 if own_values else 2
        self.apart = nn.ModuleList()
        if spec.ways:
            attending = (linear(outputs, makes_values=False) for outputs in (dim, width))
            self.apart.extend((*attending, linear(width, makes_values=True)))
        elif self.key_heads < self.heads:
            self.query = linear(dim, makes_values=False)
            self.key_value = linear((self.parts - 1) * width, self.parts - 1, makes_values=own_values)
        else:
            self.query_key_value = linear(self.parts * dim, self.parts, makes_values=own_values)
        self.output = Linear(dim, dim, bias=bias, role="attention_output")
        self.query_norm = spec.head_norm() if spec.qk_norm else None
        self.key_norm = spec.head_norm() if spec.qk_norm else None
        self.rotary = None if spec.rotary is None else Rotary(spec.rotary, dim // self.heads)
        self.relative, self.relative_values = relative, relative_values
        self.inner_norm = spec.norm() if spec.inner_norm else None
        self.below = below
        self.reads_below = below is not None

    def parallel(
        self,
        x: Tensor,
        padding: Tensor | None,
        memory: Memory | None = None,
        languages: Tensor | None = None,
    ) -> Tensor:
        """Attend within `[B, T, d]`; see the base class."""
        return self.parallel_above(x, padding, (), memory, languages)[0]

    def parallel_above(
        self,
        x: Tensor,
        padding: Tensor | None,
        below: Below,
        memory: Memory | None = None,
        languages: Tensor | None = None,
        of_keys: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Below]:
        """Attend within `[B, T, d]`; see the base class."""
        query, key, value, below = self._project_above(x, below, of_keys)
        mixed = self._within(query, key, value, padding)
        return self._join(mixed.transpose(1, 2).flatten(2), languages), below

    def _within(self, query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None) -> Tensor:
        """Attend within whole sequences, `[B, H, T, h]`."""
        bias, distance = padding, None
        if self.relative is not None:
            positions = torch.arange(query.size(2), device=query.device)
            distance = positions - positions.unsqueeze(1)
            bias = self.relative(query, distance)
            bias = bias if padding is None else bias + padding
        drop = self.dropout if self.training else 0.0
        if self.relative_values is None or distance is None:
            return attention(query, key, value, bias=bias, causal=self.causal, dropout=drop)
        weights = attention_weights(query, key, bias=bias, causal=self.causal, dropout=drop)
        seen = head_product(weights.to(value.dtype), value)
        mixed: Tensor = seen + self.relative_values(weights, distance)
        return mixed

    def init_state(self, rows: int, like: Tensor) -> State:
        """No positions yet."""
        empty = like.new_empty(rows, self.key_heads, 0, like.size(-1) // self.heads)
        return KeyValueCache(empty, empty)

    def step(
        self,
        x: Tensor,
        state: State,
        cache_index: CacheIndex,
        memory: Memory | None = None,
        languages: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """Attend from `[rows, 1, d]` to itself and the positions before."""
        mixed, state, _ = self.step_above(x, state, cache_index, (), memory, languages)
        return mixed, state

    def step_above(
        self,
        x: Tensor,
        state: State,
        cache_index: CacheIndex,
        below: Below,
        memory: Memory | None = None,
        languages: Tensor | None = None,
        of_keys: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, State, Below]:
        """Attend from `[rows, 1, d]`; the cache has keys and values as they are used."""
        # The rows of a group become queries to one cache: `[groups, H, width, h]`, and keys and values alike.
        grouped = (-1, cache_index.width, x.size(-1))
        if of_keys is not None:
            of_keys = of_keys[0].view(grouped), of_keys[1].view(grouped)
        position = cache_index.current_position
        query, key, value, below = self._project_above(x.view(grouped), below, of_keys, position)
        keys, values = state = cache_index.store(KeyValueCache(*state), key, value)
        bias = cache_index.bias
        if self.relative is not None:
            bias = self.relative(query, cache_index.distance) + bias
        if self.relative_values is None:
            mixed = attention(query, keys, values, bias=bias, causal=False, finite=True)
        else:
            weights = attention_weights(query, keys, bias=bias, causal=False, finite=True)
            mixed = head_product(weights, values) + self.relative_values(weights, cache_index.distance)
        return self._join(mixed.transpose(1, 2).reshape(x.shape), languages), state, below

    def prefill(
        self,
        x: Tensor,
        state: State,
        cache_index: CacheIndex,
        memory: Memory | None = None,
        languages: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """Attend within `[rows, T, d]`, and fill the cache."""
        mixed, state, _ = self.prefill_above(x, state, cache_index, (), memory, languages)
        return mixed, state

    def prefill_above(
        self,
        x: Tensor,
        state: State,
        cache_index: CacheIndex,
        below: Below,
        memory: Memory | None = None,
        languages: Tensor | None = None,
        of_keys: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, State, Below]:
        """Attend within `[rows, T, d]`, and fill the cache."""
        query, key, value, below = self._project_above(x, below, of_keys)
        state = cache_index.store(KeyValueCache(*state), key, value)
        mixed = self._within(query, key, value, cache_index.prompt_bias)
        return self._join(mixed.transpose(1, 2).flatten(2), languages), state, below

    def depth_weights(self) -> Tensor | None:
        """How keys and values are mixed."""
        return None if self.below is None else self.below.weights()

    def _project(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """Queries, keys and values of `[B, T, d]`, each `[B, heads, T, h]`, in the lowest layer."""
        return self._project_above(x, ())[:3]

    def _project_above(
        self,
        x: Tensor,
        below: Below,
        of_keys: tuple[Tensor, Tensor] | None = None,
        position: int | Tensor | None = None,
    ) -> tuple[Tensor, Tensor, Tensor, Below]:
        """Likewise in any layer; also what the layer above gets.

        The vectors are at positions 0 to T - 1, or all at `position`.
        """
        query, key, *value_part = self._maps(x, of_keys)
        if self.query_norm is not None and self.key_norm is not None:
            query, key = self.query_norm(query), self.key_norm(key)
        if self.query_scale != 1:
            query = query * self.query_scale
        query, key, *value_part = (part.transpose(1, 2) for part in (query, key, *value_part))
        value, above = value_part[0] if value_part else None, below
        if self.below is not None:
            key, value, above = self.below(key, value, below)
        assert value is not None
        if self.rotary is not None:
            query, key = self.rotary(query, position), self.rotary(key, position)
        return query, key, value, above

    def _maps(self, x: Tensor, of_keys: tuple[Tensor, Tensor] | None) -> Sequence[Tensor]:
        """Queries, keys and values, each `[B, T, heads, h]`; no values where there are none of their own."""
        if of_keys is not None:
            made = [each(vector) for each, vector in zip(self.apart, (x, *of_keys), strict=True)]
            width = made[0].size(-1) // self.heads
            return [part.unflatten(-1, (-1, width)) for part in made]
        if self.key_heads == self.heads:
            fused = self.query_key_value(x).unflatten(-1, (self.parts, self.heads, -1))
            return cast("Sequence[Tensor]", fused.unbind(2))
        both = self.key_value(x).unflatten(-1, (self.parts - 1, self.key_heads, -1))
        return self.query(x).unflatten(-1, (self.heads, -1)), *both.unbind(2)

    def _join(self, heads: Tensor, languages: Tensor | None) -> Tensor:
        """Project the concatenated heads `[B, T, d]`."""
        if self.inner_norm is not None:
            heads = self.inner_norm(heads, languages)
        joined: Tensor = self.output(heads)
        return joined
