"""Stacks in which something travels beside the stream: values of lower layers, or Luna's sequence."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import cast

from torch import Tensor, nn

from deepwire.model.aggregations.aggregation import History
from deepwire.model.aggregations.mudd import MUDD
from deepwire.model.connections.connection import DepthState
from deepwire.model.context import Context, Memory
from deepwire.model.mixers.luna import LunaCausalAttention, LunaCrossAttention, LunaSequence
from deepwire.model.mixers.mixer import SideMixer, SideState, State
from deepwire.model.stack import Stack, StackParts
from deepwire.model.stack_spec import StackSpec


class SideStack(Stack):
    """A stack whose mixers leave something for those above (`SideMixer`)."""

    def mix(
        self, layer: int, read: Tensor, state: State | None, side: SideState, context: Context
    ) -> tuple[Tensor, State | None, SideState]:
        """Likewise, with what travels beside the stream."""
        mixer = self.mixers[layer]
        if not isinstance(mixer, SideMixer):
            return super().mix(layer, read, state, side, context)
        if state is None:
            output, side = mixer.forward_beside(read, side, context)
            return output, None, side
        return mixer.step_beside(read, state, side, context)


class MUDDStack(SideStack):
    """A stack whose aggregation makes queries, keys and values above layer 1 of vectors of their own.

    Beside the stream travel the three vectors of the next layer; its mixer reads the first in the place of
    the stream.
    """

    def close_side(self, side: SideState, history: History, layer: int, context: Context) -> SideState:
        """The vectors of the layer above."""
        return cast("MUDD", self.aggregation).inputs(history, layer, context)

    def read(self, depth: DepthState, index: int, side: SideState, context: Context) -> Tensor:
        """The mixer reads its query in the place of the stream."""
        if side and self.calls[index].kind == "mixer":
            depth = self.connection.with_stream(depth, side[0])
        return super().read(depth, index, side, context)

    def mix(
        self, layer: int, read: Tensor, state: State | None, side: SideState, context: Context
    ) -> tuple[Tensor, State | None, SideState]:
        """Keys and values are made of the other two; layer 1 has one input for all."""
        output, state, _ = super().mix(layer, read, state, side[1:], context)
        return output, state, side


class LunaStack(SideStack):
    """A stack of Luna, beside whose stream a learned sequence P travels.

    In an encoder it goes along with the layers: each mixer reads it and gives what it is moved by. The
    decoder goes on with what leaves the encoder, if that is a stack of Luna too. There P never reads the
    target, so it goes through all layers once for each sentence, before the first step.
    """

    def __init__(self, spec: StackSpec, parts: StackParts, companion: LunaSequence) -> None:
        super().__init__(spec.dim, parts)
        self.companion, self.is_encoder = companion, spec.side == "encoder"

    def parts(self) -> Mapping[str, nn.Module]:
        """See the base class."""
        return {"mixer": self.mixers, "companion": self.companion, **super().parts()}

    def start_side(self, context: Context) -> SideState:
        """P, in an encoder."""
        return self.companion.start(context) if self.is_encoder else ()

    def end_side(self, side: SideState, context: Context) -> SideState:
        """P with its final norm."""
        return self.companion.result(side, context) if self.is_encoder else ()

    def mix(
        self, layer: int, read: Tensor, state: State | None, side: SideState, context: Context
    ) -> tuple[Tensor, State | None, SideState]:
        """The mixer of an encoder also moves P."""
        if not self.is_encoder:
            return super().mix(layer, read, state, side, context)
        output, _, (moved,) = super().mix(
            layer, read, state, self.companion.read(side, layer, context), context
        )
        return output, None, self.companion.write(side, layer, moved, context)

    def project_memory(
        self, encoded: Sequence[Tensor], context: Context, received: SideState = ()
    ) -> tuple[Memory, ...]:
        """Behind the memories of the cross-attentions come those of the mixers."""
        side, memories, of_mixers = self.companion.start(context, received), [], []
        for layer in range(self.depth):
            of_mixers.append(cast("LunaCausalAttention", self.mixers[layer]).remember(side))
            read = self.companion.read(side, layer, context)
            result, cross = encoded[layer % len(encoded)], cast("LunaCrossAttention", self.crosses[layer])
            if self.recorder is not None:
                self.recorder.record_packing(layer, partial(cross.packed_weights, result, read, context))
            moved = cross.packed(result, read, context)
            memories.append(cross.project(moved, context.replace(padding=read[1], spans=None)))
            side = self.companion.write(side, layer, moved, context)
        return (*memories, *of_mixers)
