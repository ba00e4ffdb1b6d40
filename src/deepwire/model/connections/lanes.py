"""Base of connections with several residual lanes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import ClassVar, Literal, NamedTuple, cast

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.model.connections.connection import ConnectionSection, DepthState, Droppable
from deepwire.model.connections.residual import PreNorm, PreNormConfig
from deepwire.model.context import Context
from deepwire.model.introspection import DepthWeights, Mixing, by_position, of_sublayers
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.weighted_sum import mix_positions


class LanesSection(ConnectionSection):
    """Settings of every connection with several lanes."""

    # CompleteP has no rates for vectors that meet the text by a product, as those of its weights do.
    # Every sub-layer adds to the lanes.
    drops: ClassVar[Droppable] = "sublayers"
    scales_branches: ClassVar[bool] = False

    lane: Literal["sub_layer", "layer"] = Field(
        "sub_layer",
        description="which lane a sub-layer begins with: its number modulo the lanes, or that of its layer",
    )

    def first_lane(self, spec: StackSpec, lanes: int) -> list[int]:
        """The lane that each call begins with."""
        calls = self.calls(spec)
        numbers = (call.layer if self.lane == "layer" else index for index, call in enumerate(calls))
        return [number % lanes for number in numbers]

    @abstractmethod
    def weights_of(self, spec: StackSpec, lane: int) -> LaneWeights:
        """The weights of a sub-layer that begins with this lane."""


class StaticWeights(NamedTuple):
    """The weights of a sub-layer that do not depend on the text, or that hold where the text says nothing.

    Attributes:
        read: `[n]`; mix `[n, n]`, of which entry (i, j) says what of lane i goes to lane j; write `[n]`.
    """

    read: Tensor
    mix: Tensor
    write: Tensor


class LaneWeights(nn.Module, ABC):
    """How one sub-layer reads, mixes and writes n lanes, each `[B, T, d]`.

    Weights of the text are `[B, T]`, others have no axes.
    """

    @abstractmethod
    def reading(self, lanes: Sequence[Tensor]) -> Sequence[Tensor]:
        """The weight of each lane in what the sub-layer reads."""

    @abstractmethod
    def writing(self, lanes: Sequence[Tensor]) -> tuple[Sequence[Sequence[Tensor]], Sequence[Tensor]]:
        """By new lane, the weights of all old ones; and that of the sub-layer's output."""

    @abstractmethod
    def static(self) -> StaticWeights:
        """Without the text, for analyses."""


class Lanes(PreNorm):
    """u = sum_i a_i H_i, then H_j <- sum_i C_ij H_i + b_j drop(F(LN(u))) for every lane j.

    All lanes begin with the embedding; their sum leaves the stack, and a final norm follows. The state are
    the lanes. To an aggregation their mean is the stream, and what it adds to it is added to every lane: so
    lanes that are all alike are one stream, with any aggregation.
    """

    def __init__(self, config: LanesSection, spec: StackSpec, lanes: int) -> None:
        super().__init__(PreNormConfig(), spec)
        self.lanes = lanes
        self.weights = nn.ModuleList(config.weights_of(spec, lane) for lane in config.first_lane(spec, lanes))

    def start(self, x: Tensor, context: Context) -> DepthState:
        """Every lane is the embedding."""
        return (x,) * self.lanes

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """The weighted sum of the lanes, normalised."""
        mixed = mix_positions(self._of(index).reading(state), state)
        return self.norms[index](mixed, context)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Every lane becomes a mix of all, and takes its part of the output."""
        mix, write = self._of(index).writing(state)
        parts = (*state, self.dropout(output))
        return tuple(mix_positions((*old, new), parts) for old, new in zip(mix, write, strict=True))

    def stream(self, state: DepthState) -> Tensor:
        """The mean of the lanes."""
        return sum(state[1:], state[0]) / len(state)

    def with_stream(self, state: DepthState, x: Tensor) -> DepthState:
        """Every lane takes what the mean has gained."""
        gained = x - self.stream(state)
        return tuple(lane + gained for lane in state)

    def result(self, state: DepthState, context: Context) -> Tensor:
        """The sum of the lanes."""
        return sum(state[1:], state[0])

    def mixing(self, state: DepthState, index: int) -> Mixing:
        """The lanes are the parts."""
        if index == len(self.calls):
            return Mixing(by_position([self.end_weights(state)]))
        weights = self._of(index)
        columns, write = weights.writing(state)
        rows = [[*column, weight] for column, weight in zip(columns, write, strict=True)]
        return Mixing(by_position([weights.reading(state)]), by_position(rows))

    def end_weights(self, state: DepthState) -> Sequence[Tensor]:
        """The weight of each lane in the result."""
        return self.static_end().unbind(0)

    @torch.no_grad()
    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """Weights of the sub-layers below through all lanes: exact where weights are static."""
        count, lanes = len(self.calls), self.lanes
        like = next(self.parameters())
        carried = like.new_zeros(lanes, count + 1)  # what each lane has of the embedding and of every output
        carried[:, 0] = 1
        rows = like.new_full((count + 1, count + 1), float("nan"))
        for index in range(count):
            static = self._of(index).static()
            rows[index, : index + 1] = (static.read @ carried)[: index + 1]
            carried = static.mix.T @ carried
            carried[:, index + 1] = static.write
        rows[count] = self.static_end() @ carried
        title = "Outputs of sub-layers in what each sub-layer reads, through all lanes"
        mixes = [self._of(index).static().mix.T for index in range(count)]
        return (of_sublayers(rows, key="lanes", title=title), _composite_norms(mixes))

    def _of(self, index: int) -> LaneWeights:
        return cast("LaneWeights", self.weights[index])  # a ModuleList forgets the type

    def static_end(self) -> Tensor:
        """The weights `[n]` of the lanes in the result, where the text says nothing."""
        return next(self.parameters()).new_ones(self.lanes)


def _composite_norms(mixes: Sequence[Tensor]) -> DepthWeights:
    """How much the K mixes C_k `[n, n]` of lanes can enlarge, from each of them to the last.

    Of the product of C_k to C_K: the largest sum of sizes over the lanes of a row, which bounds what goes up,
    and of a column, which bounds gradients (as DeepSeek 2025, mHC, measure it). Both are 1 where every mix is
    doubly stochastic. Row j says what of the old lanes the new lane j has.
    """
    product = torch.eye(mixes[0].size(0), dtype=mixes[0].dtype, device=mixes[0].device)
    norms = []
    for mix in reversed(mixes):
        product = product @ mix
        sizes = product.abs()
        norms.append(torch.stack([sizes.sum(axis).amax() for axis in (1, 0)]))
    return DepthWeights(
        key="composite-mix",
        title="Norms of the mix of lanes from a sub-layer to the end of the stack",
        values=torch.stack(norms[::-1], 1),
        rows=("largest row: what goes up", "largest column: gradients"),
        columns=tuple(str(number) for number in range(1, len(mixes) + 1)),
        row_axis="norm",
        column_axis="from sub-layer",
        value="norm",
    )
