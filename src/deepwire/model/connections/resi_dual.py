"""ResiDual: a post-norm stream beside one that only adds up, which joins it at the end."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from deepwire.model.connections.connection import Connection, ConnectionSection, DepthState, Droppable
from deepwire.model.connections.residual import PostNorm, PostNormConfig
from deepwire.model.context import Context
from deepwire.model.stack_spec import NormStyle, StackSpec


class ResiDualConfig(ConnectionSection):
    """A post-norm and a pre-norm residual stream at once."""

    # Every sub-layer is an addition to both streams.
    drops: ClassVar[Droppable] = "sublayers"
    norm_style: ClassVar[NormStyle] = "output"
    scales_branches: ClassVar[bool] = True

    type: Literal["resi_dual"] = "resi_dual"
    dual_scale: float = Field(
        1.0, gt=0, le=1e6, description="q, by which all that enters the second stream is multiplied"
    )
    output_scale: float = Field(1.0, gt=0, le=1e6, description="a, the weight of the first stream at the end")
    dual_eps: float = Field(1e-7, gt=0, le=0.1, description="epsilon of the second stream's norm")

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return ResiDual(self, spec)


class ResiDual(PostNorm):
    """f = drop(F(x)), x <- LN(x + f), r <- r + q f; in the end a x + LN(r) (Xie et al. 2023).

    The state is (x, r), which begins with the embedding and q times it.
    """

    def __init__(self, config: ResiDualConfig, spec: StackSpec) -> None:
        super().__init__(PostNormConfig(), spec)
        self.dual_scale, self.output_scale = config.dual_scale, config.output_scale
        self.dual_norm = spec.norm(eps=config.dual_eps)

    def start(self, x: Tensor, context: Context) -> DepthState:
        """Both streams begin with the embedding."""
        return (x, x * self.dual_scale)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Add the output to both streams; the first one is normalised."""
        output = self.dropout(output)
        added = torch.add(state[1], output, alpha=self.dual_scale)
        return (self.norms[index](state[0] + output, context), added)

    def result(self, state: DepthState, context: Context) -> Tensor:
        """The first stream and the normalised second one together."""
        result: Tensor = torch.add(self.dual_norm(state[1], context), state[0], alpha=self.output_scale)
        return result
