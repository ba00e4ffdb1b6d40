"""Manifold-constrained Hyper-Connections: lanes whose mix is doubly stochastic, so that none can explode.

mHC: DeepSeek 2025 (arXiv 2512.24880), as in the reference functions of its kernels. mHC-lite: arXiv
2601.05732, whose mix is exactly doubly stochastic and needs no iterations.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Sequence
from itertools import permutations
from math import factorial
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from deepwire.config.section import Removed
from deepwire.model.connections.connection import Connection, DepthState
from deepwire.model.connections.lanes import Lanes, LanesSection, LaneWeights, StaticWeights
from deepwire.model.context import Context
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.precision import full_precision
from deepwire.ops.weighted_sum import mix_positions

DYNAMIC_SCALE, ELSEWHERE = 0.01, -8.0
"""Where the factors of what depends on the text begin, and the logits of all mixes but the identity."""
EPS = 1e-6
"""Epsilon of Sinkhorn's divisions, of the weights that read lanes, and of the RMS norm of all lanes."""


class MHCLiteConfig(LanesSection):
    """Lanes mixed by an average of permutations."""

    type: Literal["mhc_lite"] = "mhc_lite"
    lanes: int = Field(2, ge=1, le=4, description="lanes as wide as the model; n! permutations of them")

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return Lanes(self, spec, self.lanes)

    def weights_of(self, spec: StackSpec, lane: int) -> LaneWeights:
        """The weights of a sub-layer that begins with this lane."""
        return LiteWeights(spec.dim, self.lanes, lane)


class MHCConfig(LanesSection):
    """Lanes mixed by a matrix that Sinkhorn's iterations make doubly stochastic."""

    removed: ClassVar[dict[str, Removed]] = dict.fromkeys(
        ("sinkhorn_eps", "read_eps", "norm_eps"), Removed((EPS,), f"it is always {EPS:g}")
    )
    type: Literal["mhc"] = "mhc"
    lanes: int = Field(2, ge=1, le=16, description="lanes as wide as the model")
    rounds: int = Field(20, ge=1, le=1000, description="Sinkhorn's iterations")
    end: Literal["sum", "head"] = Field(
        "sum", description="what leaves the stack: the sum of the lanes, or one weighted by the text"
    )

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return MHC(self, spec, self.lanes)

    def weights_of(self, spec: StackSpec, lane: int) -> LaneWeights:
        """The weights of a sub-layer that begins with this lane."""
        return SinkhornWeights(spec.dim, self.lanes, lane, self)


class ManifoldWeights(LaneWeights):
    """Weights of one sub-layer, of all lanes together: h = RMS(vec H), m = W h, in float32.

    a = s(s_1 m_read + c) + eps, b = 2 s(s_2 m_write + c), and C of s_3 m_mix + c by `mix`.

    Attributes:
        projection: W `[2 n + p, n d]`: rows of read, of write and of the mix; zero at first.
        base: c `[2 n + p]`: of read and write +1 at the lane that the sub-layer begins with and -1
            elsewhere; of the mix 0 for the identity and -8 elsewhere.
        scale: s_1 to s_3, `[3]`.
        gain: Of the RMS norm, `[n d]`; None: it has none.
    """

    def __init__(self, dim: int, lanes: int, lane: int, mix: Tensor, eps: float, norm_eps: float) -> None:
        super().__init__()
        self.dim, self.lanes, self.eps, self.norm_eps = dim, lanes, eps, norm_eps
        numbers = 2 * lanes + len(mix)
        self.projection = nn.Parameter(torch.zeros(numbers, lanes * dim))
        single = torch.full((lanes,), -1.0)
        single[lane] = 1.0
        self.base = nn.Parameter(torch.cat((single, single, mix)))
        self.scale = nn.Parameter(torch.full((3,), DYNAMIC_SCALE))
        self.gain: nn.Parameter | None = None

    def reading(self, lanes: Sequence[Tensor]) -> Sequence[Tensor]:
        """a."""
        n = self.lanes
        with full_precision(lanes[0].device.type):
            logits = self.scale[0] * self._project(lanes, slice(0, n)) + self.base[:n]
            return (torch.sigmoid(logits) + self.eps).unbind(-1)

    def writing(self, lanes: Sequence[Tensor]) -> tuple[Sequence[Sequence[Tensor]], Sequence[Tensor]]:
        """The columns of C, and b."""
        n = self.lanes
        with full_precision(lanes[0].device.type):
            projected = self._project(lanes, slice(n, None))
            write = 2 * torch.sigmoid(self.scale[1] * projected[..., :n] + self.base[n : 2 * n])
            mix = self.mix(self.scale[2] * projected[..., n:] + self.base[2 * n :])
            return [column.unbind(-1) for column in mix.unbind(-1)], write.unbind(-1)

    @abstractmethod
    def mix(self, logits: Tensor) -> Tensor:
        """C `[..., n, n]` of logits `[..., p]`."""

    def static(self) -> StaticWeights:
        """Weights of a text whose projection is zero."""
        n = self.lanes
        read, write, mix = self.base[:n], self.base[n : 2 * n], self.base[2 * n :]
        return StaticWeights(torch.sigmoid(read) + self.eps, self.mix(mix), 2 * torch.sigmoid(write))

    def _project(self, lanes: Sequence[Tensor], rows: slice) -> Tensor:
        return project_lanes(lanes, self.projection[rows], self.gain, self.norm_eps)


def project_lanes(lanes: Sequence[Tensor], maps: Tensor, gain: Tensor | None, eps: float) -> Tensor:
    """W RMS(vec H) `[B, T, r]` of lanes `[B, T, d]` and W `[r, n d]`, without a copy of the lanes."""
    maps = maps.float() if gain is None else maps.float() * gain.float()
    width = lanes[0].size(-1)
    squares = torch.stack(
        [
            torch.linalg.vector_norm(
                lane, dim=-1, dtype=torch.promote_types(lane.dtype, torch.float32)
            ).square()
            for lane in lanes
        ]
    )
    scale = torch.rsqrt(squares.sum(0) / (len(lanes) * width) + eps)
    parts = [
        functional.linear(lane.float(), part)
        for lane, part in zip(lanes, maps.chunk(len(lanes), -1), strict=True)
    ]
    return sum(parts[1:], parts[0]) * scale.unsqueeze(-1)


class LiteWeights(ManifoldWeights):
    """C = sum_r softmax(logits)_r P_r over the permutations of the lanes, in lexicographic order."""

    def __init__(self, dim: int, lanes: int, lane: int) -> None:
        mix = torch.full((factorial(lanes),), ELSEWHERE)
        mix[0] = 0.0  # the identity
        # The authors' norm has no epsilon to speak of; this one keeps zeros from being divided by zero.
        super().__init__(dim, lanes, lane, mix, eps=0.0, norm_eps=1e-24)
        self.gain = nn.Parameter(torch.ones(lanes * dim))
        # A buffer: a tensor made from numbers of the host cannot be captured in a CUDA graph.
        identity = torch.eye(lanes)
        orders = [identity[list(order)].flatten() for order in permutations(range(lanes))]
        self.permutations: Tensor
        self.register_buffer("permutations", torch.stack(orders), persistent=False)

    def mix(self, logits: Tensor) -> Tensor:
        """C of the logits of n! permutations."""
        shares = logits.softmax(-1)
        mix: Tensor = shares @ self.permutations.to(shares.dtype)
        return mix.view(*mix.shape[:-1], self.lanes, self.lanes)


class SinkhornWeights(ManifoldWeights):
    """C = Sinkhorn(logits): softmax over j, + eps; then columns and rows are divided by their sums in turn.

    The columns are the last, so they sum to 1 but for eps; the rows nearly.
    """

    def __init__(self, dim: int, lanes: int, lane: int, config: MHCConfig) -> None:
        mix = torch.full((lanes, lanes), ELSEWHERE).fill_diagonal_(0.0)
        super().__init__(dim, lanes, lane, mix.flatten(), eps=EPS, norm_eps=EPS)
        self.rounds = config.rounds

    def mix(self, logits: Tensor) -> Tensor:
        """C of n^2 logits, row by row."""
        mix = logits.reshape(*logits.shape[:-1], self.lanes, self.lanes).softmax(-1) + EPS
        mix = mix / (mix.sum(-2, keepdim=True) + EPS)
        for _ in range(self.rounds - 1):
            mix = mix / (mix.sum(-1, keepdim=True) + EPS)
            mix = mix / (mix.sum(-2, keepdim=True) + EPS)
        return mix


class MHC(Lanes):
    """Lanes with the weights of `SinkhornWeights`.

    With `end: head` the result is sum_i w_i H_i, w = s(s_1 m + c) + eps from a projection of its own.
    """

    def __init__(self, config: MHCConfig, spec: StackSpec, lanes: int) -> None:
        super().__init__(config, spec, lanes)
        self.head = LaneHead(spec.dim, lanes) if config.end == "head" else None

    def result(self, state: DepthState, context: Context) -> Tensor:
        """The sum of the lanes, or the head's."""
        if self.head is None:
            return super().result(state, context)
        return mix_positions(self.head(state), state)

    def end_weights(self, state: DepthState) -> Sequence[Tensor]:
        """The weight of each lane in the result."""
        return super().end_weights(state) if self.head is None else self.head(state)

    def static_end(self) -> Tensor:
        """The weights of the lanes in the result."""
        return super().static_end() if self.head is None else self.head.static()


class LaneHead(nn.Module):
    """The weights of the lanes in the result of a stack: s(s_1 W RMS(vec H) + c) + eps, in float32."""

    def __init__(self, dim: int, lanes: int) -> None:
        super().__init__()
        self.projection = nn.Parameter(torch.zeros(lanes, lanes * dim))
        self.base = nn.Parameter(torch.zeros(lanes))
        self.scale = nn.Parameter(torch.full((1,), DYNAMIC_SCALE))

    def forward(self, lanes: Sequence[Tensor]) -> Sequence[Tensor]:
        """One weight `[B, T]` for each lane."""
        with full_precision(lanes[0].device.type):
            projected = project_lanes(lanes, self.projection, None, EPS)
            return (torch.sigmoid(self.scale * projected + self.base) + EPS).unbind(-1)

    def static(self) -> Tensor:
        """Weights of a text whose projection is zero, `[n]`."""
        return torch.sigmoid(self.base) + EPS
