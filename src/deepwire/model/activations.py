"""Activations by name."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Literal

from torch import Tensor
from torch.nn import functional

ActivationName = Literal["relu", "gelu", "glu"]
# Each with the factor by which it narrows the features. GLU: first half * sigmoid(second half).
ACTIVATIONS: Mapping[str, tuple[Callable[[Tensor], Tensor], int]] = {
    "relu": (functional.relu, 1),
    "gelu": (functional.gelu, 1),
    "glu": (functional.glu, 2),
}
