"""What is added to the embedding so that a position is known: sinusoids, a learned table, or nothing."""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.config.base import Section
from deepwire.model.named import by_name


class Positions(nn.Module, ABC):
    """Vectors of positions, added to the embedding."""

    @abstractmethod
    def forward(self, first: int, length: int, like: Tensor) -> Tensor | None:
        """Vectors `[length, d]` of positions first, first + 1, ... (from 0), or None; type as `like`."""


class SinusoidalConfig(Section):
    """Fixed sinusoids (Vaswani et al. 2017, section 3.5)."""

    has_rows: ClassVar[bool] = False

    type: Literal["sinusoidal"] = "sinusoidal"
    layout: Literal["interleaved", "halves"] = Field(
        "interleaved",
        description="sine and cosine in turn (the paper, Neutron), or all sines before all cosines with "
        "frequencies over half - 1 (tensor2tensor, fairseq)",
    )
    first: int = Field(0, ge=0, description="number of the first position; 2 in fairseq")

    def build(self, dim: int, max_length: int) -> Positions:
        """The vectors of one stack."""
        return Sinusoids(self, dim)


class LearnedConfig(Section):
    """A learned table."""

    has_rows: ClassVar[bool] = True

    type: Literal["learned"] = "learned"
    first: int = Field(0, ge=0, description="row of the first position; 2 in fairseq")

    def build(self, dim: int, max_length: int) -> Positions:
        """The table of one stack."""
        return LearnedPositions(dim, max_length, self.first)


class NoPositionsConfig(Section):
    """No positions: for mixers that know the order by themselves."""

    has_rows: ClassVar[bool] = False

    type: Literal["none"] = "none"

    def build(self, dim: int, max_length: int) -> Positions:
        """Nothing."""
        return NoPositions()


class Sinusoids(Positions):
    """sin and cos of position times frequency; the table grows with the longest sequence seen."""

    def __init__(self, config: SinusoidalConfig, dim: int) -> None:
        super().__init__()
        self.layout, self.first, self.dim = config.layout, config.first, dim
        self._table = torch.empty(0, dim)

    def forward(self, first: int, length: int, like: Tensor) -> Tensor | None:
        """Rows of the table, see the base class."""
        # Read once: another thread that translates with the same model may store a shorter one.
        table = self._table
        if table.size(0) < first + length or table.device != like.device:
            rows = max(256, 2 ** math.ceil(math.log2(first + length)))
            table = self._table = self._make(rows).to(like.device)
        return table[first : first + length].to(like.dtype)

    def _make(self, rows: int) -> Tensor:
        position = torch.arange(self.first, self.first + rows, dtype=torch.float64, device="cpu").unsqueeze(1)
        half = self.dim // 2
        span = half if self.layout == "interleaved" else half - 1
        exponent = torch.arange(half, dtype=torch.float64, device="cpu") / max(span, 1)
        angle = position * torch.exp(-math.log(10000.0) * exponent)
        parts = (angle.sin(), angle.cos())
        if self.layout == "interleaved":
            return torch.stack(parts, -1).flatten(1).float()
        return torch.cat(parts, 1).float()


class LearnedPositions(Positions):
    """One learned vector for each position."""

    def __init__(self, dim: int, max_length: int, first: int) -> None:
        super().__init__()
        self.first = first
        self.table = nn.Parameter(torch.empty(max_length + first, dim))

    def forward(self, first: int, length: int, like: Tensor) -> Tensor | None:
        """Rows of the table; positions beyond it use the last row, so that no text is refused."""
        last = self.table.size(0) - 1
        rows = torch.arange(self.first + first, self.first + first + length, device=self.table.device)
        return self.table[rows.clamp(max=last)]


class NoPositions(Positions):
    """Nothing is added."""

    def forward(self, first: int, length: int, like: Tensor) -> Tensor | None:
        """None."""
        return None


PositionsConfig = Annotated[
    Annotated[SinusoidalConfig | LearnedConfig | NoPositionsConfig, Field(discriminator="type")],
    by_name,
]
