"""Findings as one HTML page that needs nothing else: no network, no scripts, no other file.

``templates/findings.html`` is the page; this module prepares what stands in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from typing import TYPE_CHECKING, Literal, TypedDict

from deepwire.analysis.report.figures import Figure
from deepwire.analysis.report.finding import Finding
from deepwire.analysis.report.plots import svg
from deepwire.analysis.report.report_tables import Table
from deepwire.analysis.report.terminal_text import origin

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

_SHORT = 20
"""Letters of a cell that stays on one line."""


class _Cell(TypedDict):
    text: str
    kind: Literal["number", "short", ""]
    """Its class in the style sheet."""


class _ShownRow(TypedDict):
    cells: list[_Cell]
    begins_group: bool


class _ShownTable(TypedDict):
    title: str
    heads: list[_Cell]
    rows: list[_ShownRow]


class _ShownFigure(TypedDict):
    picture: Markup | str
    caption: str
    table: _ShownTable


class _ShownFinding(TypedDict):
    key: str
    title: str
    measured: str
    tables: list[_ShownTable]
    figures: list[_ShownFigure]
    notes: Sequence[str]
    origin: Sequence[tuple[str, str]]


def as_html(findings: Sequence[Finding], title: str, about: str = "", *, pictures: bool = True) -> str:
    """A page with all findings, `about` below its title, the numbers of each figure in a table below it.

    Args:
        findings: What to show.
        title, about: At the top.
        pictures: Whether to draw figures; without them only their numbers are shown.

    Raises:
        UsageError: There are figures to be drawn, and matplotlib is not installed.
    """
    sections = [
        _shown_finding(finding, f"f{number}", pictures=pictures) for number, finding in enumerate(findings, 1)
    ]
    return _template().render(title=title, about=about, sections=sections)


@cache
def _template() -> Template:
    """The page. Whatever a name holds, it is escaped; a misspelt variable is an error, not an empty place."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("deepwire.analysis.report"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("findings.html")


def _shown_finding(finding: Finding, key: str, *, pictures: bool) -> _ShownFinding:
    return {
        "key": key,
        "title": finding.title,
        "measured": finding.measured,
        "tables": [_shown_table(table) for table in finding.tables],
        "figures": [
            _shown_figure(figure, key, finding.subject, pictures=pictures) for figure in finding.figures
        ],
        "notes": finding.notes,
        "origin": origin(finding.provenance),
    }


def _shown_figure(figure: Figure, key: str, subject: str, *, pictures: bool) -> _ShownFigure:
    from markupsafe import Markup, escape

    table = _shown_table(figure.table())
    if not pictures:
        return {"picture": "", "caption": figure.caption, "table": table}
    unique = figure.model_copy(update={"name": f"{key}-{figure.name}"})
    label = f'<svg role="img" aria-label="{escape(figure.title)}"'
    # Drawn here by matplotlib, which escapes the texts in it.
    picture = Markup(svg(unique, [subject]).replace("<svg", label, 1))
    return {"picture": picture, "caption": figure.caption, "table": table}


def _shown_table(table: Table) -> _ShownTable:
    numeric = [table.is_numeric(number) for number in range(len(table.columns))]
    keys = [row[0] for row in table.rows if row]
    grouped = any(key == after for key, after in pairwise(keys))
    rows: list[_ShownRow] = []
    for number, row in enumerate(table.rows):
        texts = [column.show(cell) for column, cell in zip(table.columns, row, strict=True)]
        begins_group = grouped and number > 0 and keys[number] != keys[number - 1]
        rows.append({"cells": _cells(texts, numeric), "begins_group": begins_group})
    heads = _cells([column.head for column in table.columns], numeric)
    return {"title": table.title, "heads": heads, "rows": rows}


def _cells(texts: Sequence[str], numeric: Sequence[bool]) -> list[_Cell]:
    return [
        {"text": text, "kind": "number" if flag else "short" if len(text) <= _SHORT else ""}
        for text, flag in zip(texts, numeric, strict=True)
    ]
