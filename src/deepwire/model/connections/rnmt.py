"""RNMT+-style decoder: recurrent layers around one attention to the source, which all of them read.

The decoder of Chen et al. 2018 (The Best of Both Worlds) on a Transformer's encoder, as Neutron builds it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.model.connections.connection import Call, Connection, ConnectionSection, DepthState, Sublayer
from deepwire.model.context import Side, StackContext
from deepwire.model.cross_attention import CrossAttention, Memory
from deepwire.ops.dropout import Dropout


class RNMTConfig(ConnectionSection):
    """The wiring of an RNMT+ decoder; its mixers read [stream | attention]."""

    type: Literal["rnmt"] = "rnmt"
    sides: ClassVar[frozenset[Side]] = frozenset({"decoder"})
    has_feed_forward: ClassVar[bool] = False
    projection: bool = Field(
        True, description="a linear map W_p between the encoder's output and the attention's keys and values"
    )

    def build(self, context: StackContext, kinds: tuple[Sublayer, ...]) -> Connection:
        """The connection of a whole stack."""
        if "cross" not in kinds:
            raise ValueError(
                "rnmt has one cross-attention that all layers read; a mixer that attends to the encoder "
                "itself has no place in it"
            )
        return RNMT(context)

    def cross_attention(self, context: StackContext) -> CrossAttention:
        """The one attention to the encoder."""
        return ProjectedCrossAttention(context) if self.projection else CrossAttention(context)


class ProjectedCrossAttention(CrossAttention):
    """Cross-attention to W_p H, where H is the encoder's output and W_p has no bias."""

    def __init__(self, context: StackContext) -> None:
        super().__init__(replace(context, memory_width=context.dim))
        self.projection = nn.Linear(context.memory_width, context.dim, bias=False)

    def project(self, encoded: Tensor, bias: Tensor) -> Memory:
        """Make the memory of encoder output `[N, S, d]`; bias `[N, 1, 1, S]`."""
        return super().project(self.projection(encoded), bias)


class RNMT(Connection):
    """x_1 = F_1(e), a = attention(x_1, W_p H), x_2 = drop(F_2([x_1 | a])), and from the third layer on
    x_j = x_{j-1} + drop(F_j([x_{j-1} | a])); the result is [LN(x_n) | a].

    The state is (x, a), each `[B, T, d]`; a is zero below the attention.
    """

    norm_style = "none"

    def __init__(self, context: StackContext) -> None:
        super().__init__()
        self.calls = (
            Call("mixer", 0, closes=False),
            Call("cross", 0, closes=True),
            *(Call("mixer", layer, closes=True) for layer in range(1, context.layers)),
        )
        self.dim = context.dim
        self.norm = context.norm()
        self.dropout = Dropout(context.dropout.sublayer)

    def mixer_width(self, layer: int, dim: int) -> int:
        """All layers but the first read the attention too."""
        return dim if layer == 0 else 2 * dim

    def result_width(self, dim: int) -> int:
        """The prediction is made from stream and attention."""
        return 2 * dim

    def start(self, x: Tensor, padding: Tensor | None = None) -> DepthState:
        """Begin with the embedding, having attended to nothing."""
        return (x, torch.zeros_like(x))

    def read(self, state: DepthState, index: int) -> Tensor:
        """The stream for the first layer and the attention, `[B, T, d]`; [x | a] above, `[B, T, 2 d]`."""
        return state[0] if index < 2 else torch.cat(state, -1)

    def write(self, state: DepthState, index: int, read: Tensor, output: Tensor) -> DepthState:
        """Replace the stream (layers 1 and 2), set the attention, or add to the stream (layers above)."""
        x, attended = state
        if index == 0:
            return (output, attended)
        if index == 1:
            return (x, output)
        output = self.dropout(output)
        return (output if index == 2 else x + output, attended)

    def result(self, state: DepthState) -> Tensor:
        """[x | a], `[B, T, 2 d]`."""
        return torch.cat(state, -1)

    def normalise(self, x: Tensor) -> Tensor:
        """Normalise the first half of `[B, T, 2 d]`."""
        return torch.cat((self.norm(x[..., : self.dim]), x[..., self.dim :]), -1)
