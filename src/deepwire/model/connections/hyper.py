"""Hyper-Connections: several residual lanes, read, mixed and written with learned weights.

Zhu et al. 2025 (Hyper-Connections).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from deepwire.model.connections.connection import Connection
from deepwire.model.connections.lanes import Lanes, LanesSection, LaneWeights, StaticWeights
from deepwire.model.stack_spec import StackSpec

LANE_EPS = 1e-5
DYNAMIC_SCALE = 0.01
"""Where the factors of the part of the weights that depends on the text begin."""


class HyperConfig(LanesSection):
    """Hyper-Connections, static or dynamic."""

    type: Literal["hyper"] = "hyper"
    lanes: int = Field(2, ge=1, le=16, description="lanes as wide as the model")
    dynamic: bool = Field(True, description="weights depend on the text")

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return Lanes(self, spec, self.lanes)

    def weights_of(self, spec: StackSpec, lane: int) -> LaneWeights:
        """The weights of a sub-layer that begins with this lane."""
        return HyperWeights(spec.dim, self.lanes, lane, dynamic=self.dynamic)


class HyperWeights(LaneWeights):
    """a, C and b of one sub-layer: parameters, and where dynamic, s tanh(LN(H_i) W) beside each.

    Zhu et al. 2025, Eq. 1 to 14. They begin as pre-norm: every lane is the residual stream, and each
    sub-layer reads one of them.

    Attributes:
        read: a `[n]`, 1 at lane k; mix C `[n, n]`, the identity at first; write b `[n]`, all 1 at first.
        read_map: `[d]`; mix_map `[d, n]`; write_map `[d]`, all 0 at first. The numbers at lane i (row i of
            C) come from that lane, whose norm has no gain.
        width_scale: s of read and mix; depth_scale: s of write.
    """

    def __init__(self, dim: int, lanes: int, lane: int, *, dynamic: bool) -> None:
        super().__init__()
        self.dynamic = dynamic
        self.read = nn.Parameter(torch.eye(lanes)[lane].clone())
        self.mix = nn.Parameter(torch.eye(lanes))
        self.write = nn.Parameter(torch.ones(lanes))
        if dynamic:
            self.read_map = nn.Parameter(torch.zeros(dim))
            self.mix_map = nn.Parameter(torch.zeros(dim, lanes))
            self.write_map = nn.Parameter(torch.zeros(dim))
            self.width_scale = nn.Parameter(torch.tensor(DYNAMIC_SCALE))
            self.depth_scale = nn.Parameter(torch.tensor(DYNAMIC_SCALE))

    def reading(self, lanes: Sequence[Tensor]) -> Sequence[Tensor]:
        """a."""
        if not self.dynamic:
            return self.read.unbind(0)
        maps = self.read_map.unsqueeze(-1)
        (column,) = dynamic_columns(lanes, self.read.unsqueeze(-1), maps, self.width_scale)
        return column

    def writing(self, lanes: Sequence[Tensor]) -> tuple[Sequence[Sequence[Tensor]], Sequence[Tensor]]:
        """The columns of C, and b."""
        if not self.dynamic:
            return [column.unbind(0) for column in self.mix.unbind(1)], self.write.unbind(0)
        # One product for both, as columns side by side.
        base = torch.cat((self.mix, self.write.unsqueeze(-1)), -1)
        maps = torch.cat((self.mix_map, self.write_map.unsqueeze(-1)), -1)
        scale = torch.cat((self.width_scale.expand(len(lanes)), self.depth_scale.unsqueeze(-1)))
        *columns, write = dynamic_columns(lanes, base, maps, scale)
        return columns, write

    def static(self) -> StaticWeights:
        """The parameters that do not meet the text."""
        return StaticWeights(self.read, self.mix, self.write)


def dynamic_columns(
    lanes: Sequence[Tensor], base: Tensor, maps: Tensor, scale: Tensor
) -> list[Sequence[Tensor]]:
    """By column j, the weight base_ij + s_j tanh(LN(H_i) W)_j of every lane i, `[B, T]` each.

    Args:
        lanes: H_i, n of them, `[B, T, d]`.
        base: `[n, k]`.
        maps: W, `[d, k]`.
        scale: s, `[]` or `[k]`.
    """
    rows = [
        (
            weights + scale * torch.tanh(functional.layer_norm(lane, lane.shape[-1:], eps=LANE_EPS) @ maps)
        ).unbind(-1)
        for weights, lane in zip(base, lanes, strict=True)
    ]
    return list(zip(*rows, strict=True))
