"""A finding: numbers as tables and figures, and where they come from.

Figures are descriptions, drawn by `deepwire.lab.report`; each also gives its numbers as a table. JSON holds
all of it.
"""

from __future__ import annotations

import math
import platform
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from importlib.metadata import version
from typing import Annotated, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from deepwire import __version__
from deepwire.command_line import again

_LARGE, _ENORMOUS = 1e3, 1e12
_WRITTEN = re.compile(r"(?P<name>.*?)(?: \[(?P<unit>[^]]*)\])?(?: \.(?P<digits>\d+))?")


class ReportRecord(BaseModel):
    """Plain values with a fixed form, which become JSON."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def _finite(value: object) -> object:
    return None if isinstance(value, float) and not math.isfinite(value) else value


Number = Annotated[float | None, BeforeValidator(_finite)]
"""A finite number; None where there is none (JSON has neither NaN nor infinity, so they become None)."""

Cell = Annotated[str | int | float | None, BeforeValidator(_finite)]
"""The content of a field of a table; None stays empty."""


class Column(ReportRecord):
    """The head of a column; it may be written ``name [unit] .digits``: ``speed [sentences/s] .1``.

    Attributes:
        name: What its cells are.
        unit: Unit of its numbers; empty for words and pure numbers.
        digits: Decimals that text and HTML show; None shows four significant digits, or whole numbers from
            1,000 on. JSON has them all.
    """

    name: str
    unit: str = ""
    digits: int | None = Field(default=None, ge=0, le=12)

    @model_validator(mode="before")
    @classmethod
    def _parse(cls, value: object) -> object:
        if not isinstance(value, str):
            return value
        parts = _WRITTEN.fullmatch(value)
        assert parts is not None
        return {key: part for key, part in parts.groupdict().items() if part is not None}

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

    def is_numeric(self, column: int) -> bool:
        """Whether a column holds numbers, so that it is set flush right."""
        return all(row[column] is None or isinstance(row[column], int | float) for row in self.rows)

    def shown(self) -> list[list[str]]:
        """The cells as text."""
        return [
            [column.show(cell) for column, cell in zip(self.columns, row, strict=True)] for row in self.rows
        ]


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


class _Figure(ReportRecord):
    """Base of figures.

    Attributes:
        name: Stem of the file it is drawn into: lower-case letters, digits and hyphens.
        title: What it shows, in a few words.
        caption: How to read it; empty where that is plain.
    """

    name: str = Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=80)
    title: str
    caption: str = ""


class LineChart(_Figure):
    """Curves over a common axis.

    Attributes:
        x, y: What the axes are, with their units: ``loss [nats/token]``.
        x_log, y_log: Whether they are logarithmic.
        legend: What the names of the series are; empty where they say it themselves.
        ordered: Whether the series have an order of their own, such as layers: their colours then follow it.
    """

    kind: Literal["lines"] = "lines"
    x: str
    y: str
    x_log: bool = False
    y_log: bool = False
    series: tuple[Series, ...] = Field(min_length=1)
    legend: str = ""
    ordered: bool = False

    def table(self) -> Table:
        """One row for each x, one column for each line."""
        places = sorted({x for line in self.series for x in line.x})
        values_at = [dict(zip(line.x, line.y, strict=True)) for line in self.series]
        whole = all(place.is_integer() for place in places)
        return Table(
            title=f"{self.title}: {self.y}",
            columns=[Column(name=self.x), *(Column(name=each.name) for each in self.series)],
            rows=[
                (int(place) if whole else place, *(values.get(place) for values in values_at))
                for place in places
            ],
        )


class BarChart(_Figure):
    """Bars over named categories; several series stand side by side."""

    kind: Literal["bars"] = "bars"
    x: str
    y: str
    categories: tuple[str, ...] = Field(min_length=1)
    series: tuple[Series, ...] = Field(min_length=1)

    def table(self) -> Table:
        """One row for each category, one column for each series."""
        values = zip(*(group.y for group in self.series), strict=True)
        return Table(
            title=f"{self.title}: {self.y}",
            columns=[Column(name=self.x), *(Column(name=each.name) for each in self.series)],
            rows=[(category, *row) for category, row in zip(self.categories, values, strict=True)],
        )


class HeatMap(_Figure):
    """A matrix in shades of `value`; fields of `values` that are None stay blank."""

    kind: Literal["heat_map"] = "heat_map"
    row_axis: str
    column_axis: str
    value: str
    rows: tuple[str, ...] = Field(min_length=1)
    columns: tuple[str, ...] = Field(min_length=1)
    values: tuple[tuple[Number, ...], ...]

    def table(self) -> Table:
        """The matrix, with a column for the names of the rows."""
        axes = f"rows: {self.row_axis}; columns: {self.column_axis}"
        return Table(
            title=f"{self.title}: {self.value} ({axes})",
            columns=[Column(name=""), *(Column(name=name, digits=3) for name in self.columns)],
            rows=[(name, *row) for name, row in zip(self.rows, self.values, strict=True)],
        )


Figure = LineChart | BarChart | HeatMap


class ModelSource(ReportRecord):
    """A model that numbers come from.

    Attributes:
        name: As the user named it.
        folder: The model directory that the name stood for.
        digest: Fingerprint of all its files.
        update: Updates it was trained for, where the model says so.
    """

    name: str
    folder: str
    digest: str
    update: int | None = None


class Provenance(ReportRecord):
    """Everything needed to get the same numbers again.

    Attributes:
        models: The models looked at.
        data: The texts, each with its size.
        settings: What else decides the numbers: beam, seed, precision.
        command: As typed; empty where it was called from Python.
        date: UTC, ISO 8601.
        deepwire, torch, python, machine: Versions and processor.
    """

    models: tuple[ModelSource, ...] = ()
    data: tuple[str, ...] = ()
    settings: dict[str, str] = Field(default_factory=dict)
    command: str = ""
    date: str
    deepwire: str
    torch: str
    python: str
    machine: str


class Finding(ReportRecord):
    """The result of one analysis of one model, or of several beside each other.

    Attributes:
        format: Version of this form; it changes when a reader of the old form would misread the new one.
        analysis: Name of the analysis: what follows ``deepwire analyze``.
        title: What was looked at, in one line.
        measured: What the numbers are and how they were measured, in one paragraph.
        tables, figures: The numbers. What a figure shows needs no table of its own.
        notes: What a reader should know before drawing conclusions.
        provenance: Where the numbers come from.
    """

    format: Literal[1] = 1
    analysis: str
    title: str
    measured: str
    tables: tuple[Table, ...] = ()
    figures: tuple[Figure, ...] = ()
    notes: tuple[str, ...] = ()
    provenance: Provenance


class _Findings(ReportRecord):
    format: Literal[1] = 1
    findings: tuple[Finding, ...]


def provenance(
    models: Iterable[ModelSource] = (), data: Iterable[str] = (), settings: Mapping[str, str] | None = None
) -> Provenance:
    """Where numbers come from that are measured now, by this process."""
    return Provenance(
        models=models,
        data=data,
        settings=settings or {},
        command=again(),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        deepwire=__version__,
        torch=version("torch"),
        python=platform.python_version(),
        machine=f"{platform.system()} {platform.machine()}",
    )


def to_json(findings: Sequence[Finding], *, indent: int | None = None) -> str:
    """Findings as JSON."""
    return _Findings(findings=tuple(findings)).model_dump_json(indent=indent)
