"""The only loop over depth: encoder and decoder, training and decoding all run it."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from copy import copy
from functools import partial
from typing import ClassVar, NamedTuple, Self, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from deepwire.model.aggregations.aggregation import Aggregation, History
from deepwire.model.connections.connection import Connection, DepthState
from deepwire.model.context import Context, Memory
from deepwire.model.cross_attention import CrossAttention, CrossAttentionRecorder
from deepwire.model.fusions.fusion import Fusion
from deepwire.model.introspection import DepthWeights, GateProbe, Place, mixer_weights
from deepwire.model.kv_cache import KeyValueCache
from deepwire.model.layer_ownership import layers_of_parameters
from deepwire.model.layers import FeedForward
from deepwire.model.mixers.mixer import Mixer, SideState, SourceMixer, State, step_prompts


class StackParts(NamedTuple):
    """The modules of a stack: the four sockets, and its sub-layers, one a layer or none."""

    connection: Connection
    aggregation: Aggregation
    fusion: Fusion
    mixers: Sequence[Mixer]
    crosses: Sequence[CrossAttention] = ()
    feed_forwards: Sequence[FeedForward] = ()
    inner_feed_forwards: Sequence[FeedForward] = ()


class StackOutput(NamedTuple):
    """The output of a stack.

    results: each `[B, T, d]`; states: of the mixers, none for whole sequences; side: what travelled beside
    the stream to the end, of an encoder of Luna.
    """

    results: tuple[Tensor, ...]
    states: tuple[State, ...]
    side: SideState


RunLayer = Callable[..., tuple[DepthState, SideState, list[State]]]
"""The signature of `Stack.run_layer`."""


class StackPass(NamedTuple):
    """The end of a pass through some layers: what the fusion keeps, and the rest as in `StackOutput`."""

    depth: DepthState
    kept: list[Tensor]
    states: list[State]
    side: SideState


class Stack(nn.Module):
    """Layers of bare sub-layers, wired in depth by a connection, an aggregation and a fusion.

    Attributes:
        mixers: Token mixers, one a layer; crosses: cross-attentions (decoder), feed_forwards, and
            inner_feed_forwards in front of the crosses: likewise, each empty where the stack has none.
        connection: Joins the sub-layers of a layer to the stream; its `calls` are the order of evaluation.
        aggregation: Says what the next layer reads where a layer is complete.
        fusion: Turns layer outputs into the results of the stack.
        calls: The calls of the connection up to the highest layer that the fusion keeps.
        layers: The numbers of the calls of each layer; slots: the number of the state of each mixer's call.
        depth: The number of layers that are called.
        dim: Width of the stream.
        recomputes: Whether training keeps only what enters each layer, and goes through the layer once more
            in the backward pass (activation checkpointing; Chen et al. 2016, section 4).
        dropped_calls: Numbers of calls that training leaves out: the state passes them by as it is. So a
            layer without calls gives what it reads, also to aggregation and fusion.
        left_out: Numbers of calls that are always left out (`without`).
        call_scales: What training multiplies the output of each call by; None: nothing.
        compiled: Functions that run layers in training in the place of `run_layer`, which take the stack too,
            by the first call of each; none: nothing is compiled.
        recorder: Keeps attention to the encoder while whole sequences pass; None: nobody wants to know.
    """

    # Whether some layers run several times in a pass, so that nothing can follow them one after the other.
    repeats: ClassVar[bool] = False

    def __init__(self, dim: int, parts: StackParts) -> None:
        super().__init__()
        self.mixers = nn.ModuleList(parts.mixers)
        self.crosses = nn.ModuleList(parts.crosses)
        self.feed_forwards = nn.ModuleList(parts.feed_forwards)
        self.inner_feed_forwards = nn.ModuleList(parts.inner_feed_forwards)
        self.connection, self.aggregation, self.fusion = parts[:3]
        self.dim = dim
        self.recomputes = False
        self.dropped_calls: frozenset[int] = frozenset()
        self.left_out: frozenset[int] = frozenset()
        self.call_scales: tuple[float, ...] | None = None
        self.compiled: dict[int, RunLayer] = {}
        self._recorded_kind = "cross" if len(self.crosses) else "mixer"
        self.recorder: CrossAttentionRecorder | None = None
        self._plan()

    def _plan(self) -> None:
        """Find the calls that connection and fusion need, and which of them make a layer."""
        # Nothing above the highest layer that the fusion keeps reaches a result.
        highest, calls = max(self.fusion.keeps), self.connection.calls
        ends = [index + 1 for index, call in enumerate(calls) if call.closes and call.layer < highest]
        self.calls = calls[: max(ends, default=0)]
        self.depth = max((call.layer + 1 for call in self.calls), default=0)
        ends = [index + 1 for index, call in enumerate(self.calls) if call.closes]
        self.layers = [range(first, stop) for first, stop in zip([0, *ends], ends, strict=False)]
        mixing = [index for index, call in enumerate(self.calls) if call.kind == "mixer"]
        self.slots = {index: slot for slot, index in enumerate(mixing)}
        self._of_connection: dict[str, int] | None = None

    def restrict(self, first: int, last: int) -> Self:
        """The same, whose fusion gives results `first` to `last` alone; ValueError as `Fusion.restrict`."""
        return self.with_parts(fusion=self.fusion.restrict(first, last))

    def with_rounds(self, rounds: int) -> Stack:
        """The stack that runs its middle so often; one without recurrent depth raises ValueError."""
        raise ValueError("the encoder has no rounds (model.encoder.recurrence)")

    def without(self, layers: Collection[int]) -> Self:
        """The same stack, all parameters shared, whose state passes some layers (from 0) by as it is."""
        other = copy(self)
        other.left_out = frozenset(index for index, call in enumerate(self.calls) if call.layer in layers)
        return other

    def with_recorder(self, recorder: CrossAttentionRecorder) -> Self:
        """The same stack, all parameters shared, with another `recorder`."""
        other = copy(self)
        other.recorder = recorder
        return other

    def with_parts(
        self,
        *,
        connection: Connection | None = None,
        aggregation: Aggregation | None = None,
        fusion: Fusion | None = None,
        feed_forwards: Sequence[nn.Module] | None = None,
    ) -> Self:
        """The stack with some of its parts exchanged; the others, and all that is set, are shared.

        As `feed_forwards` any maps of `[B, T, d]` will do that take the context too. ValueError:
        calls are left out or scaled by their number, and these parts make other calls.
        """
        other = copy(self)
        other._modules = self._modules.copy()  # otherwise both would have one dictionary of parts
        other.connection = connection or self.connection
        other.aggregation, other.fusion = aggregation or self.aggregation, fusion or self.fusion
        other.feed_forwards = nn.ModuleList(self.feed_forwards if feed_forwards is None else feed_forwards)
        other._plan()
        same = other.calls == self.calls[: len(other.calls)]
        if not same and (self.left_out or self.dropped_calls or self.call_scales):
            raise ValueError("the stack leaves out or scales calls, and the parts make other calls")
        return other

    def project_memory(
        self, encoded: Sequence[Tensor], context: Context, received: SideState = ()
    ) -> tuple[Memory, ...]:
        """Make the memory of the encoder's results for every layer that is needed, once per sentence.

        Args:
            encoded: One result `[N, S, d]` for all layers, or one for each layer.
            context: That of the encoder.
            received: What travelled to the end of the encoder beside its stream.
        """
        return tuple(
            reader.project(encoded[layer % len(encoded)], context)
            for layer, reader in enumerate(self._readers()[: self.depth])
        )

    def init_states(self, rows: int, like: Tensor) -> tuple[State, ...]:
        """Mixer states before the first position: one a call, as one mixer may be called twice a step."""
        return tuple(self._mixer(self.calls[index].layer).init_state(rows, like) for index in self.slots)

    def forward(self, x: Tensor, context: Context, states: Sequence[State] = ()) -> StackOutput:
        """Run the layers over whole sequences `[B, T, d]`, or with `states` over the next positions.

        Args:
            x: The embedding, `[B, T, d]`; with states `[rows, 1, d]`, or `[rows, T, d]` of prompts.
            context: What parts may look at.
            states: Of the mixers at this position.
        """
        done = self.run(x, self.layers, context, states)
        normalise = partial(self.connection.normalise, context=context)
        results = self.fusion(done.kept, normalise, context)
        return StackOutput(results, tuple(done.states), self.end_side(done.side, context))

    def run(
        self, x: Tensor, layers: Iterable[range], context: Context, states: Sequence[State] = ()
    ) -> StackPass:
        """Run some layers, from where a stack begins."""
        connection, aggregation, keeps = self.connection, self.aggregation, self.fusion.keeps
        history, x = aggregation.start(x, context)
        depth, side = connection.start(x, context), self.start_side(context)
        kept = [connection.result(depth, context)] if 0 in keeps else []
        following: list[State] = []
        learns = self.training and context.index is None  # steps drop nothing, in whatever mode
        skipped = self.left_out | self.dropped_calls if learns else self.left_out
        recomputes = self.recomputes and self.training and torch.is_grad_enabled()
        for calls in layers:
            present = tuple(index for index in calls if index not in skipped)
            if present:
                run_layer = partial(self._runner(calls, x, context), present, context, states)
                if recomputes:
                    run_layer = partial(checkpoint, run_layer, use_reentrant=False)
                depth, side, stepped = run_layer(depth, side)
                following += stepped
            else:
                following += [states[self.slots[index]] for index in calls if states and index in self.slots]
            layer = self.calls[calls[-1]].layer
            if aggregation.acts:
                history, x = aggregation.close(history, connection.stream(depth), layer, context)
                depth = connection.with_stream(depth, x)
                side = self.close_side(side, history, layer, context)
            if layer + 1 in keeps:
                kept.append(connection.result(depth, context))
        return StackPass(depth, kept, following, side)

    def _runner(self, calls: range, x: Tensor, context: Context) -> RunLayer:
        """The function that runs a layer: `run_layer`, or in training what it was compiled to."""
        compiled = self.compiled.get(calls.start) if self.training and context.index is None else None
        if compiled is None:
            return self.run_layer
        # Of graphs for sizes that change, torch would make others for sizes of one.
        sizes = (*x.shape[:2], *(memory.key.size(2) for memory in context.memory[:1]))
        return self.run_layer if min(sizes) < 2 else partial(compiled, self)

    def run_layer(
        self,
        calls: Sequence[int],
        context: Context,
        states: Sequence[State],
        depth: DepthState,
        side: SideState,
    ) -> tuple[DepthState, SideState, list[State]]:
        """Make calls of one layer; also the next states of its mixer."""
        following: list[State] = []
        for index in calls:
            call = self.calls[index]
            read = self.read(depth, index, side, context)
            if self.recorder is not None and context.index is None and call.kind == self._recorded_kind:
                reader = self._readers()[call.layer]
                self.recorder.record(call.layer, reader, read, context.memory[call.layer])
            if call.kind == "cross":
                output = self.crosses[call.layer](read, context.memory[call.layer])
            elif call.kind == "mixer":
                old = states[self.slots[index]] if states else None
                output, new, side = self.mix(call.layer, read, old, side, context)
                if new is not None:
                    following.append(new)
            else:
                inner = call.kind == "inner_feed_forward"
                networks = self.inner_feed_forwards if inner else self.feed_forwards
                output = networks[call.layer](read, context)
            if self.call_scales is not None and self.training and context.index is None:
                output = output * self.call_scales[index]
            depth = self.connection.write(depth, index, read, output, context)
        return depth, side, following

    def start_side(self, context: Context) -> SideState:
        """The value beside the stream of the lowest layer."""
        return ()

    def close_side(self, side: SideState, history: History, layer: int, context: Context) -> SideState:
        """The value beside the stream after an aggregation has closed a layer."""
        return side

    def end_side(self, side: SideState, context: Context) -> SideState:
        """The value beside the stream that leaves the stack."""
        return ()

    def read(self, depth: DepthState, index: int, side: SideState, context: Context) -> Tensor:
        """The input of call number `index`."""
        return self.connection.read(depth, index, context)

    def mix(
        self, layer: int, read: Tensor, state: State | None, side: SideState, context: Context
    ) -> tuple[Tensor, State | None, SideState]:
        """The output of the mixer of a layer, its next state, and what travels on beside the stream."""
        mixer = self._mixer(layer)
        if state is None:
            return mixer(read, context), None, side
        if context.positions.passing and not isinstance(state, KeyValueCache):
            return *step_prompts(mixer, read, state, context), side
        return *mixer.step(read, state, context), side

    @property
    def layer_count(self) -> int:
        """How many layers there are, called or not."""
        return max(call.layer for call in self.connection.calls) + 1

    def sublayers(self) -> tuple[nn.ModuleList, ...]:
        """The sub-layers of each kind, one a layer or none."""
        return self.mixers, self.crosses, self.feed_forwards, self.inner_feed_forwards

    def parts(self) -> Mapping[str, nn.Module]:
        """The parts by the name that reports use."""
        return {
            "mixer": self.mixers,
            "cross-attention": self.crosses,
            "feed-forward": self.feed_forwards,
            "inner feed-forward": self.inner_feed_forwards,
            "connection": self.connection,
            "aggregation": self.aggregation,
            "fusion": self.fusion,
        }

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """How the sockets weigh what comes from different depths; for analyses."""
        sockets = (self.connection, self.aggregation, self.fusion)
        mixers = [self._mixer(layer).depth_weights() for layer in range(len(self.mixers))]
        of_sockets = tuple(weights for socket in sockets for weights in socket.depth_weights())
        return (*mixer_weights(mixers), *of_sockets)

    def gate_probes(self) -> tuple[GateProbe, ...]:
        """Where the gates of the sockets can be seen; for analyses."""
        crosses = (
            cast("CrossAttention", cross).gate_probes(Place(layer, str(layer + 1)))
            for layer, cross in enumerate(self.crosses)
        )
        by_socket = (self.connection.gate_probes(), self.fusion.gate_probes(), *crosses)
        return tuple(probe for probes in by_socket for probe in probes)

    def parameter_layers(self) -> Mapping[str, int]:
        """The layer, from 1, of every parameter that belongs to one layer alone, by its name in the stack."""
        if self._of_connection is None:
            self._of_connection = layers_of_parameters(self.connection, self.dim)
        layers = {f"connection.{name}": layer + 1 for name, layer in self._of_connection.items()}
        for kind in ("mixers", "crosses", "feed_forwards", "inner_feed_forwards"):
            for name, _ in self.get_submodule(kind).named_parameters():
                layers[f"{kind}.{name}"] = int(name.split(".")[0]) + 1
        return layers

    def parameters_by_layer(self) -> list[tuple[str, list[nn.Parameter]]]:
        """Every parameter of the stack once: those of each layer under its number from 1, others as `rest`.

        What several layers have in common, such as the gates of a depth-wise LSTM, is in the rest.
        """
        layers = self.parameter_layers()
        numbers = range(1, self.layer_count + 1)
        by_layer: dict[str, list[nn.Parameter]] = {str(layer): [] for layer in numbers}
        by_layer["rest"] = []
        for name, parameter in self.named_parameters():
            by_layer[str(layers.get(name, "rest"))].append(parameter)
        return list(by_layer.items())

    def _mixer(self, layer: int) -> Mixer:
        return cast("Mixer", self.mixers[layer])  # a ModuleList forgets the type

    def _readers(self) -> Sequence[CrossAttention | SourceMixer]:
        """The readers of the encoder: cross-attentions, or mixers that take their place."""
        if len(self.crosses):
            return [cast("CrossAttention", cross) for cross in self.crosses]
        return [cast("SourceMixer", mixer) for mixer in self.mixers]
