"""The contract of an aggregation: what each layer reads of the layers below."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar

import torch
from torch import Tensor, nn

from deepwire.model.context import SocketSection, StackContext
from deepwire.model.introspection import DepthWeights
from deepwire.plugins import Kind

History = tuple[Tensor, ...]


def weighted_sum(weights: Sequence[Tensor], vectors: Sequence[Tensor]) -> Tensor:
    """sum_j weights[j] * vectors[j] of vectors `[B, T, d]`; a weight is a number, `[d]` or `[B, T, 1]`.

    Adding entry by entry makes no copy of a history, as stacking it would at every layer.
    """
    total = weights[0] * vectors[0]
    for weight, vector in zip(weights[1:], vectors[1:], strict=True):
        total = torch.addcmul(total, weight, vector)
    return total


class Aggregation(nn.Module, ABC):
    """Acts where a layer is complete: keeps its output and says what the next layer reads.

    Both methods get the target languages of the rows, `[B]` or `[1]`, to hand on to norms (`context.norm`).

    Attributes:
        acts: Whether `close` gives anything but what it gets; otherwise it is not called.
    """

    acts: bool = True

    @abstractmethod
    def start(self, x: Tensor, languages: Tensor | None = None) -> tuple[History, Tensor]:
        """The history of the embedding `[B, T, d]`, and what layer 1 reads."""

    @abstractmethod
    def close(
        self, history: History, output: Tensor, layer: int, languages: Tensor | None = None
    ) -> tuple[History, Tensor]:
        """The history with the output of layer `layer` (from 0), and what the next layer reads."""

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """The weights of layers in what is read, for analyses; none as a rule."""
        return ()


class AggregationSection(SocketSection):
    """Base of an aggregation's settings."""

    kind: ClassVar[Kind] = "aggregation"

    @abstractmethod
    def build(self, context: StackContext) -> Aggregation:
        """The aggregation of a whole stack."""
