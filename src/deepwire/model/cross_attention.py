"""Attention from the decoder to what the encoder remembers."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor, nn

from deepwire.model.introspection import GateProbe, Place
from deepwire.model.layers import Linear
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.attention import attention, attention_weights, finite_bias


class Memory(NamedTuple):
    """Keys and values of one decoder layer, made once per sentence; never copied per beam.

    Shapes: key and value `[N, K, S, h]` with K heads, bias `[N, 1, 1, S]` (0 at words, the lowest number at
    padding).
    """

    key: Tensor
    value: Tensor
    bias: Tensor

    def read(self, query: Tensor, dropout: float = 0.0) -> Tensor:
        """Attend from queries `[N, H, T, h]`; the result is `[N, H, T, h]`, with dropout on the weights."""
        return attention(
            query, self.key, self.value, bias=self.bias, causal=False, dropout=dropout, finite=True
        )

    def weights(self, query: Tensor) -> Tensor:
        """The weight that each head gives to each source position, `[N, H, T, S]`."""
        return attention_weights(query, self.key, bias=self.bias, causal=False, finite=True)


class CrossAttention(nn.Module):
    """Multi-head attention with queries from the decoder and keys and values from the encoder, of any width.

    Vaswani et al. 2017, section 3.2.2; without residual and norm. Keys and values come from one product; if
    `tied` they are one. Fewer heads of keys, and norms of queries and keys, are as in `SelfAttention`.
    """

    def __init__(self, spec: StackSpec, *, tied: bool = False) -> None:
        super().__init__()
        self.heads, self.key_heads = spec.heads, spec.key_heads
        self.dropout, self.query_scale = spec.dropout.attention, spec.scaling.query
        dim, bias, self.parts = spec.dim, spec.attention_bias, 1 if tied else 2
        self.query = Linear(dim, dim, bias=bias, role="cross_attention")
        self.key_value = Linear(
            spec.memory_width,
            self.parts * self.key_heads * (dim // self.heads),
            bias=bias,
            role="cross_attention",
            parts=self.parts,
        )
        self.output = Linear(dim, dim, bias=bias, role="attention_output")
        self.query_norm = spec.head_norm() if spec.qk_norm else None
        self.key_norm = spec.head_norm() if spec.qk_norm else None

    def project(self, encoded: Tensor, bias: Tensor, languages: Tensor | None = None) -> Memory:
        """Make the memory of encoder output `[N, S, d]`; bias `[N, 1, 1, S]`, -inf at padding.

        `languages` `[N]` or `[1]` are the target languages of the sentences, for norms of `spec.norm`.
        """
        both = self.key_value(encoded).unflatten(-1, (self.parts, self.key_heads, -1))
        parts = both.permute(2, 0, 3, 1, 4).contiguous().unbind()
        key = parts[0] if self.key_norm is None else self.key_norm(parts[0])
        return Memory(key, parts[-1], finite_bias(bias, parts[0].dtype))

    def project_beside(
        self, encoded: Tensor, padding: Tensor, carried: tuple[Tensor, ...], languages: Tensor | None = None
    ) -> tuple[Memory, Tensor]:
        """`project` beside a companion (`deepwire.model.mixers.companion`): also what it is moved by.

        Only the cross-attentions of mixers with a companion have it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no companion")

    def packed_weights(self, encoded: Tensor, padding: Tensor, carried: tuple[Tensor, ...]) -> Tensor:
        """How much of each source position is in each key of `project_beside`, `[N, 1, l, S]`."""
        raise NotImplementedError(f"{type(self).__name__} has no companion")

    def forward(self, x: Tensor, memory: Memory) -> Tensor:
        """Attend from `[N * W, T, d]` to the memory of N sentences; W rows of a sentence follow each other.

        The W rows (beams) become further query positions of their sentence, so the memory serves them all.
        """
        rows, length, dim = x.shape
        seen = memory.read(self._queries(x, memory.key.size(0)), self.dropout if self.training else 0.0)
        joined: Tensor = self.output(seen.transpose(1, 2).reshape(rows, length, dim))
        return joined

    def source_weights(self, x: Tensor, memory: Memory) -> Tensor:
        """The weight that each head gives to each source position, `[N, H, T, S]`, for x `[N, T, d]`."""
        return memory.weights(self._queries(x, memory.key.size(0)))

    def _queries(self, x: Tensor, sentences: int) -> Tensor:
        """Queries of rows `[N * W, T, d]`: `[N, H, W * T, h]`."""
        query: Tensor = self.query(x).view(sentences, -1, self.heads, x.size(-1) // self.heads)
        query = (query if self.query_norm is None else self.query_norm(query)).transpose(1, 2)
        return query * self.query_scale if self.query_scale != 1 else query

    def gate_probes(self, place: Place) -> tuple[GateProbe, ...]:
        """Where gates of this layer's attention can be seen, for analyses; nowhere as a rule."""
        return ()
