"""Findings written to files and read again; the HTML page needs no network, scripts or other files.

``templates/findings.html`` is the page; this module prepares what stands in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Literal, TypedDict

from deepwire.errors import DataError
from deepwire.io.atomic import disk_errors, write_text
from deepwire.io.output import write_output
from deepwire.io.regular_files import read_regular
from deepwire.lab.report.finding import Finding, from_json, to_json
from deepwire.lab.report.plots import png, svg
from deepwire.lab.report.tables_and_figures import Figure, Table
from deepwire.lab.report.text_pages import origin

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
        loader=PackageLoader("deepwire.lab.report"),
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


def save_json(findings: Sequence[Finding], path: Path) -> None:
    """Write findings for `read_findings`, in one step.

    Raises:
        ResourceError: The file cannot be written.
    """
    write_text(path, to_json(findings, indent=1) + "\n")


def read_findings(path: Path) -> tuple[Finding, ...]:
    """Read what `save_json` wrote, or what a command printed with ``--json``.

    Raises:
        DataError: The file cannot be read, or holds something else.
    """
    try:
        text = read_regular(path)
    except OSError as error:
        raise DataError(f"{path}: cannot read: {error.strerror or error}") from error
    return from_json(text, str(path))


def save_html(
    findings: Sequence[Finding],
    path: Path,
    title: str = "deepwire analysis",
    about: str = "",
    *,
    pictures: bool = True,
) -> None:
    """Write findings as one page that needs no other file, in one step; the arguments are those of `as_html`.

    Raises:
        ResourceError: The file cannot be written.
        UsageError: There are figures to be drawn, and matplotlib is not installed; or there is no such
            folder.
    """
    write_output(path, as_html(findings, title, about, pictures=pictures))


def save_plots(findings: Sequence[Finding], folder: Path) -> list[Path]:
    """Draw every figure as PNG and SVG into a folder, which is made where it is missing.

    A file is named after analysis and figure; several findings of one analysis are numbered.

    Returns:
        The files that were written.

    Raises:
        ResourceError: A file cannot be written.
        UsageError: matplotlib is not installed.
    """
    with disk_errors(folder):
        folder.mkdir(parents=True, exist_ok=True)
    written = []
    for number, finding in enumerate(findings, 1):
        again = sum(other.analysis == finding.analysis for other in findings) > 1
        stem = f"{finding.analysis}-{number}" if again else finding.analysis
        for figure in finding.figures:
            vector, pixels = (folder / f"{stem}-{figure.name}.{form}" for form in ("svg", "png"))
            below = (figure.caption, finding.subject)
            write_output(vector, svg(figure, below) + "\n")
            with disk_errors(pixels):
                pixels.write_bytes(png(figure, below))
            written += [vector, pixels]
    return written
