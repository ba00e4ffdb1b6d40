"""The top layer's output leaves the stack: the ordinary stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import Literal

from torch import Tensor

from deepwire.model.context import StackContext
from deepwire.model.fusions.fusion import Fusion, FusionSection


class TopConfig(FusionSection):
    """The ordinary stack."""

    type: Literal["top"] = "top"

    def has_norm(self, context: StackContext) -> bool:
        """None of its own."""
        return False

    def build(self, context: StackContext) -> Fusion:
        """Nothing to learn."""
        return Top(context)


class Top(Fusion):
    """The top layer, normalised where the connection does so."""

    def __init__(self, context: StackContext) -> None:
        super().__init__()
        self.keeps = frozenset({context.layers})

    def forward(
        self,
        kept: Sequence[Tensor],
        normalise: Callable[[Tensor], Tensor],
        languages: Tensor | None = None,
    ) -> tuple[Tensor, ...]:
        """One result, `[B, T, d]`."""
        return (normalise(kept[-1]),)

    def lowest(self, layers: int) -> Fusion:
        """Another layer is the top."""
        lower = copy(self)
        lower.keeps = frozenset({layers})
        return lower
