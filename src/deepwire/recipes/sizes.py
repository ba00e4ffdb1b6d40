"""Printed numbers of parameters, compared with counted ones."""

from __future__ import annotations

from dataclasses import dataclass
from decimal import Decimal
from typing import Literal

from deepwire.recipes.notes import PublishedSize

Verdict = Literal["fits", "known", "differs"]

MILLION = Decimal(1_000_000)


@dataclass(frozen=True)
class SizeCheck:
    """A printed size next to the count of the model.

    Attributes:
        published: What the recipe says.
        counted: Parameters of its model.
    """

    published: PublishedSize
    counted: int

    @property
    def difference(self) -> Decimal:
        """Counted minus printed, in millions."""
        return self.counted / MILLION - Decimal(self.published.printed[:-1])

    @property
    def verdict(self) -> Verdict:
        """fits: rounds to the printed digits; known: does not, and the recipe says why; differs."""
        if abs(self.difference) <= self._half_a_unit:
            return "fits"
        return "known" if self.published.differs else "differs"

    @property
    def counted_as_printed(self) -> str:
        """The count in millions, with two digits more than the printed number has."""
        return f"{self.counted / MILLION:.{self._decimals + 2}f}M"

    @property
    def difference_as_printed(self) -> str:
        """The difference in millions, signed, with two digits more than the printed number has."""
        return f"{self.difference:+.{self._decimals + 2}f}M"

    @property
    def _decimals(self) -> int:
        return len(self.published.printed[:-1].partition(".")[2])

    @property
    def _half_a_unit(self) -> Decimal:
        return Decimal(10) ** -self._decimals / 2
