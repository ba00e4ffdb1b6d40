"""The contract of a connection: how the sub-layers of a layer join the stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn

from deepwire.config.base import Section, WithoutEffect
from deepwire.model.context import NormStyle, Side, StackContext
from deepwire.model.cross_attention import CrossAttention
from deepwire.model.depth_weights import DepthWeights
from deepwire.model.gate_probe import GateProbe

Sublayer = Literal["mixer", "inner_feed_forward", "cross", "feed_forward"]
# The first tensor is the stream [B, T, d]; the others are the connection's own. It lives within one pass.
DepthState = tuple[Tensor, ...]


@dataclass(frozen=True)
class Call:
    """One evaluation of a sub-layer.

    Attributes:
        kind: Which sub-layer of the layer.
        layer: Whose weights are evaluated, from 0.
        closes: Whether the layer is complete after it.
    """

    kind: Sublayer
    layer: int
    closes: bool


def plain_calls(layers: int, kinds: tuple[Sublayer, ...]) -> tuple[Call, ...]:
    """Every sub-layer of every layer once, in order."""
    return tuple(Call(kind, layer, kind == kinds[-1]) for layer in range(layers) for kind in kinds)


class Connection(nn.Module, ABC):
    """Where signals flow between the sub-layers of a layer; owns norms and gates, never attention.

    The stack's loop asks for the input of each call (`read`), evaluates the sub-layer, and hands the output
    back (`write`). Dropout of a sub-layer's output belongs in `write`; dropout inside a sub-layer is its own.
    """

    norm_style: ClassVar[NormStyle]
    calls: tuple[Call, ...]

    def mixer_width(self, layer: int, dim: int) -> int:
        """Width of what the mixer of a layer reads; the stream's width `dim` as a rule."""
        return dim

    def result_width(self, dim: int) -> int:
        """Width of what leaves the stack; the stream's width `dim` as a rule."""
        return dim

    def memory_width(self, dim: int) -> int:
        """Width of the encoder's results that a decoder with this connection reads; `dim` as a rule."""
        return dim

    @abstractmethod
    def start(self, x: Tensor, padding: Tensor | None = None) -> DepthState:
        """The state of depth 0 from the embedding `[B, T, d]`; `padding` as a mixer gets it."""

    @abstractmethod
    def read(self, state: DepthState, index: int) -> Tensor:
        """The input of call number `index`, `[B, T, d]`."""

    @abstractmethod
    def write(self, state: DepthState, index: int, read: Tensor, output: Tensor) -> DepthState:
        """The state after call number `index` read `read` and gave `output`."""

    def result(self, state: DepthState) -> Tensor:
        """What fusions see of the state between two layers, `[B, T, result_width]`: the stream as a rule."""
        return state[0]

    def normalise(self, x: Tensor) -> Tensor:
        """The final norm of a `result`, where the connection has one."""
        return x

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """The weights of sub-layers or stages in the stream, for analyses; none as a rule."""
        return ()

    def gate_probes(self) -> tuple[GateProbe, ...]:
        """Where gates can be seen, for analyses; nowhere as a rule."""
        return ()

    def modules_of(self, layer: int) -> tuple[nn.Module, ...]:
        """The connection's modules that belong to one layer (from 0) alone, not to several or the stack."""
        return ()

    def calls_of(self, layer: int) -> tuple[int, ...]:
        """Numbers of the calls of one layer, from 0."""
        return tuple(index for index, call in enumerate(self.calls) if call.layer == layer)


class ConnectionSection(Section, ABC):
    """Base of a connection's settings."""

    type: str
    sides: ClassVar[frozenset[Side]] = frozenset({"encoder", "decoder"})
    has_feed_forward: ClassVar[bool] = True

    @abstractmethod
    def build(self, context: StackContext, kinds: tuple[Sublayer, ...]) -> Connection:
        """The connection of a whole stack whose layers have sub-layers of these kinds."""

    def without_effect_around(self, kinds: tuple[Sublayer, ...], other: ConnectionSection) -> WithoutEffect:
        """Settings that change nothing around such sub-layers; `other` is that of the other stack."""
        return iter(())

    def cross_attention(self, context: StackContext) -> CrossAttention:
        """The cross-attention of one decoder layer."""
        return CrossAttention(context)
