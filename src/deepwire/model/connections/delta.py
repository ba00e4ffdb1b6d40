"""Deep delta learning: a sub-layer names a direction, and the stream is rewritten along it.

Zhang et al. 2026 (Deep Delta Learning), with one value for each position.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.model.connections.connection import Connection, ConnectionSection, DepthState, Droppable
from deepwire.model.context import Context
from deepwire.model.layers import RMSNorm
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.dropout import Dropout

# Of the length of the direction, and of the norms, as in the authors' code.
LENGTH_EPS, NORM_EPS = 1e-10, 1e-5


class DeltaConfig(ConnectionSection):
    """The delta rule over depth in its scalar form, with RMS norms before sub-layers and after the stack."""

    # Whole layers: what a sub-layer gives cannot be made larger for those that are left out.
    drops: ClassVar[Droppable] = "layers"
    # RMS norms, which are the same for all target languages.
    normalises: ClassVar[bool] = False
    scales_branches: ClassVar[bool] = False  # only the direction of what a sub-layer gives counts

    type: Literal["delta"] = "delta"
    final_norm: bool = Field(True, description="one more norm after the stack")

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return Delta(self, spec)


class Delta(Connection):
    """x <- x + b k (v - k . x): along the direction k, x becomes v as far as b says (scalar form).

    With n = RMS(x): k is drop(F(n)) at length 1, b = 2 s(w_b . n + c_b), v = 4 s(w_v . x + c_v). b = 0 keeps
    x, b = 1 writes v in the place of what lies along k, and b = 2 reflects. All w and c begin at 0, so that
    b = 1 and v = 2.

    Attributes:
        weights: w_b and w_v of each of the K calls, `[K, 2, d]`; biases: c_b and c_v, `[K, 2]`.
    """

    def __init__(self, config: DeltaConfig, spec: StackSpec) -> None:
        super().__init__(config.calls(spec))
        self.norms = nn.ModuleList(RMSNorm(spec.dim, NORM_EPS) for _ in self.calls)
        self.final_norm = RMSNorm(spec.dim, NORM_EPS) if config.final_norm else None
        self.weights = nn.ParameterList(torch.zeros(2, spec.dim) for _ in self.calls)
        self.biases = nn.ParameterList(torch.zeros(2) for _ in self.calls)
        self.dropout = Dropout(spec.dropout.sublayer)

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """The normalised stream."""
        return self.norms[index](state[0], context)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Rewrite the stream along the output; in float32, as its numbers are differences of large ones."""
        x, direction = state[0].float(), self.dropout(output).float()
        direction = direction * (direction.square().sum(-1, keepdim=True) + LENGTH_EPS).rsqrt()
        (of_strength, of_value), (strength_bias, value_bias) = self.weights[index], self.biases[index]
        strength = 2 * torch.sigmoid((read.float() * of_strength).sum(-1, keepdim=True) + strength_bias)
        value = 4 * torch.sigmoid((x * of_value).sum(-1, keepdim=True) + value_bias)
        along = (direction * x).sum(-1, keepdim=True)
        return (torch.addcmul(x, strength * (value - along), direction).to(state[0].dtype),)
