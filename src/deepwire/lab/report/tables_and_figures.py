"""Tables and figures as descriptions: the numbers, the axes and their units, and no drawing.

`deepwire.lab.report.plots` draws them. Every figure also has its numbers as a table, for readers who
do not see it.
"""

from __future__ import annotations

import math
from typing import Annotated, Literal

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


class Axis(ReportRecord):
    """What an axis shows.

    Attributes:
        label: The quantity.
        unit: Its unit; empty for numbers without one.
        log: Whether its scale is logarithmic.
        from_zero: Whether its scale begins at zero, so that lengths can be compared.
    """

    label: str
    unit: str = ""
    log: bool = False
    from_zero: bool = False

    @property
    def text(self) -> str:
        """Label and unit, as written beside the axis."""
        return f"{self.label} [{self.unit}]" if self.unit else self.label


class Series(ReportRecord):
    """One line, or one group of bars.

    Attributes:
        name: As in the legend.
        y: Its values; None leaves a gap.
        x: Where they are; in bars, left out.
        low, high: Ends of the range drawn around each value; both or neither.
    """

    name: str
    y: tuple[Number, ...]
    x: tuple[float, ...] = ()
    low: tuple[Number, ...] = ()
    high: tuple[Number, ...] = ()

    @model_validator(mode="after")
    def _ranges_fit(self) -> Series:
        for ends in (self.low, self.high):
            if ends and (len(ends) != len(self.y) or not (self.low and self.high)):
                raise ValueError(f"series {self.name!r}: low and high need one number for each value")
        return self


class _Figure(ReportRecord):
    """What all figures have.

    Attributes:
        name: Stem of the file it is drawn into: lower-case letters, digits and hyphens.
        title: What it shows, in a few words.
        caption: How to read it; empty where that is plain.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=80)
    title: str
    caption: str = ""


def _with_unit(title: str, axis: Axis) -> str:
    """The title of a table all of whose columns have one unit."""
    return f"{title} [{axis.unit}]" if axis.unit else title


class LineChart(_Figure):
    """Curves over a common axis.

    Attributes:
        legend: What the names of the series are; empty where they say it themselves.
        ordered: Whether the series have an order of their own, such as layers: their shades then follow it.
    """

    kind: Literal["lines"] = "lines"
    x: Axis
    y: Axis
    series: tuple[Series, ...] = Field(min_length=1)
    legend: str = ""
    ordered: bool = False

    @model_validator(mode="after")
    def _fits(self) -> LineChart:
        for line in self.series:
            if len(line.x) != len(line.y):
                raise ValueError(f"figure {self.name}: {line.name!r} has {len(line.x)} x for {len(line.y)} y")
        return self

    def table(self) -> Table:
        """One row for each x, one column for each line."""
        places = sorted({x for line in self.series for x in line.x})
        values_at = [dict(zip(line.x, line.y, strict=True)) for line in self.series]
        whole = all(place.is_integer() for place in places)
        return Table(
            title=_with_unit(self.title, self.y),
            columns=(
                Column(name=self.x.label, unit=self.x.unit),
                *(Column(name=line.name) for line in self.series),
            ),
            rows=tuple(
                (int(place) if whole else place, *(values.get(place) for values in values_at))
                for place in places
            ),
        )


class BarChart(_Figure):
    """Bars over named categories; several series stand side by side."""

    kind: Literal["bars"] = "bars"
    x: Axis
    y: Axis
    categories: tuple[str, ...] = Field(min_length=1)
    series: tuple[Series, ...] = Field(min_length=1)

    @model_validator(mode="after")
    def _fits(self) -> BarChart:
        for group in self.series:
            if group.x or len(group.y) != len(self.categories):
                raise ValueError(
                    f"figure {self.name}: {group.name!r} needs one value for each category, no x"
                )
        return self

    def table(self) -> Table:
        """One row for each category, one column for each series."""
        return Table(
            title=_with_unit(self.title, self.y),
            columns=(
                Column(name=self.x.text),
                *(Column(name=group.name) for group in self.series),
            ),
            rows=tuple(
                (category, *(group.y[number] for group in self.series))
                for number, category in enumerate(self.categories)
            ),
        )


class HeatMap(_Figure):
    """A matrix in shades.

    Attributes:
        values: None where there is nothing; such fields stay blank.
        hidden: Fields that have a number, which the table shows and the drawing leaves blank; empty: none.
    """

    kind: Literal["heat_map"] = "heat_map"
    row_axis: Axis
    column_axis: Axis
    value: Axis
    rows: tuple[str, ...] = Field(min_length=1)
    columns: tuple[str, ...] = Field(min_length=1)
    values: tuple[tuple[Number, ...], ...]
    hidden: tuple[tuple[bool, ...], ...] = ()

    @model_validator(mode="after")
    def _fits(self) -> HeatMap:
        size = len(self.rows), len(self.columns)
        for matrix in (self.values, self.hidden or self.values):
            if len(matrix) != size[0] or any(len(row) != size[1] for row in matrix):
                raise ValueError(f"figure {self.name}: values are not {size[0]} x {size[1]}")
        return self

    def drawn(self) -> tuple[tuple[float | None, ...], ...]:
        """The values without the hidden ones."""
        if not self.hidden:
            return self.values
        return tuple(
            tuple(None if hide else value for value, hide in zip(*both, strict=True))
            for both in zip(self.values, self.hidden, strict=True)
        )

    def table(self) -> Table:
        """The matrix, with a column for the names of the rows."""
        digits = None if self.value.log else 3
        return Table(
            title=f"{self.title}: {self.value.text} (rows: {self.row_axis.text}; columns: "
            f"{self.column_axis.text})",
            columns=(
                Column(name=""),
                *(Column(name=name, digits=digits) for name in self.columns),
            ),
            rows=tuple((name, *row) for name, row in zip(self.rows, self.values, strict=True)),
        )


Figure = Annotated[LineChart | BarChart | HeatMap, Field(discriminator="kind")]
