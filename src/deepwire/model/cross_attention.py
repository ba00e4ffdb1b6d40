"""Attention from the decoder to what the encoder remembers."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from torch import Tensor, nn

from deepwire.errors import ModelError
from deepwire.model.context import Context, Memory
from deepwire.model.introspection import GateProbe, Place
from deepwire.model.layers import Linear
from deepwire.model.stack_spec import StackSpec


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

    def project(self, encoded: Tensor, context: Context) -> Memory:
        """Make the memory of encoder output `[N, S, d]`, in the context of the encoder."""
        both = self.key_value(encoded).unflatten(-1, (self.parts, self.key_heads, -1))
        both = both.permute(2, 0, 3, 1, 4)
        # Spans are of rows that follow each other, as they come.
        parts = (both if context.spans is not None else both.contiguous()).unbind()
        key = parts[0] if self.key_norm is None else self.key_norm(parts[0])
        return Memory(key, parts[-1], context.memory_bias(parts[0].dtype), context.spans)

    def forward(self, x: Tensor, memory: Memory) -> Tensor:
        """Attend from `[N * W, T, d]` to the memory of N sentences; W rows of a sentence follow each other.

        The W rows (beams) become further query positions of their sentence, so the memory serves them all.
        """
        rows, length, dim = x.shape
        seen = memory.read(self._queries(x, memory.key.size(0)), self.dropout if self.training else 0.0)
        return self.output(seen.transpose(1, 2).reshape(rows, length, dim))

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


Layers = Collection[int] | None
"""Layers, from 0; None: all that attend to the source."""


class SourceReader(Protocol):
    """A cross-attention, or a mixer that takes its place."""

    def source_weights(self, x: Tensor, memory: Memory) -> Tensor | None:
        """The weight that each head gives to each source position, `[N, H, T, S]`, for x `[N, T, d]`.

        None where it reads the source in another way.
        """
        ...


class CrossAttentionRecorder:
    """Keeps the weights of some layers, counted from 0, or of all for None; those of others cost nothing.

    Attributes:
        weights: Of each layer that was passed `[N, H, T, S]`, without dropout; of one that a connection
            evaluates several times, the last.
    """

    def __init__(self, layers: Layers) -> None:
        self.layers = None if layers is None else frozenset(layers)
        self.weights: dict[int, Tensor] = {}
        self._packed: dict[int, Tensor] = {}

    def record_packing(self, layer: int, packed_weights: Callable[[], Tensor]) -> None:
        """Record what a cross-attention of Luna packs of the source before it attends to that."""
        if self.layers is None or layer in self.layers:
            self._packed[layer] = packed_weights()

    def record(self, layer: int, reader: SourceReader, x: Tensor, memory: Memory) -> None:
        """Record one evaluation of a layer."""
        if self.layers is None or layer in self.layers:
            weights, packed = reader.source_weights(x, memory), self._packed.get(layer)
            if weights is not None:
                self.weights[layer] = weights if packed is None else weights @ packed

    def found(self) -> dict[int, Tensor]:
        """The weights.

        Raises:
            ModelError: No layer has any.
        """
        if not self.weights:
            raise ModelError("no layer of the decoder gives weights to the source")
        return self.weights
