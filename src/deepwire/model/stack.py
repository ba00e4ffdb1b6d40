"""The only loop over depth: encoder and decoder, training and decoding all run it."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from copy import copy
from functools import partial
from typing import ClassVar, Self, cast

import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint

from deepwire.model.aggregations.aggregation import Aggregation, Ways
from deepwire.model.connections.connection import Call, Connection, DepthState
from deepwire.model.cross_attention import CrossAttention, Memory
from deepwire.model.cross_attention_recorder import CrossAttentionRecorder
from deepwire.model.fusions.fusion import Fusion
from deepwire.model.introspection import DepthWeights, GateProbe, Place, mixer_weights
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.layer_ownership import layers_of_parameters
from deepwire.model.layers import FeedForward
from deepwire.model.mixers.companion import Carried, Companion
from deepwire.model.mixers.mixer import Below, State, TokenMixer


class Stack(nn.Module):
    """Layers of bare sub-layers, wired in depth by a connection, an aggregation and a fusion.

    Attributes:
        mixers: Token mixers, one a layer; crosses: cross-attentions (decoder), feed_forwards, and
            inner_feed_forwards in front of the crosses: likewise, each empty where the stack has none.
        connection: Joins the sub-layers of a layer to the stream; its `calls` are the order of evaluation.
        aggregation: Says what the next layer reads where a layer is complete.
        fusion: Turns layer outputs into the results of the stack.
        companion: Carries something from mixer to mixer beside the stream; None in most stacks.
        calls: The calls of the connection up to the highest layer that the fusion keeps.
        depth: The number of layers that are called.
        dim: Width of the stream.
        recomputes: Whether training keeps only what enters each layer, and goes through the layer once more
            in the backward pass (activation checkpointing; Chen et al. 2016, section 4).
        dropped_calls: Numbers of calls that training leaves out: the state passes them by as it is. So a
            layer without calls gives what it reads, also to aggregation and fusion.
        left_out: Numbers of calls that are always left out (`without`).
        call_scales: What training multiplies the output of each call by; None: nothing.
        recorder: Keeps attention to the encoder while whole sequences pass; None: nobody wants to know.
    """

    # Whether some layers run several times in a pass, so that nothing can follow them one after the other.
    repeats: ClassVar[bool] = False

    def __init__(
        self,
        dim: int,
        connection: Connection,
        aggregation: Aggregation,
        fusion: Fusion,
        mixers: Sequence[TokenMixer],
        crosses: Sequence[CrossAttention] = (),
        feed_forwards: Sequence[FeedForward] = (),
        inner_feed_forwards: Sequence[FeedForward] = (),
        companion: Companion | None = None,
    ) -> None:
        super().__init__()
        self.mixers = nn.ModuleList(mixers)
        self.crosses = nn.ModuleList(crosses)
        self.feed_forwards = nn.ModuleList(feed_forwards)
        self.inner_feed_forwards = nn.ModuleList(inner_feed_forwards)
        self.connection, self.aggregation, self.fusion = connection, aggregation, fusion
        self.dim, self.companion = dim, companion
        self._reads_below = any(getattr(mixer, "reads_below", False) for mixer in mixers)
        self.recomputes = False
        self.dropped_calls: frozenset[int] = frozenset()
        self.left_out: frozenset[int] = frozenset()
        self.call_scales: tuple[float, ...] | None = None
        self._recorded_kind = "cross" if len(self.crosses) else "mixer"
        self.recorder: CrossAttentionRecorder | None = None
        self._plan()

    def _plan(self) -> None:
        """Find the calls that connection and fusion need, and which of them make a layer."""
        self.calls = _needed(self.connection.calls, max(self.fusion.keeps))
        self.depth = max((call.layer + 1 for call in self.calls), default=0)
        ends = [index + 1 for index, call in enumerate(self.calls) if call.closes]
        self._layers = [range(first, stop) for first, stop in zip([0, *ends], ends, strict=False)]
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

        As `feed_forwards` any maps of `[B, T, d]` will do that take the target languages too. ValueError:
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
        self,
        encoded: Sequence[Tensor],
        bias: Tensor,
        languages: Tensor | None = None,
        received: Carried = (),
    ) -> tuple[Memory, ...]:
        """Make the memory of the encoder's results for every layer that is needed, once per sentence.

        Behind the memories of the layers come those of their mixers, where the stack has a companion.

        Args:
            encoded: One result `[N, S, d]` for all layers, or one for each layer.
            bias: `[N, 1, 1, S]`, 0 at words and -inf at padding.
            languages: The target languages of the sentences, `[N]` or `[1]`.
            received: What the encoder's companion carried to the end.
        """
        single = len(encoded) == 1
        if self.companion is None:
            return tuple(
                reader.project(encoded[0 if single else layer], bias, languages)
                for layer, reader in enumerate(self._readers()[: self.depth])
            )
        carried = self.companion.start(bias, received)
        memories, of_mixers = [], []
        for layer in range(self.depth):
            of_mixers.append(self._mixer(layer).remember(carried))
            read = self.companion.read(carried, layer, languages)
            cross = cast("CrossAttention", self.crosses[layer])
            if self.recorder is not None:
                self.recorder.record_packing(layer, cross, encoded[0 if single else layer], bias, read)
            memory, moved = cross.project_beside(encoded[0 if single else layer], bias, read, languages)
            memories.append(memory)
            carried = self.companion.write(carried, layer, moved, languages)
        return (*memories, *of_mixers)

    def init_states(self, rows: int, like: Tensor) -> tuple[State, ...]:
        """Mixer states before the first position: one a call, as one mixer may be called twice a step."""
        return tuple(
            self._mixer(call.layer).init_state(rows, like) for call in self.calls if call.kind == "mixer"
        )

    def forward(
        self,
        x: Tensor,
        *,
        padding: Tensor | None = None,
        memory: Sequence[Memory] = (),
        states: Sequence[State] = (),
        cache_index: CacheIndex | None = None,
        languages: Tensor | None = None,
    ) -> tuple[tuple[Tensor, ...], tuple[State, ...], Carried]:
        """Run the layers over whole sequences `[B, T, d]`, or with `cache_index` one position `[rows, 1, d]`.

        With a `cache_index` that is `reading` prompts, these are `[rows, T, d]`.

        Args:
            x: The embedding.
            padding: See `TokenMixer.parallel`.
            memory: Of the encoder, from `project_memory`.
            states: Of the mixers at this position.
            cache_index: The position of the decoder, and which cache slots its rows attend to.
            languages: The target languages of the rows, `[B]` or `[1]`, where any part depends on them.

        Returns:
            The results of the stack, each `[B, T, d]`, the new mixer states (none for whole sequences), and
            what an encoder's companion has carried to the end.
        """
        connection, fusion = self.connection, self.fusion
        history, x = self.aggregation.start(x, languages)
        depth = connection.start(x, padding, languages)
        carried: Carried = ()
        below: Below = ()
        if self.companion is not None and padding is not None:  # in a decoder it went before
            carried = self.companion.start(padding, ())
        kept = [connection.result(depth, languages)] if 0 in fusion.keeps else []
        old = iter(states)
        new: list[State] = []  # written so that torch.compile can follow
        recomputes = self.recomputes and self.training and torch.is_grad_enabled()
        for layer in self._layers:
            first, acts = self.calls[layer[0]].layer, self.aggregation.acts
            ways = self.aggregation.ways(history, first, languages) if acts else None
            given = (layer, depth, carried, below, ways, padding, memory, languages)
            if recomputes:
                depth, carried, below = checkpoint(self._run_layer, *given, use_reentrant=False)
            else:
                depth, carried, below = self._run_layer(*given, cache_index, old, new)
            closing = self.calls[layer[-1]].layer
            if self.aggregation.acts:
                history, x = self.aggregation.close(history, connection.stream(depth), closing, languages)
                depth = connection.with_stream(depth, x)
            if closing + 1 in fusion.keeps:
                kept.append(connection.result(depth, languages))
        normalise = partial(connection.normalise, languages=languages)
        if self.companion is not None and carried:
            carried = self.companion.result(carried, languages)
        return fusion(kept, normalise, languages), tuple(new), carried

    def _run_layer(
        self,
        calls: range,
        depth: DepthState,
        carried: Carried,
        below: Below,
        ways: Ways | None,
        padding: Tensor | None,
        memory: Sequence[Memory],
        languages: Tensor | None,
        cache_index: CacheIndex | None = None,
        states: Iterator[State] | None = None,
        new: list[State] | None = None,
    ) -> tuple[DepthState, Carried, Below]:
        """Make the calls of one layer; with `cache_index` for one position, whose next states go to `new`."""
        in_training = self.training and cache_index is None  # steps drop nothing, in whatever mode
        dropped = self.left_out | self.dropped_calls if in_training else self.left_out
        scales = self.call_scales if in_training else None
        for index in calls:
            call = self.calls[index]
            if index in dropped:
                if cache_index is not None and states and new is not None and call.kind == "mixer":
                    new.append(next(states))
                continue
            seen = depth
            if ways is not None and call.kind == "mixer":
                seen = self.connection.with_stream(depth, ways.query)
            read = self.connection.read(seen, index, languages)
            if self.recorder is not None and cache_index is None and call.kind == self._recorded_kind:
                self.recorder.record(call.layer, self._readers()[call.layer], read, memory[call.layer])
            if call.kind == "cross":
                output = self.crosses[call.layer](read, memory[call.layer])
            elif call.kind == "feed_forward":
                output = self.feed_forwards[call.layer](read, languages)
            elif call.kind == "inner_feed_forward":
                output = self.inner_feed_forwards[call.layer](read, languages)
            elif self.companion is not None and carried:
                beside = self.companion.read(carried, call.layer, languages)
                output, moved = self._mixer(call.layer).accompany(read, beside, padding, languages)
                carried = self.companion.write(carried, call.layer, moved, languages)
            elif cache_index is None or states is None or new is None:
                output, below = self._mix(call.layer, read, padding, below, ways, memory, languages)
            else:
                output, state, below = self._mix_step(
                    call.layer, read, next(states), cache_index, below, ways, memory, languages
                )
                new.append(state)
            if scales is not None:
                output = output * scales[index]
            depth = self.connection.write(depth, index, read, output, languages)
        return depth, carried, below

    def _mix(
        self,
        layer: int,
        x: Tensor,
        padding: Tensor | None,
        below: Below,
        ways: Ways | None,
        memory: Sequence[Memory],
        languages: Tensor | None,
    ) -> tuple[Tensor, Below]:
        """The output of the mixer of a layer for whole sequences, and what it leaves for those above."""
        mixer, memory_of = self._mixer(layer), self._memory_of(layer, memory)
        if self._reads_below or ways is not None:
            return mixer.parallel_above(x, padding, below, memory_of, languages, ways and ways[1:])
        return mixer.parallel(x, padding, memory_of, languages), below

    def _mix_step(
        self,
        layer: int,
        x: Tensor,
        state: State,
        cache_index: CacheIndex,
        below: Below,
        ways: Ways | None,
        memory: Sequence[Memory],
        languages: Tensor | None,
    ) -> tuple[Tensor, State, Below]:
        """Likewise of one position, or of prompts."""
        mixer, memory_of = self._mixer(layer), self._memory_of(layer, memory)
        if self._reads_below or ways is not None:
            step_above = mixer.prefill_above if cache_index.length else mixer.step_above
            return step_above(x, state, cache_index, below, memory_of, languages, ways and ways[1:])
        step = mixer.prefill if cache_index.length else mixer.step
        return (*step(x, state, cache_index, memory_of, languages), below)

    @property
    def layer_count(self) -> int:
        """How many layers there are, called or not."""
        return max(call.layer for call in self.connection.calls) + 1

    def sublayers(self) -> tuple[nn.ModuleList, ...]:
        """The sub-layers of each kind, one a layer or none."""
        return self.mixers, self.crosses, self.feed_forwards, self.inner_feed_forwards

    def parts(self) -> Mapping[str, nn.Module]:
        """The parts by the name that reports use."""
        companion = {} if self.companion is None else {"companion": self.companion}
        return {
            "mixer": self.mixers,
            **companion,
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
        of_sockets = tuple(weights for socket in sockets for weights in socket.depth_weights())
        return (*mixer_weights([mixer.depth_weights() for mixer in self._mixers()]), *of_sockets)

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

    def _mixers(self) -> list[TokenMixer]:
        return list(map(self._mixer, range(len(self.mixers))))

    def _mixer(self, layer: int) -> TokenMixer:
        return cast("TokenMixer", self.mixers[layer])  # a ModuleList forgets the type

    def _readers(self) -> Sequence[CrossAttention | TokenMixer]:
        """The readers of the encoder: cross-attentions, or mixers that take their place."""
        if len(self.crosses):
            return [cast("CrossAttention", cross) for cross in self.crosses]
        return self._mixers()

    def _memory_of(self, layer: int, memory: Sequence[Memory]) -> Memory | None:
        if self.companion is not None and memory:
            return memory[self.depth + layer]
        return memory[layer] if memory and not len(self.crosses) else None


def _needed(calls: tuple[Call, ...], highest: int) -> tuple[Call, ...]:
    """The calls up to the end of layer `highest`, counted from 1: nothing above it reaches a result."""
    ends = [index + 1 for index, call in enumerate(calls) if call.closes and call.layer < highest]
    return calls[: max(ends, default=0)]
