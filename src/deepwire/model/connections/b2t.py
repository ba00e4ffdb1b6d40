"""Bottom-to-top: post-norm with a path from a layer's input to its last norm."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from deepwire.model.connections.connection import Connection, ConnectionSection, DepthState, Droppable
from deepwire.model.connections.residual import PostNorm, PostNormConfig
from deepwire.model.context import Context
from deepwire.model.stack_spec import NormStyle, StackSpec


class B2TConfig(ConnectionSection):
    """Post-norm with a path around all norms of a layer but the last."""

    # Whole layers: the last norm of a layer adds what the layer began with.
    drops: ClassVar[Droppable] = "layers"
    norm_style: ClassVar[NormStyle] = "output"
    initialization: ClassVar[str | None] = "b2t"
    scales_branches: ClassVar[bool] = True

    type: Literal["b2t"] = "b2t"

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return B2T(PostNormConfig(), spec)


class B2T(PostNorm):
    """z <- LN(z + drop(F(z))), but LN(z + drop(F(z)) + x) at the end of a layer whose input is x.

    Takase et al. 2023, B2T Connection: Serving Stability and Performance in Deep Transformers.
    Between layers the state is the stream, within a layer also its input. The path goes around all norms of
    a layer but the last, so a layer of one sub-layer has none and is that of post-norm.
    """

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Add the output to the stream, at the end of a layer also its input, and normalise the sum."""
        added = state[0] + self.dropout(output)
        if not self.calls[index].closes:
            return (self.norms[index](added, context), state[-1])
        if len(state) > 1:
            added = added + state[1]
        return (self.norms[index](added, context),)
