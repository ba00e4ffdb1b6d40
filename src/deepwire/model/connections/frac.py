"""Frac-Connections: Hyper-Connections among parts of the stream, which is not made wider.

Zhu et al. 2025 (Frac-Connections: Fractional Extension of Hyper-Connections).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.model.connections.connection import Connection, ConnectionSection, DepthState, Droppable
from deepwire.model.connections.hyper import DYNAMIC_SCALE, dynamic_columns
from deepwire.model.connections.residual import PreNorm, PreNormConfig
from deepwire.model.context import Context
from deepwire.model.introspection import Mixing, by_position
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.weighted_sum import mix_positions


class FracConfig(ConnectionSection):
    """Frac-Connections, static or dynamic."""

    # CompleteP has no rates for vectors that meet the text by a product, as those of its weights do.
    # Every sub-layer adds to the parts.
    drops: ClassVar[Droppable] = "sublayers"
    scales_branches: ClassVar[bool] = False

    type: Literal["frac"] = "frac"
    fractions: int = Field(2, ge=2, le=64, description="parts of the stream; they divide its width")
    dynamic: bool = Field(True, description="weights depend on the text")

    def check(self, spec: StackSpec) -> None:
        """Parts of one width."""
        if spec.dim % self.fractions:
            raise ValueError(
                f"{spec.side}.connection: fractions of frac do not divide the width {spec.dim} into "
                f"{self.fractions} parts"
            )

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return Frac(self, spec)


class Frac(PreNorm):
    """u_j = sum_i Y_ij H_i, f = drop(F(LN([u_1; ..; u_m]))), then H_j <- sum_i A_ij H_i + b_j f_j.

    H_j and f_j are the m parts of stream and output. It begins as pre-norm: Y and A as identities, b as ones.
    The state are the parts, `[B, T, d / m]`.
    """

    def __init__(self, config: FracConfig, spec: StackSpec) -> None:
        super().__init__(PreNormConfig(), spec)
        self.fractions = config.fractions
        width = spec.dim // config.fractions
        self.weights = nn.ModuleList(
            FracWeights(width, config.fractions, dynamic=config.dynamic) for _ in self.calls
        )

    def start(self, x: Tensor, context: Context) -> DepthState:
        """The parts of the embedding."""
        return x.chunk(self.fractions, -1)

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """The mixed parts side by side, normalised."""
        columns = self._of(index).reading(state)
        mixed = torch.cat([mix_positions(column, state) for column in columns], -1)
        return self.norms[index](mixed, context)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Every part becomes a mix of all, and takes its part of the output."""
        *columns, write = self._of(index).writing(state)
        outputs = self.dropout(output).chunk(self.fractions, -1)
        return tuple(
            mix_positions((*column, weight), (*state, part))
            for column, weight, part in zip(columns, write, outputs, strict=True)
        )

    def stream(self, state: DepthState) -> Tensor:
        """The parts side by side."""
        return torch.cat(state, -1)

    def with_stream(self, state: DepthState, x: Tensor) -> DepthState:
        """The parts of another stream."""
        return x.chunk(self.fractions, -1)

    def mixing(self, state: DepthState, index: int) -> Mixing:
        """The parts of the stream are the parts."""
        count = self.fractions
        if index == len(self.calls):
            return Mixing(torch.eye(count, device=state[0].device).view(count, count, 1, 1))
        weights = self._of(index)
        *columns, write = weights.writing(state)
        zero = torch.zeros_like(write[0])
        rows = [
            [*column, *(write[part] if part == other else zero for other in range(count))]
            for part, column in enumerate(columns)
        ]
        return Mixing(by_position(weights.reading(state)), by_position(rows))

    def _of(self, index: int) -> FracWeights:
        return cast("FracWeights", self.weights[index])  # a ModuleList forgets the type


class FracWeights(nn.Module):
    """Y, A and b of one sub-layer: parameters, and where dynamic, s tanh(LN(H_i) W) beside each.

    Attributes:
        read: Y `[m, m]`; mix: A and b, `[m, m + 1]`.
        read_map: `[d / m, m]`; mix_map `[d / m, m + 1]`, 0 at first. Row i comes from part i.
        scale: s of Y, of A and of b.
    """

    def __init__(self, width: int, fractions: int, *, dynamic: bool) -> None:
        super().__init__()
        self.dynamic, self.fractions = dynamic, fractions
        self.read = nn.Parameter(torch.eye(fractions))
        self.mix = nn.Parameter(torch.cat((torch.eye(fractions), torch.ones(fractions, 1)), -1))
        if dynamic:
            self.read_map = nn.Parameter(torch.zeros(width, fractions))
            self.mix_map = nn.Parameter(torch.zeros(width, fractions + 1))
            self.scale = nn.Parameter(torch.full((3,), DYNAMIC_SCALE))

    def reading(self, parts: Sequence[Tensor]) -> list[Sequence[Tensor]]:
        """The columns of Y."""
        if not self.dynamic:
            return [column.unbind(0) for column in self.read.unbind(1)]
        return dynamic_columns(parts, self.read, self.read_map, self.scale[0])

    def writing(self, parts: Sequence[Tensor]) -> list[Sequence[Tensor]]:
        """The columns of A, and b."""
        if not self.dynamic:
            return [column.unbind(0) for column in self.mix.unbind(1)]
        scale = torch.cat((self.scale[1:2].expand(self.fractions), self.scale[2:]))
        return dynamic_columns(parts, self.mix, self.mix_map, scale)
