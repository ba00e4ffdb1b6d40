"""MUDD: every layer reads sums of all outputs below, with weights that each position computes for itself.

Xiao et al. 2025 (MUDDFormer: Breaking Residual Bottlenecks in Transformers via Multiway Dynamic Dense
Connections).
"""

from __future__ import annotations

from typing import ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from deepwire.config.section import Removed
from deepwire.model.aggregations.aggregation import (
    Aggregation,
    AggregationSection,
    History,
)
from deepwire.model.context import Context
from deepwire.model.introspection import DepthWeights, Mixing, of_layer_inputs
from deepwire.model.layers import NoNorm
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.weighted_sum import weighted_sum


class MUDDConfig(AggregationSection):
    """Dynamic dense connections; they begin as the ordinary stack."""

    has_own_maps: ClassVar[bool] = True
    removed: ClassVar[dict[str, Removed]] = {"round_hidden": Removed((False,), "widths are not rounded")}

    type: Literal["mudd"] = "mudd"
    ways: Literal[1, 4] = Field(
        1, description="sums behind a layer: one, or one each for queries, keys, values and the stream"
    )
    last_expansion: int = Field(
        1,
        ge=1,
        le=64,
        description="how many times as wide the hidden layer behind the last layer is (released code: 4)",
    )

    @property
    def gives_ways(self) -> bool:
        """With four."""
        return self.ways == 4

    def has_norm(self, spec: StackSpec) -> bool:
        """Whether keys and values have a norm."""
        return self.gives_ways and spec.norm_style == "input" and spec.layers > 1

    def build(self, spec: StackSpec) -> Aggregation:
        """The sums of a whole stack."""
        return MUDD(self, spec)


class WeightMaker(nn.Module):
    """w = W_2 GELU(W_1 RMS(h)) + c of the newest vector h, as `[ways, n]` weights of n vectors.

    RMS has no gain. W_1 is normal with variance 1/d, W_2 begins at 0, and c at 1 for h itself and at 0 for
    older vectors, as in the authors' JAX code.

    Args:
        dim: Width d of the vectors.
        vectors: Their number n.
        ways: How many sums are wanted.
        hidden: Rows of W_1.
    """

    def __init__(self, dim: int, vectors: int, ways: int, hidden: int) -> None:
        super().__init__()
        self.input = nn.Parameter(torch.empty(hidden, dim))
        nn.init.normal_(self.input, std=dim**-0.5)
        self.output = nn.Parameter(torch.zeros(ways * vectors, hidden))
        self.static = nn.Parameter(torch.tensor([[0.0] * (vectors - 1) + [1.0]] * ways))

    def forward(self, newest: Tensor) -> tuple[tuple[Tensor, ...], ...]:
        """The weights of each way from `[B, T, d]`: n tensors `[B, T, 1]`, oldest first."""
        normalised = functional.rms_norm(newest, (newest.size(-1),), eps=1e-6).to(newest.dtype)
        hidden = functional.gelu(functional.linear(normalised, self.input))
        weights = functional.linear(hidden, self.output, self.static.flatten()).to(newest.dtype)
        ways = torch.chunk(weights, self.static.size(0), -1)
        return tuple(torch.split(way, 1, -1) for way in ways)


class MUDD(Aggregation):
    """x_{i+1} = sum_{j <= i} w_ij y_j, w_i made by position from y_i.

    y_0 is the embedding, which layer 1 reads as it is, and y_i the output of layer i. With four ways there is
    such a sum each for queries, keys, values and the stream, but one alone behind the last layer. Around
    norms on inputs, keys and values then have norms of their own above layer 1; that of the connection is
    the queries'. The history has y_0 to y_i, and behind them these three sums where there are any.

    Attributes:
        makers: What makes the weights behind layer i, from 1.
        norms: Of keys and values of each layer above the first.
    """

    def __init__(self, config: MUDDConfig, spec: StackSpec) -> None:
        super().__init__()

        def maker(layer: int) -> WeightMaker:
            last = layer == spec.layers - 1
            ways = 1 if last else config.ways
            hidden = ways * (layer + 2) * (config.last_expansion if last else 1)
            return WeightMaker(spec.dim, layer + 2, ways, hidden)

        self.makers = nn.ModuleList(maker(layer) for layer in range(spec.layers))
        self.norms = nn.ModuleList(
            nn.ModuleList(spec.norm() if config.has_norm(spec) else NoNorm() for _ in range(2))
            for _ in range(spec.layers - 1 if config.gives_ways else 0)
        )

    def start(self, x: Tensor, context: Context) -> tuple[History, Tensor]:
        """Layer 1 reads the embedding."""
        return (x,), x

    def close(self, history: History, output: Tensor, layer: int, context: Context) -> tuple[History, Tensor]:
        """Store the output of a layer; the next one reads the sum or sums."""
        history = (*history[: layer + 1], output)
        sums = [weighted_sum(weights, history) for weights in self.makers[layer](output)]
        return (*history, *sums[:-1]), sums[-1]

    def inputs(self, history: History, layer: int, context: Context) -> tuple[Tensor, ...]:
        """The inputs of the mixer above layer `layer`: query, key and value; `()` for the stream alone."""
        if layer + 1 == len(self.makers) or not len(self.norms):
            return ()
        query, key, value = history[-3:]
        of_key, of_value = cast("nn.ModuleList", self.norms[layer])
        return query, of_key(key, context), of_value(value, context)

    def mixing(self, output: Tensor, layer: int) -> Mixing:
        """Mixtures at the output of a layer: queries, keys, values and stream, or the stream alone."""
        return Mixing(torch.stack([torch.stack(way) for way in self.makers[layer](output)]).squeeze(-1))

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """The static part c: what x_2 to x_{L+1} take of y_0 to y_L before the position has its say."""
        size = len(self.makers) + 1
        values = torch.full((size - 1, size), float("nan"))
        for row, maker in enumerate(cast("list[WeightMaker]", list(self.makers))):
            values[row, : row + 2] = maker.static.detach()[-1].to(values)  # that of the stream
        return (of_layer_inputs("mudd", values, title="Static weights"),)
