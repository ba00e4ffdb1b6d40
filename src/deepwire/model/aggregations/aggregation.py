"""The contract of an aggregation: what each layer reads of the layers below."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from deepwire.model.context import Context
from deepwire.model.introspection import DepthWeights, Mixing
from deepwire.model.stack_spec import Side, SocketSection, StackSpec
from deepwire.plugins import Kind

History = tuple[Tensor, ...]


class Aggregation(nn.Module, ABC):
    """Acts where a layer is complete: keeps its output and says what the next layer reads.

    Attributes:
        acts: Whether `close` gives anything but what it gets; otherwise it is not called.
    """

    acts: bool = True

    @abstractmethod
    def start(self, x: Tensor, context: Context) -> tuple[History, Tensor]:
        """The history of the embedding `[B, T, d]`, and what layer 1 reads."""

    @abstractmethod
    def close(self, history: History, output: Tensor, layer: int, context: Context) -> tuple[History, Tensor]:
        """The history with the output of layer `layer` (from 0), and what the next layer reads."""

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """The weights of layers in what is read, for analyses; none as a rule."""
        return ()

    def mixing(self, output: Tensor, layer: int) -> Mixing | None:
        """The weights of y_0 to y_{l+1} in what layer l + 1 reads, where l = `layer` (from 0) gave `output`.

        The last row is that of the stream. None, as a rule: they are the same for every text.
        """
        return None


class AggregationSection(SocketSection):
    """Base of an aggregation's settings."""

    kind: ClassVar[Kind] = "aggregation"
    # Whether it has parameters that read vectors of the stream's width and are no linear modules: CompleteP
    # has no learning rates for them.
    has_own_maps: ClassVar[bool] = False

    @property
    def gives_ways(self) -> bool:
        """Whether queries, keys and values are made of vectors of their own (`MUDDStack`)."""
        return False

    def check_ways(self, side: Side, **takes: bool) -> None:
        """Refuse, with a `ValueError`, what does not take ways that are given; `takes` goes by socket."""
        takers = {"mixer": "self_attention", "connection": "pre_norm, post_norm and laurel"}
        for socket, taken in takes.items():
            if self.gives_ways and not taken:
                raise ValueError(
                    f"{side}.aggregation: {self.type} has queries, keys and values made of other vectors, "
                    f"and {side}.{socket} does not take them as it is set; {takers[socket]} can"
                )

    @abstractmethod
    def build(self, spec: StackSpec) -> Aggregation:
        """The aggregation of a whole stack."""
