"""Dropout (Srivastava et al. 2014)."""

from __future__ import annotations

from torch import Tensor, nn
from torch.nn import functional


def dropout(x: Tensor, probability: float, *, training: bool) -> Tensor:
    """Zero each number of `x` with the given probability and scale the rest by 1 / (1 - probability)."""
    if not training or probability == 0:
        return x
    return functional.dropout(x, probability, training=True)


class Dropout(nn.Module):
    """`dropout` as a module; takes the place of `torch.nn.Dropout`."""

    def __init__(self, probability: float) -> None:
        super().__init__()
        if not 0 <= probability < 1:
            raise ValueError(f"dropout must be at least 0 and below 1, not {probability}")
        self.probability = probability

    def forward(self, x: Tensor) -> Tensor:
        """Drop from `x` of any shape when training; return it unchanged otherwise."""
        return dropout(x, self.probability, training=self.training)

    def extra_repr(self) -> str:
        """Show the probability when printed."""
        return str(self.probability)
