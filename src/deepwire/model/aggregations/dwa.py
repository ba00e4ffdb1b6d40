"""Depth-weighted averages (DWA): after every p-th layer, a learned sum of its output and earlier ones.

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
    """Depth-weighted averages, without norms; initially the same as an ordinary stack."""

    normalises: ClassVar[bool] = False
    type: Literal["dwa"] = "dwa"
    dilation: int = Field(
        1, ge=1, description="a sum reads every so many of the outputs below; 4 in DenseFormer's 4x5"
    )
    period: int = Field(1, ge=1, description="a sum after every so many layers; 5 in DenseFormer's 4x5")

    def check(self, spec: StackSpec) -> None:
        """Requires at least one sum, of at least two outputs."""
        if self.period > spec.layers:
            raise ValueError(
                f"{spec.side}.aggregation: dwa with a period of {self.period} never comes to a sum in "
                f"{spec.layers} layers"
            )
        # The highest sum has the most outputs below it.
        if self.dilation > spec.layers // self.period * self.period:
            raise ValueError(
                f"{spec.side}.aggregation: dwa with a dilation of {self.dilation} finds nothing below to "
                f"read in {spec.layers} layers"
            )

    def build(self, spec: StackSpec) -> Aggregation:
        """Builds the sums of a whole stack."""
        return DWA(self, spec)


class DWA(Aggregation):
    """x_{i+1} = sum_j a_ij y_j over j = i, i - dilation, ... >= 0 where i mod period = 0; otherwise y_i.

    y_0 is the embedding and y_i the output of layer i before the sum (section 3 of the paper).

    Attributes:
        sources: For each layer i from 0, the ascending j that are summed after it; empty without a sum.
        mix: The weights a_i of each sum, `[len(sources[i])]`; initially 1 for y_i and 0 for the others.
    """

    def __init__(self, config: DWAConfig, spec: StackSpec) -> None:
        super().__init__()
        self.layers = spec.layers
        dilation, period = config.dilation, config.period
        self.sources = tuple(
            tuple(range(layer % dilation, layer + 1, dilation)) if layer and layer % period == 0 else ()
            for layer in range(spec.layers + 1)
        )
        # Only outputs that some sum reads are kept.
        self._stored = tuple(sorted({source for summed in self.sources for source in summed}))
        self.mix = nn.ParameterList(
            torch.tensor([0.0] * (len(summed) - 1) + [1.0]) for summed in self.sources if summed
        )
        self._period = period

    def start(self, x: Tensor, context: Context) -> tuple[History, Tensor]:
        """Stores the embedding; layer 1 reads it."""
        return self._store((), x, 0), x

    def close(self, history: History, output: Tensor, layer: int, context: Context) -> tuple[History, Tensor]:
        """Stores the output of a layer if a sum reads it; returns the sum after the layer, or its output."""
        number = layer + 1
        history = self._store(history, output, number)
        if not self.sources[number]:
            return history, output
        weights = self.mix[number // self._period - 1].to(output.dtype)
        outputs = [history[self._stored.index(source)] for source in self.sources[number]]
        return history, weighted_sum(weights.unbind(0), outputs)

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """Weights of y_0 to y_L in x_1 to x_{L+1}; without a sum, 1 for the layer below."""
        size = self.layers + 1
        values = torch.full((size, size), float("nan"))
        sums = iter(self.mix)
        for number, summed in enumerate(self.sources):
            if summed:
                values[number, list(summed)] = next(sums).detach().to(values)
            else:
                values[number, number] = 1.0
        return (of_layer_inputs("dwa", values),)

    def _store(self, history: History, output: Tensor, number: int) -> History:
        return (*history, output) if number in self._stored else history
