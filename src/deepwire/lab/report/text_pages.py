"""Findings as plain text for the terminal, and as Markdown for documents under version control."""

from __future__ import annotations

import textwrap
from collections.abc import Iterator, Sequence

from deepwire.evaluation.text_table import aligned
from deepwire.lab.report.finding import Finding, Provenance
from deepwire.lab.report.tables_and_figures import Table

_WIDTH = 100
_LONGEST = 60


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
        table = figure.table()
        if figure.title in known:
            continue
        shown = (
            table_text(table) if len(table.rows) <= _LONGEST else f"{table.title}\n({len(table.rows)} points)"
        )
        yield shown if not figure.caption else f"{shown}\n{textwrap.fill(figure.caption, _WIDTH)}"
    if finding.notes:
        yield "\n".join(
            textwrap.fill(f"Note: {note}", _WIDTH, break_long_words=False) for note in finding.notes
        )
    yield "\n".join(f"{name}: {value}" for name, value in origin(finding.provenance))


def table_text(table: Table) -> str:
    """A table under its title: words flush left, numbers flush right."""
    head = [column.head for column in table.columns]
    body = [
        [column.show(cell) for column, cell in zip(table.columns, row, strict=True)] for row in table.rows
    ]
    right = [table.is_numeric(number) for number in range(len(head))]
    widths = [max(map(len, column)) for column in zip(head, *body, strict=True)]
    return "\n".join([table.title, *aligned([head, ["-" * width for width in widths], *body], right)])


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


def as_markdown(
    findings: Sequence[Finding], title: str, about: str = "", *, origins: bool = True, level: int = 2
) -> str:
    """A document with all findings, `about` below its title; figures are left out.

    Args:
        findings: What it is made of.
        title: Of the document.
        about: Paragraphs, as they are.
        origins: Whether to say below each finding when and with what it was measured.
        level: Of the heading of each finding.
    """
    blocks = [f"# {title}", *([about] if about else [])]
    for finding in findings:
        blocks += _markdown_blocks(finding, level)
        if origins:
            blocks.append("; ".join(f"{name}: {value}" for name, value in origin(finding.provenance)) + ".")
    return "\n\n".join(blocks) + "\n"


def _markdown_blocks(finding: Finding, level: int) -> Iterator[str]:
    yield f"{'#' * level} {finding.title}"
    yield finding.measured
    for table in finding.tables:
        yield f"**{table.title}**"
        yield table_markdown(table)
    if finding.notes:
        yield "\n".join(f"- {_cell(note)}" for note in finding.notes)


def table_markdown(table: Table) -> str:
    """A pipe table without its title: words flush left, numbers flush right."""
    right = [table.is_numeric(number) for number in range(len(table.columns))]
    lines = [
        [column.head for column in table.columns],
        ["---:" if flush else "---" for flush in right],
        *(
            [_shown(column.show(cell)) for column, cell in zip(table.columns, row, strict=True)]
            for row in table.rows
        ),
    ]
    return "\n".join(f"| {' | '.join(line)} |" for line in lines)


def _shown(text: str) -> str:
    return _cell(text) or " "


def _cell(text: str) -> str:
    """Text in which nothing is taken for markup, on one line."""
    for mark in ("\\", "|", "*", "_", "<", "`"):
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())
