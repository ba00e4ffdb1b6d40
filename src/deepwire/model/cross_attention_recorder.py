"""A recorder of attention to the source: weights of decoder layers, kept while whole sequences pass them."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Protocol

from torch import Tensor

from deepwire.errors import ModelError
from deepwire.model.context import Memory

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
