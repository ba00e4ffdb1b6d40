"""Findings as text, Markdown, JSON, drawings, and one HTML page that needs no network or other file."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from deepwire.errors import DataError
from deepwire.evaluation.comparison import aligned
from deepwire.io.atomic import disk_errors, write_text
from deepwire.io.output import write_output
from deepwire.io.regular_files import read_regular
from deepwire.lab.finding import Figure, Finding, Provenance, Table, from_json, to_json
from deepwire.lab.plots import render, svg

if TYPE_CHECKING:
    from jinja2 import Template
    from markupsafe import Markup

_WIDTH = 100
_LONGEST = 60
FORMS = ("svg", "png", "pdf")


def as_text(findings: Sequence[Finding]) -> str:
    """All findings, one below the other."""
    return "\n\n\n".join("\n\n".join(_blocks(finding)) for finding in findings) + "\n"


def _blocks(finding: Finding) -> Iterator[str]:
    yield f"{finding.title}\n{'=' * min(len(finding.title), _WIDTH)}"
    yield textwrap.fill(finding.measured, _WIDTH)
    for table in finding.tables:
        yield table_text(table)
    known = {table.title for table in finding.tables}
    for figure in finding.figures:
        if figure.title in known:
            continue
        table = figure.table()
        whole = len(table.rows) <= _LONGEST
        shown = table_text(table) if whole else f"{table.title}\n({len(table.rows)} points)"
        yield shown if not figure.caption else f"{shown}\n{textwrap.fill(figure.caption, _WIDTH)}"
    notes = [textwrap.fill(f"Note: {note}", _WIDTH, break_long_words=False) for note in finding.notes]
    if notes:
        yield "\n".join(notes)
    yield "\n".join(f"{name}: {value}" for name, value in origin(finding.provenance))


def table_text(table: Table) -> str:
    """A table under its title: words flush left, numbers flush right."""
    head = [column.head for column in table.columns]
    body = table.shown()
    right = [table.is_numeric(number) for number in range(len(head))]
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    return "\n".join([table.title, *aligned([head, ["-" * width for width in widths], *body], right)])


def table_markdown(table: Table) -> str:
    """A pipe table without its title: words flush left, numbers flush right."""
    right = [table.is_numeric(number) for number in range(len(table.columns))]
    lines = [
        [column.head for column in table.columns],
        ["---:" if flush else "---" for flush in right],
        *([_cell(text) or " " for text in row] for row in table.shown()),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _cell(text: str) -> str:
    """Text in which nothing is taken for markup, on one line."""
    for mark in ("\\", "|", "*", "_", "<", "`"):
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


def origin(provenance: Provenance) -> list[tuple[str, str]]:
    """Names and values of where the numbers come from, for people."""
    rows = []
    for model in provenance.models:
        update = "" if model.update is None else f", update {model.update}"
        rows.append(("model", f"{model.name}{update} (files {model.digest})"))
    rows += [("text", text) for text in provenance.data]
    if provenance.settings:
        rows.append(("settings", ", ".join(f"{name} {value}" for name, value in provenance.settings.items())))
    versions = f"deepwire {provenance.deepwire}, torch {provenance.torch}, Python {provenance.python}"
    rows += [("measured with", f"{versions}, {provenance.machine}"), ("date", provenance.date)]
    return [*rows, ("command", provenance.command)] if provenance.command else rows


def as_html(findings: Sequence[Finding], title: str, about: str = "", *, pictures: bool = True) -> str:
    """A page with all findings, `about` below its title, the numbers of each figure in a table below it.

    Raises:
        UsageError: There are figures to be drawn (`pictures`), and matplotlib is not installed.
    """
    draw = _picture if pictures else lambda *_: ""
    return _template().render(title=title, about=about, findings=findings, picture=draw, origin=origin)


@cache
def _template() -> Template:
    """The page. Whatever a name holds, it is escaped; a misspelt variable is an error, not an empty place."""
    from jinja2 import Environment, PackageLoader, StrictUndefined

    environment = Environment(
        loader=PackageLoader("deepwire.lab"),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    return environment.get_template("findings.html")


def _picture(figure: Figure, key: str, subject: str) -> Markup:
    from markupsafe import Markup, escape

    unique = figure.model_copy(update={"name": f"{key}-{figure.name}"})
    label = f'<svg role="img" aria-label="{escape(figure.title)}"'
    # Drawn here by matplotlib, which escapes the texts in it.
    return Markup(svg(unique, [subject]).replace("<svg", label, 1))


def save_json(findings: Sequence[Finding], path: Path) -> None:
    """Write findings for `read_findings`, in one step."""
    write_text(path, to_json(findings, indent=1) + "\n")


def read_findings(path: Path) -> tuple[Finding, ...]:
    """Read findings that `save_json` wrote, or a command with ``--json``.

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
    """Write `as_html` of findings, in one step."""
    write_output(path, as_html(findings, title, about, pictures=pictures))


def save_plots(findings: Sequence[Finding], folder: Path) -> list[Path]:
    """Draw every figure as PNG and SVG, and without title and caption as PDF, into a folder.

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
            for form in FORMS:
                path = folder / f"{stem}-{figure.name}.{form}"
                with disk_errors(path):
                    path.write_bytes(render(figure, form, (figure.caption, finding.subject)))
                written.append(path)
    return written
