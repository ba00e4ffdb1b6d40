"""The three attentions of Luna, bare: within the source, from target to source, and within the target's past.

Ma et al. 2021 (Luna: Linear Unified Nested Attention), as in the authors' code.
"""

from __future__ import annotations

import math
from dataclasses import replace

import torch
from torch import Tensor, nn
from torch.nn.functional import softplus

from deepwire.model.cross_attention import CrossAttention, Memory
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.layers import Linear, split_heads
from deepwire.model.mixers.companion import Carried
from deepwire.model.mixers.mixer import State, TokenMixer
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.attention import attention, attention_weights
from deepwire.ops.causal_product import causal_product
from deepwire.ops.dropout import dropout


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


class LunaSelfAttention(TokenMixer):
    """Positions attend to Y, what P packed of them; of an encoder."""

    def __init__(self, spec: StackSpec, *, pack_heads: int | None, tied: bool) -> None:
        super().__init__()
        self.packing = PackAttention(spec, spec.dim, heads=pack_heads, tied=tied)
        self.unpack = CrossAttention(replace(spec, memory_width=spec.dim), tied=tied)

    def accompany(
        self, x: Tensor, carried: Carried, padding: Tensor | None, languages: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """Mix `[B, S, d]` with P and its bias; what P is moved by is Y."""
        p, bias = carried
        packed = self.packing(p, x, padding)
        output: Tensor = self.unpack(x, self.unpack.project(packed, bias))
        return output, packed

    def parallel(
        self,
        x: Tensor,
        padding: Tensor | None,
        memory: Memory | None = None,
        languages: Tensor | None = None,
    ) -> Tensor:
        """Not without P."""
        raise ValueError("Luna attention needs the sequence that travels beside the stream")

    def init_state(self, rows: int, like: Tensor) -> State:
        """An encoder never steps."""
        raise NotImplementedError("Luna attention of an encoder reads the future")

    def step(
        self,
        x: Tensor,
        state: State,
        cache_index: CacheIndex,
        memory: Memory | None = None,
        languages: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """An encoder never steps."""
        raise NotImplementedError("Luna attention of an encoder reads the future")


class LunaCrossAttention(CrossAttention):
    """Target positions attend to Y, what P packed of the encoder's output; keys and values are those of Y."""

    def __init__(self, spec: StackSpec, *, pack_heads: int | None, tied: bool) -> None:
        super().__init__(replace(spec, memory_width=spec.dim), tied=tied)
        self.packing = PackAttention(spec, spec.memory_width, heads=pack_heads, tied=tied)

    def project_beside(
        self, encoded: Tensor, padding: Tensor, carried: Carried, languages: Tensor | None = None
    ) -> tuple[Memory, Tensor]:
        """The memory of encoder output `[N, S, w]`, and Y `[N, l, d]`, by which P is moved."""
        p, bias = carried
        packed = self.packing(p, encoded, padding)
        return super().project(packed, bias, languages), packed

    def packed_weights(self, encoded: Tensor, padding: Tensor, carried: Carried) -> Tensor:
        """The weight of each source position in each row of Y, `[N, 1, l, S]`; arguments as above.

        It is the mean over the heads that pack, as each head that reads Y reads what all of them made.
        """
        return self.packing.weights(carried[0], encoded, padding).mean(1, keepdim=True)

    def project(self, encoded: Tensor, bias: Tensor, languages: Tensor | None = None) -> Memory:
        """Not without P."""
        raise ValueError("Luna attention needs the sequence that travels beside the stream")


class LunaCausalAttention(TokenMixer):
    """W_o heads of 1/t a_t sum_{s<=t} w_s v_s^T, a_t = softmax(1/t q_t sum_{s<=t} k_s w_s^T / sqrt(h)).

    w_s = softplus_2(x_s W_pc (P W_pq)^T / sqrt(h)), with softplus_2(z) = log(1 + 2^z) / log 2, says how much
    of position s goes to each row of P. The memory holds P W_pq as its keys, and the bias of P; it has no
    values. The state while decoding has the same size at every position: the sums of k w^T `[rows, H, h, l]`
    and of w v^T `[rows, H, l, h]`.
    """

    def __init__(self, spec: StackSpec, *, length: int, tied: bool) -> None:
        super().__init__()
        self.heads, self.dropout, self.length = spec.heads, spec.dropout.attention, length
        dim, bias, self.parts = spec.dim, spec.attention_bias, 1 if tied else 2
        self.pack_query = Linear(dim, dim, bias=bias, role="self_attention")
        self.pack_key = Linear(dim, dim, bias=bias, role="self_attention")
        self.query = Linear(dim, dim, bias=bias, role="self_attention")
        self.key_value = Linear(dim, self.parts * dim, bias=bias, role="self_attention", parts=self.parts)
        self.output = Linear(dim, dim, bias=bias, role="attention_output")

    def remember(self, carried: Carried) -> Memory:
        """P W_pq `[N, H, l, h]` with the bias of P."""
        p, bias = carried
        keys = split_heads(self.pack_query(p), self.heads).contiguous()
        return Memory(keys, keys.new_empty(keys.size(0), 0), bias.to(keys.dtype))

    def parallel(
        self,
        x: Tensor,
        padding: Tensor | None,
        memory: Memory | None = None,
        languages: Tensor | None = None,
    ) -> Tensor:
        """Mix `[N * W, T, d]`, with the memory of N sentences; W rows of one follow each other."""
        shares, query, key, value, bias = self._project(x, memory)
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

    def step(
        self,
        x: Tensor,
        state: State,
        cache_index: CacheIndex,
        memory: Memory | None = None,
        languages: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """Mix `[rows, 1, d]` with the positions up to it."""
        shares, query, key, value, bias = self._project(x, memory)
        key_sum = state[0] + key.transpose(-2, -1) * shares
        value_sum = state[1] + shares.transpose(-2, -1) * value
        count = cache_index.count
        if isinstance(count, Tensor) and count.dim():
            count = count.unsqueeze(-1)  # for heads
        weights = self._weights((query.to(key_sum.dtype) @ key_sum / count).to(x.dtype), bias)
        mixed = weights.to(value_sum.dtype) @ value_sum / count
        return self._join(mixed.to(x.dtype)), (key_sum, value_sum)

    def _project(self, x: Tensor, memory: Memory | None) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Shares `[R, H, T, l]`, scaled queries, keys and values `[R, H, T, h]`, bias of P `[R, 1, 1, l]`."""
        if memory is None:
            raise ValueError("causal Luna attention needs the sequence that travels beside the stream")
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
        joined: Tensor = self.output(mixed.transpose(1, 2).flatten(2))
        return joined
