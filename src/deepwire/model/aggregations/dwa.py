"""DWA, depth-weighted averages: after every p-th layer, a learned sum of that layer and of some below it.

Pagliardini et al. 2024 (DenseFormer: Enhancing Information Flow in Transformers via Depth Weighted
Averaging).
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.model.aggregations.aggregation import Aggregation, AggregationSection, History
from deepwire.model.context import Context
from deepwire.model.introspection import DepthWeights, of_layer_inputs
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.weighted_sum import weighted_sum


class DWAConfig(AggregationSection):
    """Depth-weighted averages, without norms; they begin as the ordinary stack."""

    normalises: ClassVar[bool] = False
    type: Literal["dwa"] = "dwa"
    dilation: int = Field(
        1, ge=1, description="only every so many outputs below are read; DenseFormer's 4x5 has 4"
    )
    period: int = Field(1, ge=1, description="a sum after every so many layers; DenseFormer's 4x5 has 5")

    def check(self, spec: StackSpec) -> None:
        """At least one sum, of at least two outputs."""
        if self.period > spec.layers:
            raise ValueError(
                f"{spec.side}.aggregation: dwa with a period of {self.period} never comes to a sum in "
                f"{spec.layers} layers"
            )
        # The highest sum has the most to choose from.
        if self.dilation > spec.layers // self.period * self.period:
            raise ValueError(
                f"{spec.side}.aggregation: dwa with a dilation of {self.dilation} finds nothing below to "
                f"read in {spec.layers} layers"
            )

    def build(self, spec: StackSpec) -> Aggregation:
        """The sums of a whole stack."""
        return DWA(self, spec)


class DWA(Aggregation):
    """x_{i+1} = sum_j a_ij y_j over j = i, i - dilation, ... >= 0 where i mod period = 0; otherwise y_i.

    y_0 is the embedding and y_i the output of layer i before it is summed (the paper's section 3).

    Attributes:
        sources: The numbers j that are summed behind each layer i from 0, rising; empty where nothing is.
        mix: The weights a_i, `[len(sources[i])]`, one parameter a sum; they begin at 1 for y_i and 0 below.
    """

    def __init__(self, config: DWAConfig, spec: StackSpec) -> None:
        super().__init__()
        self.layers = spec.layers
        dilation, period = config.dilation, config.period
        self.sources = tuple(
            tuple(range(layer % dilation, layer + 1, dilation)) if layer and layer % period == 0 else ()
            for layer in range(spec.layers + 1)
        )
        # What no later sum reads is not kept.
        self._stored = tuple(sorted({source for row in self.sources for source in row}))
        self.mix = nn.ParameterList(
            torch.tensor([0.0] * (len(row) - 1) + [1.0]) for row in self.sources if row
        )
        self._period = period

    def start(self, x: Tensor, context: Context) -> tuple[History, Tensor]:
        """Layer 1 reads the embedding."""
        return self._store((), x, 0), x

    def close(self, history: History, output: Tensor, layer: int, context: Context) -> tuple[History, Tensor]:
        """Store the output of a layer where a sum reads it; the next layer reads its sum, if it has one."""
        number = layer + 1
        history = self._store(history, output, number)
        row = self.sources[number]
        if not row:
            return history, output
        weights = self.mix[number // self._period - 1].to(output.dtype)
        summed = [history[self._stored.index(source)] for source in row]
        return history, weighted_sum(weights.unbind(0), summed)

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """Weights of y_0 to y_L in x_1 to x_{L+1}; 1 for the layer below where nothing is summed."""
        size = self.layers + 1
        values = torch.full((size, size), float("nan"))
        sums = iter(self.mix)
        for number, row in enumerate(self.sources):
            values[number, list(row or (number,))] = next(sums).detach().to(values) if row else 1.0
        return (of_layer_inputs("dwa", values),)

    def _store(self, history: History, output: Tensor, number: int) -> History:
        return (*history, output) if number in self._stored else history
