"""Residual connections with layer norm before or after each sub-layer."""

from __future__ import annotations

from typing import Literal

from pydantic import Field
from torch import Tensor, nn

from deepwire.model.connections.base import Connection, ConnectionSection, DepthState, Sublayer, plain_calls
from deepwire.model.context import StackContext
from deepwire.ops.dropout import Dropout


class PreNormConfig(ConnectionSection):
    """Layer norm before each sub-layer, and one after the stack."""

    type: Literal["pre_norm"] = "pre_norm"

    def build(self, context: StackContext, kinds: tuple[Sublayer, ...]) -> Connection:
        """The connection of a whole stack."""
        return PreNorm(context, kinds)


class PreNorm(Connection):
    """x <- x + drop(F(LN(x))), with a final norm (Wang et al. 2019, equation 4)."""

    norm_style = "input"

    def __init__(self, context: StackContext, kinds: tuple[Sublayer, ...]) -> None:
        super().__init__()
        self.calls = plain_calls(context.layers, kinds)
        self.norms = nn.ModuleList(context.norm() for _ in self.calls)
        self.final_norm = context.norm()
        self.dropout = Dropout(context.dropout.sublayer)

    def start(self, x: Tensor, padding: Tensor | None = None) -> DepthState:
        """Begin with the embedding."""
        return (x,)

    def read(self, state: DepthState, index: int) -> Tensor:
        """The normalised stream."""
        read: Tensor = self.norms[index](state[0])
        return read

    def write(self, state: DepthState, index: int, read: Tensor, output: Tensor) -> DepthState:
        """Add the output to the stream."""
        return (state[0] + self.dropout(output),)

    def normalise(self, x: Tensor) -> Tensor:
        """The final norm."""
        normal: Tensor = self.final_norm(x)
        return normal


class PostNormConfig(ConnectionSection):
    """Layer norm after each residual addition."""

    type: Literal["post_norm"] = "post_norm"
    embedding_norm: bool = Field(
        False,
        description="also normalise the embedding: Neutron's default order, where each residual is "
        "taken from the normalised input and a final norm closes the stack, is exactly this",
    )

    def build(self, context: StackContext, kinds: tuple[Sublayer, ...]) -> Connection:
        """The connection of a whole stack."""
        return PostNorm(context, kinds, embedding_norm=self.embedding_norm)


class PostNorm(Connection):
    """x <- LN(x + drop(F(x))) (Vaswani et al. 2017, section 3.1; Wang et al. 2019, equation 3)."""

    norm_style = "output"

    def __init__(self, context: StackContext, kinds: tuple[Sublayer, ...], *, embedding_norm: bool) -> None:
        super().__init__()
        self.calls = plain_calls(context.layers, kinds)
        self.norms = nn.ModuleList(context.norm() for _ in self.calls)
        self.embedding_norm = context.norm() if embedding_norm else None
        self.dropout = Dropout(context.dropout.sublayer)

    def start(self, x: Tensor, padding: Tensor | None = None) -> DepthState:
        """Begin with the embedding, normalised where asked for."""
        return (x if self.embedding_norm is None else self.embedding_norm(x),)

    def read(self, state: DepthState, index: int) -> Tensor:
        """The stream as it is."""
        return state[0]

    def write(self, state: DepthState, index: int, read: Tensor, output: Tensor) -> DepthState:
        """Add the output to the stream and normalise the sum."""
        return (self.norms[index](state[0] + self.dropout(output)),)
