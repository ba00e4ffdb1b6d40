"""A `CheckReport` as lines for a person."""

from __future__ import annotations

from typing import Literal, NamedTuple

from deepwire.data.filtering.filter_report import CheckReport
from deepwire.data.filtering.filters import REASONS
from deepwire.data.text.wording import counted

_CONTROL = dict.fromkeys((*range(0x20), *range(0x7F, 0xA0), *range(0x202A, 0x202F)), "\ufffd")


class TextLine(NamedTuple):
    """A line and how it may be emphasised."""

    style: Literal["title", "plain", "warning", "quiet"]
    text: str


def report_lines(role: str, report: CheckReport) -> list[TextLine]:
    """The report of `role` (`train`, `valid`, `test`): totals, reasons and lines, warnings, samples."""
    share = report.kept / max(report.pairs, 1)
    lines = [
        TextLine("title", f"{role}: {report.kept:,} of {counted(report.pairs, 'pair')} kept ({share:.2%})")
    ]
    if len(report.corpora) > 1:
        lines += [
            TextLine("plain", f"  {printable(corpus.name)}: {corpus.kept:,} of {corpus.pairs:,}")
            for corpus in report.corpora
        ]
    lines += _dropped_lines(report)
    for side, label in enumerate(report.labels):
        characters, length = report.length(side)
        shares = ", ".join(f"{script.lower()} {part:.1%}" for script, part in report.scripts()[side].items())
        figures = ", ".join(f"{name} {value:g}" for name, value in length.items())
        language = report.looks_like(side)
        looks = f"looks like {language}" if language else "its language cannot be told"
        said = f"  {label}: {characters:,} characters; length {figures}; {shares}; {looks}"
        lines.append(TextLine("plain", said))
    lines += [TextLine("warning", f"  warning: {warning}") for warning in report.warnings()]
    for pair in report.samples():
        lines.append(TextLine("quiet", f"  {printable(report.corpora[pair.corpus].name)}:{pair.line}"))
        lines += [TextLine("plain", f"    {printable(text)}") for text in (pair.source, pair.target)]
    return lines


def printable(text: str) -> str:
    """The text with control characters, which can move a terminal's cursor, shown as U+FFFD."""
    return text.translate(_CONTROL)


def _dropped_lines(report: CheckReport) -> list[TextLine]:
    lines = []
    several = len(report.corpora) > 1
    for reason, dropped in sorted(report.dropped.items(), key=lambda item: -item[1].count):
        places = [
            f"{printable(report.corpora[corpus].name)}:{line}" if several else str(line)
            for corpus, line in dropped.examples
        ]
        more = ", ..." if dropped.count > len(places) else ""
        where = f"line{'s' if dropped.count > 1 else ''} {', '.join(places)}{more}"
        meaning = REASONS.get(reason, reason)
        lines.append(TextLine("plain", f"  dropped {dropped.count:,} {reason} ({meaning}): {where}"))
    return lines
