"""The table of many directions as one HTML page: no scripts, no other files, no network."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from html import escape

from deepwire.evaluation.multilingual import text
from deepwire.evaluation.multilingual.bars import bars
from deepwire.evaluation.multilingual.direction_table import DirectionBlock, DirectionsReport

_STYLE = """
body { font: 16px/1.5 system-ui, "DejaVu Sans", sans-serif; color: #1a1a1a; background: #fff;
  max-width: 70rem; margin: 0 auto; padding: 1.5rem 1rem 4rem; }
h1 { font-size: 1.5rem; margin: 0 0 .5rem; overflow-wrap: anywhere; }
h2 { font-size: 1.25rem; margin: 2.5rem 0 .5rem; padding-top: .75rem; border-top: 2px solid #1a1a1a; }
h3 { font-size: 1rem; margin: 1.5rem 0 .4rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .9rem; font-variant-numeric: tabular-nums; }
th, td { padding: .15rem .6rem; border-bottom: 1px solid #ddd; text-align: right; white-space: nowrap; }
thead th { border-bottom: 1.5px solid #1a1a1a; white-space: normal; vertical-align: bottom; }
th:first-child, td:first-child { text-align: left; }
figure { margin: 1rem 0; }
svg { display: block; max-width: 100%; height: auto; }
figcaption { font-size: .95rem; margin-top: .4rem; }
code { overflow-wrap: anywhere; }
@media print { table, figure { break-inside: avoid; } }
"""
_POLICY = "default-src 'none'; style-src 'unsafe-inline'"


def as_html(report: DirectionsReport) -> str:
    """The page: averages, bars and directions of each block, then signatures and notes."""
    title = escape(text.heading(report))
    return "\n".join(
        [
            "<!DOCTYPE html>",
            '<html lang="en"><head><meta charset="utf-8">',
            '<meta name="viewport" content="width=device-width, initial-scale=1">',
            f'<meta http-equiv="Content-Security-Policy" content="{_POLICY}">',
            f"<title>{title}</title><style>{_STYLE}</style></head><body>",
            f"<h1>{title}</h1>",
            *(part for block in report.blocks for part in _block(report, block)),
            "<h2>How it was scored</h2>",
            _list(f"<code>{escape(line)}</code>" for line in text.signature_lines(report)),
            *_notes(report),
            "</body></html>",
            "",
        ]
    )


def _block(report: DirectionsReport, block: DirectionBlock) -> Iterator[str]:
    yield f"<section><h2>{escape(block.title)}</h2>"
    yield _table("Averages", [text.average_head(report), *text.average_rows(report, block)])
    if report.baseline:
        yield f"<p>{escape(text.verdict(block.averages[0], tested=report.paired is not None))}.</p>"
    if not block.rows:
        yield "</section>"
        return
    yield f"<figure>{bars(report, block)}<figcaption>{escape(_caption(report, block))}</figcaption></figure>"
    yield _table("Directions", [text.row_head(report, block), *text.rows_of(report, block)])
    yield "</section>"


def _caption(report: DirectionsReport, block: DirectionBlock) -> str:
    order = ", the largest training text first" if any(row.about.training_pairs for row in block.rows) else ""
    if not report.baseline:
        return f"{report.metrics[0]} of each direction{order}."
    star = "; * marks a difference with p < 0.05" if report.paired else ""
    return f"{report.metrics[0]} of each direction{order}: filled the system, hatched the baseline{star}."


def _notes(report: DirectionsReport) -> Iterator[str]:
    lines = list(report.notes)
    if report.paired is not None:
        lines.insert(0, text.which_test(report))
    if lines:
        yield _list(map(escape, lines))


def _list(items: Iterable[str]) -> str:
    return f"<ul>{''.join(f'<li>{item}</li>' for item in items)}</ul>"


def _table(title: str, rows: Sequence[Sequence[str]]) -> str:
    head = "".join(f'<th scope="col">{escape(cell)}</th>' for cell in rows[0])
    body = ""
    for first, *rest in rows[1:]:
        cells = "".join(f"<td>{escape(cell)}</td>" for cell in rest)
        body += f'<tr><th scope="row">{escape(first)}</th>{cells}</tr>'
    return (
        f'<h3>{escape(title)}</h3><div class="wide"><table><thead><tr>{head}</tr></thead>'
        f"<tbody>{body}</tbody></table></div>"
    )
