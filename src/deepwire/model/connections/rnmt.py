"""RNMT+-style decoder: recurrent layers around one attention to the source, which all of them read.

The decoder of Chen et al. 2018 (The Best of Both Worlds) on a Transformer's encoder, as Neutron builds it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.model.connections.connection import Call, Connection, ConnectionSection, DepthState
from deepwire.model.context import NormStyle, Side, StackContext, Sublayer
from deepwire.model.cross_attention import CrossAttention, Memory
from deepwire.ops.dropout import Dropout


class RNMTConfig(ConnectionSection):
    """The wiring of an RNMT+ decoder; its mixers read [stream | attention]."""

    sides: ClassVar[frozenset[Side]] = frozenset({"decoder"})
    norm_style: ClassVar[NormStyle] = "none"
    replaces: ClassVar[frozenset[Sublayer]] = frozenset({"inner_feed_forward", "feed_forward"})

    type: Literal["rnmt"] = "rnmt"
    projection: bool = Field(
        True, description="a linear map W_p between the encoder's output and the attention's keys and values"
    )

    def check(self, context: StackContext) -> None:
        """A cross-attention to read."""
        if "cross" not in context.sublayers:
            raise ValueError(
                "rnmt has one cross-attention that all layers read; a mixer that attends to the encoder "
                "itself has no place in it"
            )

    def calls(self, context: StackContext) -> tuple[Call, ...]:
        """The attention follows the first mixer; the others read stream and attention."""
        return (
            Call("mixer", 0, closes=False),
            Call("cross", 0, closes=True),
            *(Call("mixer", layer, closes=True, width=2 * context.dim) for layer in range(1, context.layers)),
        )

    def has_norm(self, context: StackContext) -> bool:
        """The final one."""
        return True

    def result_width(self, context: StackContext) -> int:
        """The prediction is made from stream and attention."""
        return 2 * context.dim

    def build(self, context: StackContext) -> Connection:
        """The connection of a whole stack."""
        return RNMT(self, context)

    def cross_attention(self, context: StackContext) -> CrossAttention:
        """The one attention to the encoder."""
        return ProjectedCrossAttention(context) if self.projection else CrossAttention(context)


class ProjectedCrossAttention(CrossAttention):
    """Cross-attention to W_p H, where H is the encoder's output and W_p has no bias."""

    def __init__(self, context: StackContext) -> None:
        super().__init__(replace(context, memory_width=context.dim))
        self.projection = nn.Linear(context.memory_width, context.dim, bias=False)

    def project(self, encoded: Tensor, bias: Tensor, languages: Tensor | None = None) -> Memory:
        """Make the memory of encoder output `[N, S, d]`; bias `[N, 1, 1, S]`."""
        return super().project(self.projection(encoded), bias, languages)


class RNMT(Connection):
    """x_1 = F_1(e), a = attention(x_1, W_p H), x_2 = drop(F_2([x_1 | a])), and from the third layer on
    x_j = x_{j-1} + drop(F_j([x_{j-1} | a])); the result is [LN(x_n) | a].

    The state is (x, a), each `[B, T, d]`; a is zero below the attention.
    """

    def __init__(self, config: RNMTConfig, context: StackContext) -> None:
        super().__init__(config.calls(context))
        self.dim = context.dim
        self.norm = context.norm()
        self.dropout = Dropout(context.dropout.sublayer)

    def start(self, x: Tensor, padding: Tensor | None = None, languages: Tensor | None = None) -> DepthState:
        """Begin with the embedding, having attended to nothing."""
        return (x, torch.zeros_like(x))

    def read(self, state: DepthState, index: int, languages: Tensor | None = None) -> Tensor:
        """The stream for the first layer and the attention, `[B, T, d]`; [x | a] above, `[B, T, 2 d]`."""
        return state[0] if index < 2 else torch.cat(state, -1)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, languages: Tensor | None = None
    ) -> DepthState:
        """Replace the stream (layers 1 and 2), set the attention, or add to the stream (layers above)."""
        x, attended = state
        if index == 0:
            return (output, attended)
        if index == 1:
            return (x, output)
        output = self.dropout(output)
        return (output if index == 2 else x + output, attended)

    def result(self, state: DepthState, languages: Tensor | None = None) -> Tensor:
        """[x | a], `[B, T, 2 d]`."""
        return torch.cat(state, -1)

    def normalise(self, x: Tensor, languages: Tensor | None = None) -> Tensor:
        """Normalise the first half of `[B, T, 2 d]`."""
        return torch.cat((self.norm(x[..., : self.dim], languages), x[..., self.dim :]), -1)
