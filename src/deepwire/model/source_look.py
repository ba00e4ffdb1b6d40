"""How decoder layers look at the source: attention weights, kept while whole sequences pass through a stack."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Protocol

from torch import Tensor

from deepwire.model.cross_attention import CrossAttention, Memory
from deepwire.model.mixers.companion import Carried


class SourceReader(Protocol):
    """A cross-attention, or a mixer that takes its place."""

    def source_weights(self, x: Tensor, memory: Memory) -> Tensor:
        """The weight that each head gives to each source position, `[N, H, T, S]`, for x `[N, T, d]`."""
        ...


class SourceLook:
    """Keeps the weights of some layers, counted from 0; those of others cost nothing.

    Attributes:
        weights: Of each layer that was passed `[N, H, T, S]`, without dropout; of one that a connection
            evaluates several times, the last.
    """

    def __init__(self, layers: Iterable[int]) -> None:
        self.layers = frozenset(layers)
        self.weights: dict[int, Tensor] = {}
        self._packed: dict[int, Tensor] = {}

    def pack(self, layer: int, cross: CrossAttention, encoded: Tensor, bias: Tensor, read: Carried) -> None:
        """See what a cross-attention with a companion packs of the source before it looks at that."""
        if layer in self.layers:
            self._packed[layer] = cross.packed_weights(encoded, bias, read)

    def see(self, layer: int, reader: SourceReader, x: Tensor, memory: Memory) -> None:
        """See one evaluation of a layer."""
        if layer in self.layers:
            weights = reader.source_weights(x, memory)
            packed = self._packed.get(layer)
            self.weights[layer] = weights if packed is None else weights @ packed
