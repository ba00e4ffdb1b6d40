"""The top layer's output leaves the stack: the ordinary stack."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import ClassVar, Literal

from torch import Tensor

from deepwire.model.context import Context
from deepwire.model.fusions.fusion import Fusion, FusionSection
from deepwire.model.stack_spec import StackSpec


class TopConfig(FusionSection):
    """The ordinary stack."""

    normalises: ClassVar[bool] = False
    type: Literal["top"] = "top"

    def build(self, spec: StackSpec) -> Fusion:
        """Nothing to learn."""
        return Top(spec)


class Top(Fusion):
    """The top layer, normalised where the connection does so."""

    def __init__(self, spec: StackSpec) -> None:
        super().__init__()
        self.keeps = frozenset({spec.layers})

    def forward(
        self, kept: Sequence[Tensor], normalise: Callable[[Tensor], Tensor], context: Context
    ) -> tuple[Tensor, ...]:
        """One result, `[B, T, d]`."""
        return (normalise(kept[-1]),)

    def lowest(self, layers: int) -> Fusion:
        """Another layer is the top."""
        lower = copy(self)
        lower.keeps = frozenset({layers})
        return lower
