"""Findings as one HTML page that needs nothing else: no network, no scripts, no other file."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from html import escape
from itertools import pairwise

from deepwire.analysis.report.figures import Figure
from deepwire.analysis.report.finding import Finding
from deepwire.analysis.report.plots import svg
from deepwire.analysis.report.report_tables import Table
from deepwire.analysis.report.terminal_text import origin

_POLICY = "default-src 'none'; style-src 'unsafe-inline'; img-src data:"

_STYLE = """
:root { color-scheme: light; }
body { font: 16px/1.5 system-ui, "Segoe UI", "DejaVu Sans", sans-serif; color: #1a1a1a; background: #fff;
  max-width: 76rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.6rem; margin: 0 0 .25rem; }
h2 { font-size: 1.3rem; margin: 3rem 0 .5rem; padding-top: .75rem; border-top: 2px solid #1a1a1a; }
h3 { font-size: 1.05rem; margin: 2rem 0 .5rem; }
nav li { margin: .15rem 0; }
p { max-width: 46rem; }
.wide { overflow-x: auto; margin: .25rem 0 1rem; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; margin: .25rem 0; }
caption { text-align: left; font-weight: 600; padding-bottom: .25rem; width: max-content; max-width: 46rem; }
th, td { padding: .15rem .6rem; border-bottom: 1px solid #ddd; text-align: left; vertical-align: top; }
thead th { border-bottom: 1.5px solid #1a1a1a; white-space: nowrap; }
.number { text-align: right; }
.next th, .next td { border-top: 2px solid #777; }
figure { margin: 1.5rem 0; }
figure svg { display: block; max-width: 100%; height: auto; }
figcaption { font-size: .95rem; max-width: 46rem; margin-top: .4rem; }
details { margin: .5rem 0; }
summary { cursor: pointer; color: #0a4a8a; }
.origin { font-size: .85rem; color: #444; }
.origin th { font-weight: 600; white-space: nowrap; }
.origin td { overflow-wrap: anywhere; }
@media print { h2 { break-before: page; } figure, table { break-inside: avoid; } nav { display: none; }
  .wide { overflow: visible; } table { font-size: .7rem; } }
"""


def as_html(findings: Sequence[Finding], title: str, about: str = "") -> str:
    """A page with all findings, `about` below its title, the numbers of each figure in a table below it.

    Raises:
        UsageError: There are figures, and matplotlib is not installed.
    """
    parts = [
        "<!DOCTYPE html>",
        '<html lang="en">',
        "<head>",
        '<meta charset="utf-8">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        # Even if a name from a run file got into the page as markup, it could load and run nothing.
        f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
        f"<title>{escape(title)}</title>",
        f"<style>{_STYLE}</style>",
        "</head>",
        "<body>",
        f"<h1>{escape(title)}</h1>",
        *([f"<p>{escape(about)}</p>"] if about else []),
        *_contents(findings),
        "<main>",
    ]
    alone = [finding.title for finding in findings] == [title]
    for number, finding in enumerate(findings, 1):
        parts += _section(finding, f"f{number}", headed=not alone)
    return "\n".join([*parts, "</main>", "</body>", "</html>"]) + "\n"


def _contents(findings: Sequence[Finding]) -> Iterator[str]:
    if len(findings) > 1:
        yield '<nav aria-label="Contents"><ol>'
        for number, finding in enumerate(findings, 1):
            yield f'<li><a href="#f{number}">{escape(finding.title)}</a></li>'
        yield "</ol></nav>"


def _section(finding: Finding, key: str, *, headed: bool) -> Iterator[str]:
    yield f'<section aria-label="{escape(finding.title)}">'
    if headed:
        yield f'<h2 id="{key}">{escape(finding.title)}</h2>'
    yield f"<p>{escape(finding.measured)}</p>"
    for table in finding.tables:
        yield _table(table)
    for figure in finding.figures:
        yield from _figure(figure, key, finding.subject)
    if finding.notes:
        yield "<h3>Notes</h3>"
        yield f"<ul>{''.join(f'<li>{escape(note)}</li>' for note in finding.notes)}</ul>"
    rows = (
        f'<tr><th scope="row">{escape(name)}</th><td>{escape(value)}</td></tr>'
        for name, value in origin(finding.provenance)
    )
    yield "<details><summary>Where the numbers come from</summary>"
    yield f'<table class="origin"><tbody>{"".join(rows)}</tbody></table></details>'
    yield "</section>"


def _figure(figure: Figure, key: str, subject: str) -> Iterator[str]:
    unique = figure.model_copy(update={"name": f"{key}-{figure.name}"})
    picture = svg(unique, [subject]).replace(
        "<svg", f'<svg role="img" aria-label="{escape(figure.title)}"', 1
    )
    caption = f"<figcaption>{escape(figure.caption)}</figcaption>" if figure.caption else ""
    yield f"<figure>{picture}{caption}"
    yield f"<details><summary>The numbers</summary>{_table(figure.table())}</details></figure>"


def _table(table: Table) -> str:
    numeric = [table.is_numeric(number) for number in range(len(table.columns))]
    kinds = [' class="number"' if flag else "" for flag in numeric]
    heads = "".join(
        f'<th scope="col"{kind}>{escape(column.head)}</th>'
        for column, kind in zip(table.columns, kinds, strict=True)
    )
    rows = []
    keys = [row[0] for row in table.rows if row]
    grouped = any(key == after for key, after in pairwise(keys))
    for number, row in enumerate(table.rows):
        cells = [column.show(cell) for column, cell in zip(table.columns, row, strict=True)]
        first = f'<th scope="row"{kinds[0]}>{escape(cells[0])}</th>' if cells else ""
        rest = "".join(
            f"<td{kind}>{escape(cell)}</td>" for cell, kind in zip(cells[1:], kinds[1:], strict=True)
        )
        begins = grouped and number > 0 and keys[number] != keys[number - 1]
        rows.append(f"<tr{' class=next' if begins else ''}>{first}{rest}</tr>")
    return (
        f'<div class="wide"><table><caption>{escape(table.title)}</caption>'
        f"<thead><tr>{heads}</tr></thead><tbody>{''.join(rows)}</tbody></table></div>"
    )
