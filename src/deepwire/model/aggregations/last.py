"""Each layer reads the layer below: the ordinary stack."""

from __future__ import annotations

from typing import ClassVar, Literal

from torch import Tensor

from deepwire.model.aggregations.aggregation import Aggregation, AggregationSection, History
from deepwire.model.context import Context
from deepwire.model.stack_spec import StackSpec


class LastConfig(AggregationSection):
    """The ordinary stack."""

    normalises: ClassVar[bool] = False
    type: Literal["last"] = "last"

    def build(self, spec: StackSpec) -> Aggregation:
        """Nothing to learn."""
        return Last()


class Last(Aggregation):
    """x_{l+1} = y_l."""

    acts = False

    def start(self, x: Tensor, context: Context) -> tuple[History, Tensor]:
        """Layer 1 reads the embedding."""
        return (), x

    def close(self, history: History, output: Tensor, layer: int, context: Context) -> tuple[History, Tensor]:
        """The next layer reads this output."""
        return (), output
