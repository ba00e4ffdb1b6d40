"""ATR: a recurrence whose twin gates come from adding and subtracting two products."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.model.context import Context
from deepwire.model.mixers.mixer import State
from deepwire.model.mixers.recurrent import AnyLinearMap, Cell, LinearMap, RecurrentSection
from deepwire.model.stack_spec import StackSpec

Carried = Literal["state", "product"]


class ATRConfig(RecurrentSection):
    """Addition-subtraction twin-gated recurrence (Zhang et al. 2018)."""

    type: Literal["atr"] = "atr"
    carried: Carried = Field(
        "state",
        description="what the forget gate lets through: the previous state h (the paper), or q = U h + b "
        "(product: Neutron)",
    )
    bias: bool = Field(True, description="biases of both products")

    def has_norm(self, spec: StackSpec) -> bool:
        """None."""
        return False

    def cell(self, spec: StackSpec) -> Cell:
        """One recurrence."""
        return ATRCell(spec.mixer_width, spec.dim, carried=self.carried, bias=self.bias)


class ATRCell(Cell):
    """h' = i * p + f * h with p = W x + b_p, q = U h + b_q, i = sigmoid(p + q), f = sigmoid(p - q).

    Zhang et al. 2018, "Simplifying Neural Machine Translation with Addition-Subtraction Twin-Gated Recurrent
    Networks". Neutron has f * q in the place of f * h. The state is (h,).
    """

    leaves: ClassVar[int] = 1

    def __init__(self, width: int, dim: int, *, carried: Carried = "state", bias: bool = True) -> None:
        super().__init__()
        self.dim, self.carried = dim, carried
        self.input = nn.Linear(width, dim, bias=bias)
        self.recurrent = nn.Linear(dim, dim, bias=bias)

    def linear_maps(self) -> tuple[LinearMap, LinearMap]:
        """The two maps."""
        return (
            LinearMap(self.input.weight, self.input.bias),
            LinearMap(self.recurrent.weight, self.recurrent.bias),
        )

    def forward(
        self,
        projected: Tensor,
        state: State,
        recurrent: AnyLinearMap,
        dropout_mask: Tensor | None,
        context: Context,
    ) -> State:
        """The next (h,)."""
        (output,) = state
        past = recurrent.apply(output)
        carried = output if self.carried == "state" else past
        return (
            torch.addcmul((projected + past).sigmoid() * projected, (projected - past).sigmoid(), carried),
        )
