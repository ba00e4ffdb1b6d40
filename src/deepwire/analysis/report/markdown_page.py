"""Findings as Markdown: text and tables, for documents under version control."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from deepwire.analysis.report.finding import Finding
from deepwire.analysis.report.report_tables import Table
from deepwire.analysis.report.terminal_text import origin


def as_markdown(findings: Sequence[Finding], title: str, about: str = "", *, origins: bool = True) -> str:
    """A document with all findings, `about` below its title; figures are left out.

    Args:
        findings: What it is made of.
        title: Of the document.
        about: Paragraphs, as they are.
        origins: Whether to say below each finding when and with what it was measured.
    """
    blocks = [f"# {title}", *([about] if about else [])]
    for finding in findings:
        blocks += _blocks(finding)
        if origins:
            blocks.append("; ".join(f"{name}: {value}" for name, value in origin(finding.provenance)) + ".")
    return "\n\n".join(blocks) + "\n"


def _blocks(finding: Finding) -> Iterator[str]:
    yield f"## {finding.title}"
    yield finding.measured
    for table in finding.tables:
        yield f"**{table.title}**"
        yield _table(table)
    if finding.notes:
        yield "\n".join(f"- {_cell(note)}" for note in finding.notes)


def _table(table: Table) -> str:
    """A pipe table: words flush left, numbers flush right."""
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
