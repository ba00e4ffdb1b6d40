"""RNMT+: recurrent layers, in a decoder around one attention to the source, in an encoder in both directions.

Chen et al. 2018 (The Best of Both Worlds). Either side also works with a Transformer's on the other side. The
decoder is as Neutron builds it.
"""

from __future__ import annotations

from dataclasses import replace
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.model.connections.connection import Call, Connection, ConnectionSection, DepthState
from deepwire.model.context import Context, Memory
from deepwire.model.cross_attention import CrossAttention
from deepwire.model.stack_spec import NormStyle, StackSpec, Sublayer
from deepwire.ops.dropout import Dropout


class RNMTConfig(ConnectionSection):
    """The wiring of RNMT+; mixers read [stream | attention] in a decoder, both directions in an encoder."""

    norm_style: ClassVar[NormStyle] = "none"
    brings_cross_attention: ClassVar[bool] = True
    replaces: ClassVar[frozenset[Sublayer]] = frozenset({"inner_feed_forward", "feed_forward"})

    type: Literal["rnmt"] = "rnmt"
    projection: bool = Field(
        True,
        description="a linear map W_p: in a decoder between the encoder's output and the attention's keys "
        "and values, in an encoder from both directions of its last layer to d_model",
    )

    def check(self, spec: StackSpec) -> None:
        """A cross-attention to read."""
        if spec.side == "decoder" and "cross" not in spec.sublayers:
            raise ValueError(
                "rnmt has one cross-attention that all layers read; a mixer that attends to the encoder "
                "itself has no place in it"
            )

    def calls(self, spec: StackSpec) -> tuple[Call, ...]:
        """In a decoder the attention follows the first mixer, and the others read stream and attention."""
        wide, above = 2 * spec.dim, range(1, spec.layers)
        if spec.side == "encoder":
            return (
                Call("mixer", 0, closes=True, gives=wide),
                *(Call("mixer", layer, closes=True, width=wide, gives=wide) for layer in above),
            )
        return (
            Call("mixer", 0, closes=False),
            Call("cross", 0, closes=True),
            *(Call("mixer", layer, closes=True, width=wide) for layer in above),
        )

    def has_norm(self, spec: StackSpec) -> bool:
        """The final one of a decoder."""
        return spec.side == "decoder"

    def result_width(self, spec: StackSpec) -> int:
        """A decoder predicts from stream and attention; an encoder has two directions until W_p."""
        return spec.dim if spec.side == "encoder" and self.projection else 2 * spec.dim

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return RNMTEncoder(self, spec) if spec.side == "encoder" else RNMT(self, spec)

    def cross_attention(self, spec: StackSpec) -> CrossAttention:
        """The one attention to the encoder."""
        return ProjectedCrossAttention(spec) if self.projection else CrossAttention(spec)


class RNMTEncoder(Connection):
    """x_1 = drop(F_1(e)), x_2 = drop(F_2(x_1)), x_j = x_{j-1} + drop(F_j(x_{j-1})) from the third layer on;
    the result is x_n W_p.

    Every F gives `2 d` features: with a recurrent mixer, d of each direction (Chen et al. 2018, section 3).
    The state is (x,), `[B, S, 2 d]`, which begins as the embedding twice, of which F_1 reads one.
    """

    def __init__(self, config: RNMTConfig, spec: StackSpec) -> None:
        super().__init__(config.calls(spec))
        self.dim = spec.dim
        self.projection = nn.Linear(2 * self.dim, self.dim, bias=False) if config.projection else None
        self.dropout = Dropout(spec.dropout.sublayer)

    def start(self, x: Tensor, context: Context) -> DepthState:
        """Begin with the embedding in the place of both directions."""
        return (torch.cat((x, x), -1),)

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """The embedding, `[B, S, d]`; both directions above, `[B, S, 2 d]`."""
        return state[0][..., : self.dim] if index == 0 else state[0]

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Replace the stream (layers 1 and 2), or add to it (layers above)."""
        output = self.dropout(output)
        return (output if index < 2 else state[0] + output,)

    def result(self, state: DepthState, context: Context) -> Tensor:
        """Both directions, projected where asked for."""
        return state[0] if self.projection is None else self.projection(state[0])


class ProjectedCrossAttention(CrossAttention):
    """Cross-attention to W_p H, where H is the encoder's output and W_p has no bias."""

    def __init__(self, spec: StackSpec) -> None:
        super().__init__(replace(spec, memory_width=spec.dim))
        self.projection = nn.Linear(spec.memory_width, spec.dim, bias=False)

    def project(self, encoded: Tensor, context: Context) -> Memory:
        """Make the memory of encoder output `[N, S, d]`; bias `[N, 1, 1, S]`."""
        return super().project(self.projection(encoded), context)


class RNMT(Connection):
    """x_1 = F_1(e), a = attention(x_1, W_p H), x_2 = drop(F_2([x_1 | a])), and from the third layer on
    x_j = x_{j-1} + drop(F_j([x_{j-1} | a])); the result is [LN(x_n) | a].

    The state is (x, a), each `[B, T, d]`; a is zero below the attention.
    """

    def __init__(self, config: RNMTConfig, spec: StackSpec) -> None:
        super().__init__(config.calls(spec))
        self.dim = spec.dim
        self.norm = spec.norm()
        self.dropout = Dropout(spec.dropout.sublayer)

    def start(self, x: Tensor, context: Context) -> DepthState:
        """Begin with the embedding, having attended to nothing."""
        return (x, torch.zeros_like(x))

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """The stream for the first layer and the attention, `[B, T, d]`; [x | a] above, `[B, T, 2 d]`."""
        return state[0] if index < 2 else torch.cat(state, -1)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Replace the stream (layers 1 and 2), set the attention, or add to the stream (layers above)."""
        x, attended = state
        if index == 0:
            return (output, attended)
        if index == 1:
            return (x, output)
        output = self.dropout(output)
        return (output if index == 2 else x + output, attended)

    def result(self, state: DepthState, context: Context) -> Tensor:
        """[x | a], `[B, T, 2 d]`."""
        return torch.cat(state, -1)

    def normalise(self, x: Tensor, context: Context) -> Tensor:
        """Normalise the first half of `[B, T, 2 d]`."""
        return torch.cat((self.norm(x[..., : self.dim], context), x[..., self.dim :]), -1)
