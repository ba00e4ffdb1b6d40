"""Mixed attention: one softmax over the encoder's words and the past, in a decoder without cross-attention.

He et al. 2018 (Layer-Wise Coordination between Encoder and Decoder for Neural Machine Translation).
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from torch import Tensor

from deepwire.model.context import Context, Memory
from deepwire.model.kv_cache import KeyValueCache
from deepwire.model.mixers.mixer import Mixer, MixerSection, SourceMixer, State
from deepwire.model.mixers.self_attention import SelfAttention
from deepwire.model.stack_spec import Side, StackSpec, Sublayer
from deepwire.ops.attention import attention, attention_weights, head_product


class MixedAttentionConfig(MixerSection):
    """Mixed attention (He et al. 2018), in place of a decoder's self-attention and cross-attention."""

    type: Literal["mixed_attention"] = "mixed_attention"
    sides: ClassVar[frozenset[Side]] = frozenset({"decoder"})
    replaces: ClassVar[frozenset[Sublayer]] = frozenset({"cross"})
    has_inner_norm: ClassVar[bool] = True

    def check(self, spec: StackSpec) -> None:
        """One width for all that the projections read."""
        if spec.memory_width != spec.dim:
            raise ValueError(
                "decoder.mixer: mixed_attention reads the encoder with the projections that read the "
                f"decoder, so both have one width, not {spec.memory_width} and {spec.dim}"
            )

    def has_norm(self, spec: StackSpec) -> bool:
        """In front of the output projection, where the model wants that."""
        return spec.inner_norm

    def build(self, spec: StackSpec) -> Mixer:
        """One mixed attention of a decoder."""
        return MixedAttention(spec)


class MixedAttention(SelfAttention, SourceMixer):
    """softmax(x_t W_q [m; x_1..t W_k]^T / sqrt(h)) [m W_v; x_1..t W_v], m being the encoder's output.

    Keys and values of both sides come from the same projections, which are those of a `SelfAttention`. The
    state while decoding is its `KeyValueCache`; keys and values of the encoder are the memory.
    """

    def __init__(self, spec: StackSpec) -> None:
        super().__init__(spec)
        self.layer = spec.layer

    def project(self, encoded: Tensor, context: Context) -> Memory:
        """Make the memory of encoder output `[N, S, d]`."""
        _, key, value = self.qkv(encoded)
        return Memory(key.contiguous(), value.contiguous(), context.memory_bias(key.dtype))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Mix `[N * W, T, d]` with the memory of N sentences; W rows of one follow each other."""
        return self._with_memory(*self.qkv(x), None, context)

    def source_weights(self, x: Tensor, memory: Memory) -> Tensor:
        """See the base class; what is left to 1 goes to the past."""
        query, key, _ = self.qkv(x)
        keys, bias = _joint_keys(key, memory, None)
        weights = attention_weights(query, keys, bias=bias, causal=True, finite=True)
        return weights[..., : memory.key.size(2)]

    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        """Mix `[rows, T, d]` with the memory, themselves and the positions before, and fill the cache."""
        index, memory = context.positions, context.memory[self.layer]
        query, key, value = self.qkv(x)
        if index.length:
            state = index.store(KeyValueCache(*state), key, value)
            return self._with_memory(query, key, value, index.prompt_bias, context), state
        width = index.width
        cache = index.store(KeyValueCache(*state), _grouped(key, width), _grouped(value, width))
        keys, values = cache
        # Memory and cache stay where they are: scores are put side by side, and not all keys at every step.
        query, beam = query * query.size(-1) ** -0.5, x.size(0) // memory.key.size(0)
        of_memory = head_product(_grouped(query, beam), memory.key.transpose(2, 3)) + memory.bias
        of_cache = head_product(_grouped(query, width), keys.transpose(2, 3)) + index.bias
        scores = torch.cat((_by_row(of_memory), _by_row(of_cache)), -1)
        weights = scores.softmax(-1).to(values.dtype)
        words = of_memory.size(-1)
        mixed = _by_row(head_product(_grouped(weights[..., :words], beam), memory.value))
        mixed = mixed + _by_row(head_product(_grouped(weights[..., words:], width), values))
        return self.join(mixed.transpose(1, 2).flatten(2), context), cache

    def _with_memory(
        self, query: Tensor, key: Tensor, value: Tensor, padding: Tensor | None, context: Context
    ) -> Tensor:
        memory = context.memory[self.layer]
        if (width := query.size(0) // memory.key.size(0)) > 1:
            memory = memory.changed(lambda leaf: leaf.repeat_interleave(width, 0))
        keys, bias = _joint_keys(key, memory, padding)
        values = torch.cat((memory.value, value), 2)
        drop = self.dropout if self.training else 0.0
        mixed = attention(query, keys, values, bias=bias, causal=True, dropout=drop, finite=True)
        return self.join(mixed.transpose(1, 2).flatten(2), context)


def _joint_keys(key: Tensor, memory: Memory, padding: Tensor | None) -> tuple[Tensor, Tensor]:
    """Keys of the encoder and of T positions behind them, `[N, K, S + T, h]`, and their bias.

    The encoder's words come first: with more keys than queries each query sees all that come before.
    """
    bias = memory.bias.new_zeros(key.size(0), 1, 1, key.size(2)) if padding is None else padding
    return torch.cat((memory.key, key), 2), torch.cat((memory.bias, bias), -1)


def _grouped(x: Tensor, width: int) -> Tensor:
    """Reshape values of rows, `[rows, H, 1, n]`, to `[rows / width, H, width, n]`."""
    return x.reshape(-1, width, x.size(1), x.size(-1)).transpose(1, 2)


def _by_row(x: Tensor) -> Tensor:
    """Undo `_grouped`: `[rows, H, 1, n]`."""
    return x.transpose(1, 2).reshape(-1, x.size(1), 1, x.size(-1))
