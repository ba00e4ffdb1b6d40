"""What all parts of a finding have in common, and the numbers they hold."""

from __future__ import annotations

import math
from typing import Annotated

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

_LARGE, _ENORMOUS = 1e3, 1e12


class ReportRecord(BaseModel):
    """Plain values with a fixed form: read again from JSON, a record equals the one that was written."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(_finite)]
"""A finite number; None where there is none (JSON has neither NaN nor infinity, so they become None)."""

Cell = Annotated[str | int | float | None, BeforeValidator(_finite)]
"""What stands in a field of a table; None stays empty."""


class Column(ReportRecord):
    """The head of a column.

    Attributes:
        name: What its cells are.
        unit: Of its numbers; empty for words and pure numbers.
        digits: Decimals that text and HTML show; None shows four significant digits, or whole numbers from
            1,000 on. JSON has them all.
    """

    name: str
    unit: str = ""
    digits: int | None = Field(default=None, ge=0, le=12)

    @property
    def head(self) -> str:
        """Name and unit: ``speed [sentences/s]``."""
        return f"{self.name} [{self.unit}]" if self.unit else self.name

    def show(self, cell: str | int | float | None) -> str:
        """A cell as text, thousands set apart; no number that is rounded to zero has a minus sign."""
        if cell is None:
            return ""
        if isinstance(cell, str):
            return cell
        if isinstance(cell, int):
            return f"{cell:,}"
        if self.digits is not None:
            return f"{round(cell, self.digits) + 0.0:,.{self.digits}f}"
        return f"{cell:,.0f}" if _LARGE <= abs(cell) < _ENORMOUS else f"{cell:.4g}"


class Table(ReportRecord):
    """Named columns and their rows."""

    title: str
    columns: tuple[Column, ...]
    rows: tuple[tuple[Cell, ...], ...]

    @model_validator(mode="after")
    def _rows_fit(self) -> Table:
        for number, row in enumerate(self.rows, 1):
            if len(row) != len(self.columns):
                raise ValueError(
                    f"table {self.title!r}: row {number} has {len(row)} cells for {len(self.columns)} columns"
                )
        return self

    def is_numeric(self, column: int) -> bool:
        """Whether a column holds numbers, so that it is set flush right."""
        cells = [row[column] for row in self.rows]
        return all(cell is None or isinstance(cell, int | float) for cell in cells)
