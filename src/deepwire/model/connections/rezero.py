"""ReZero: what a sub-layer adds is scaled by a learned number that begins at zero; no norms."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.model.connections.connection import Connection, ConnectionSection, DepthState, Droppable
from deepwire.model.context import Context
from deepwire.model.introspection import DepthWeights, layer_names, single
from deepwire.model.stack_spec import NormStyle, StackSpec


class ReZeroConfig(ConnectionSection):
    """Residual connections scaled by learned numbers, without norms."""

    drops: ClassVar[Droppable] = "sublayers"
    norm_style: ClassVar[NormStyle] = "none"
    scales_branches: ClassVar[bool] = True

    type: Literal["rezero"] = "rezero"
    share: Literal["layer", "none"] = Field("layer", description="one number per layer, or per sub-layer")
    initial: float = Field(0.0, description="the number before training")

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return ReZero(self, spec)


class ReZero(Connection):
    """x <- x + alpha_l drop(F(x)) (Bachlechner et al. 2020, equation 1), alpha_l shared within layer l."""

    def __init__(self, config: ReZeroConfig, spec: StackSpec) -> None:
        super().__init__(config.calls(spec))
        self.shared_by = len(spec.sublayers) if config.share == "layer" else 1
        self.alpha = nn.Parameter(torch.full((len(self.calls) // self.shared_by,), config.initial))
        self.dropout = spec.branch()

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """The stream as it is."""
        return state[0]

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Add the scaled output to the stream."""
        return (state[0] + self.alpha[index // self.shared_by] * self.dropout(output),)

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """The numbers alpha, for `deepwire analyze weights`."""
        axis = "layer" if self.shared_by > 1 else "sub-layer"
        return (single("alpha", "Scale of what is added", self.alpha, layer_names(len(self.alpha)), axis),)
