"""The contract of a connection: how the sub-layers of a layer join the stream."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import ClassVar, Literal

from torch import Tensor, nn

from deepwire.model.context import Context
from deepwire.model.cross_attention import CrossAttention
from deepwire.model.introspection import DepthWeights, GateProbe, Mixing
from deepwire.model.stack_spec import NormStyle, SocketSection, StackSpec, Sublayer
from deepwire.plugins import Kind

# The first tensor is the stream [B, T, d] as a rule, otherwise `stream` says what is; the others are the
# connection's own. It lives within one pass.
DepthState = tuple[Tensor, ...]

Droppable = Literal["nothing", "layers", "sublayers"]
"""The parts that LayerDrop may leave out: the rest must be a stack of the same connection."""


@dataclass(frozen=True)
class Call:
    """One evaluation of a sub-layer.

    Attributes:
        kind: Which sub-layer of the layer.
        layer: Whose weights are evaluated, from 0.
        closes: Whether the layer is complete after it.
        width: Of what it reads; None: that of the stream. Only mixers read other vectors.
        gives: Width of what it gives; likewise.
    """

    kind: Sublayer
    layer: int
    closes: bool
    width: int | None = None
    gives: int | None = None


def plain_calls(layers: int, kinds: tuple[Sublayer, ...]) -> tuple[Call, ...]:
    """Every sub-layer of every layer once, in order."""
    return tuple(Call(kind, layer, kind == kinds[-1]) for layer in range(layers) for kind in kinds)


class Connection(nn.Module, ABC):
    """Where signals flow between the sub-layers of a layer; owns norms and gates, never attention.

    The stack's loop asks for the input of each call (`read`), evaluates the sub-layer, and hands the output
    back (`write`). Dropout of a sub-layer's output belongs in `write`; dropout inside a sub-layer is its own.
    Norms (`spec.norm`) are called with the context of the pass.

    Args:
        calls: The order of evaluation, `ConnectionSection.calls`.

    Attributes:
        final_norm: The norm of what leaves the stack; None: none.
        needs_profile: Whether it begins with what a pass over the first batch shows.
        profiling: True during that pass, before update 1 and without gradients: `write` sets parameters then.
    """

    needs_profile: bool = False
    profiling: bool = False

    def __init__(self, calls: tuple[Call, ...]) -> None:
        super().__init__()
        self.calls = calls
        self.final_norm: nn.Module | None = None

    def start(self, x: Tensor, context: Context) -> DepthState:
        """The state of depth 0 from the embedding `[B, T, d]`, which is the stream as a rule."""
        return (x,)

    @abstractmethod
    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """The input of call number `index`, `[B, T, d]`."""

    @abstractmethod
    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """The state after call number `index` read `read` and gave `output`."""

    def stream(self, state: DepthState) -> Tensor:
        """The part of the state that aggregations see, `[B, T, d]`: its first tensor as a rule."""
        return state[0]

    def with_stream(self, state: DepthState, x: Tensor) -> DepthState:
        """The state with another stream, which an aggregation has made of this one and those before."""
        return (x, *state[1:])

    def result(self, state: DepthState, context: Context) -> Tensor:
        """The part of the state that fusions see, `[B, T, result_width]`: the stream as a rule."""
        return self.stream(state)

    def normalise(self, x: Tensor, context: Context) -> Tensor:
        """The final norm of a `result`, where the connection has one."""
        return x if self.final_norm is None else self.final_norm(x, context)

    def begin_update(self, number: int) -> None:
        """Called before update `number`, from 1, of a training that began without another model.

        What changes with the updates and is no parameter belongs in a buffer, which is saved with the model.
        """

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """The weights of sub-layers or stages in the stream, for analyses; none as a rule."""
        return ()

    def mixing(self, state: DepthState, index: int) -> Mixing | None:
        """How call number `index`, or with one more the result, reads and writes a state, for analyses.

        None, as a rule: its weights are the same for every text, or there are none.
        """
        return None

    def gate_probes(self) -> tuple[GateProbe, ...]:
        """Where gates can be seen, for analyses; nowhere as a rule."""
        return ()


class ConnectionWrapper(Connection):
    """A connection that does what another does; a subclass changes some of it.

    Args:
        inner: The other one.
        calls: Those of `inner` unless given.
    """

    def __init__(self, inner: Connection, calls: tuple[Call, ...] | None = None) -> None:
        super().__init__(inner.calls if calls is None else calls)
        self.inner = inner

    def start(self, x: Tensor, context: Context) -> DepthState:
        """Call `inner`."""
        return self.inner.start(x, context)

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """Call `inner`."""
        return self.inner.read(state, index, context)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Call `inner`."""
        return self.inner.write(state, index, read, output, context)

    def stream(self, state: DepthState) -> Tensor:
        """Call `inner`."""
        return self.inner.stream(state)

    def with_stream(self, state: DepthState, x: Tensor) -> DepthState:
        """Call `inner`."""
        return self.inner.with_stream(state, x)

    def result(self, state: DepthState, context: Context) -> Tensor:
        """Call `inner`."""
        return self.inner.result(state, context)

    def normalise(self, x: Tensor, context: Context) -> Tensor:
        """Call `inner`."""
        return self.inner.normalise(x, context)


class ConnectionSection(SocketSection):
    """Base of a connection's settings."""

    kind: ClassVar[Kind] = "connection"
    # Where it normalises; aggregations and fusions ask for it.
    norm_style: ClassVar[NormStyle] = "input"
    # The initialisation of its paper, which a model begins with whose stacks agree; None: any other.
    initialization: ClassVar[str | None] = None
    # Sub-layers whose place it takes.
    replaces: ClassVar[frozenset[Sublayer]] = frozenset()
    # Whether the cross-attentions of a decoder are of its own kind (`cross_attention`).
    brings_cross_attention: ClassVar[bool] = False
    # Whether it adds what sub-layers give to the stream through `spec.branch`, as CompleteP wants it, and
    # without a factor of its own that follows the depth.
    scales_branches: ClassVar[bool] = False
    # The parts that `training.layer_drop` may leave out.
    drops: ClassVar[Droppable] = "nothing"
    # Whether what a sub-layer adds to the residual path grows in proportion to what it gives, as
    # `training.layer_drop.rescale` wants it.
    adds_in_proportion: ClassVar[bool] = True

    def calls(self, spec: StackSpec) -> tuple[Call, ...]:
        """The order in which the sub-layers of a whole stack are evaluated."""
        return plain_calls(spec.layers, spec.sublayers)

    def has_norm(self, spec: StackSpec) -> bool:
        """Where it normalises anywhere, as a rule."""
        return self.normalises and self.norm_style != "none"

    def result_width(self, spec: StackSpec) -> int:
        """Width of what leaves the stack; that of the stream as a rule."""
        return spec.dim

    def droppable(self) -> Droppable:
        """The parts that `training.layer_drop` may leave out."""
        return self.drops

    @property
    def takes_ways(self) -> bool:
        """Whether mixers may read other vectors than the stream (`AggregationSection.gives_ways`).

        `read` is then given the vector for queries in the place of the stream, and `write` must not add to
        what was read.
        """
        return False

    @abstractmethod
    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""

    def cross_attention(self, spec: StackSpec) -> CrossAttention:
        """The cross-attention of one decoder layer."""
        return CrossAttention(spec)
