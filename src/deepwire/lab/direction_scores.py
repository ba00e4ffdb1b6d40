"""Scores of many translation directions as a finding: averages, every direction, tests against a baseline."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from deepwire.evaluation.comparison import title_of_test
from deepwire.evaluation.multilingual.direction_table import (
    SIGNIFICANT,
    DirectionAverage,
    DirectionBlock,
    DirectionRow,
    DirectionsReport,
    samples_for,
)
from deepwire.lab.report.finding import Axis, BarChart, Cell, Finding, ModelSource, Series, Table, provenance

Head = tuple[str, Sequence[Cell]]


def directions_finding(report: DirectionsReport, models: Sequence[ModelSource] = ()) -> Finding:
    """The finding of ``deepwire evaluate-directions``; `models` translated, where they are known."""
    systems = f"{report.system} against {report.baseline}" if report.baseline else report.system
    blocks = [block for block in report.blocks if block.rows]
    signatures = [
        f"{signature} ({', '.join(languages)})" for signature, languages in report.signatures.items()
    ]
    return Finding(
        analysis="directions",
        title=f"{systems} on {report.test}",
        measured=f"{' and '.join(report.metrics)} of each translation direction, and their averages over "
        f"directions, all weighted equally. {_explained(report)}".strip(),
        tables=[_average_table(report), *(_direction_table(report, block) for block in blocks)],
        figures=[_figure(report, block) for block in blocks],
        notes=[*_verdicts(report), *signatures, *report.notes],
        provenance=provenance(models, (report.test,), {"metrics": ", ".join(report.metrics)}),
    )


def _explained(report: DirectionsReport) -> str:
    """The columns that not every reader knows, as far as they are there."""
    metric = report.metrics[0]
    parts = []
    if report.baseline:
        parts.append(
            f"The baseline is {report.baseline}. Win ratio: share of the directions in which {metric} is "
            "better than that of the baseline; a tie is no win."
        )
    if report.paired is not None:
        parts.append(f"p: of the difference of {metric}, each direction tested separately.")
    if any(_identified(block) for block in report.blocks):
        parts.append("Right language: share of the lines that are in the target language.")
    return " ".join(parts)


def _table(title: str, columns: Sequence[Head]) -> Table:
    heads, cells = zip(*columns, strict=True)
    return Table(title=title, columns=heads, rows=zip(*cells, strict=True))


def _score_columns(
    report: DirectionsReport, system: Sequence[Sequence[float]], baseline: Sequence[Sequence[float]]
) -> Iterator[Head]:
    """A column for each metric; with a baseline, the same of the baseline beside it."""
    for number, metric in enumerate(report.metrics):
        yield f"{metric} .2", [values[number] for values in system]
        if report.baseline:
            yield f"baseline {metric} .2", [values[number] for values in baseline]


def _average_table(report: DirectionsReport) -> Table:
    averages = [(block.title, average) for block in report.blocks for average in block.averages]
    each = [average for _, average in averages]
    columns: list[Head] = [
        ("directions", [title for title, _ in averages]),
        ("languages", [average.name for average in each]),
        ("number", [len(average.rows) for average in each]),
    ]
    system, baseline = [average.values for average in each], [average.baseline for average in each]
    columns += _score_columns(report, system, baseline)
    if report.baseline:
        columns.append(("difference .2", [average.values[0] - average.baseline[0] for average in each]))
        columns.append(("win ratio [%] .2", [average.win_ratio for average in each]))
    if report.paired is not None:
        for sign, name in ((1, "better"), (-1, "worse")):
            columns.append((f"{name}, p < {SIGNIFICANT}", [average.significant(sign) for average in each]))
    return _table("Averages", columns)


def _direction_table(report: DirectionsReport, block: DirectionBlock) -> Table:
    rows = block.rows
    columns: list[Head] = [
        ("direction", [str(row.direction) for row in rows]),
        ("lines", [row.lines for row in rows]),
    ]
    if _sized(block):
        columns.append(("training pairs", [row.about.training_pairs for row in rows]))
    system = [[score.value for score in row.scores] for row in rows]
    baseline = [[score.value for score in row.baseline] for row in rows]
    columns += _score_columns(report, system, baseline)
    if report.baseline:
        columns.append(("difference .2", [row.scores[0].value - row.baseline[0].value for row in rows]))
    intervals = [_interval(row) for row in rows]
    if any(intervals):
        columns.append(("95 % interval", intervals))
    if report.paired is not None:
        columns.append(("p .4", [row.p_value for row in rows]))
    if _identified(block):
        columns.append(("right language [%] .1", [_percent(row.about.right_language) for row in rows]))
        if report.baseline:
            right = [_percent(row.about.baseline_right_language) for row in rows]
            columns.append(("baseline [%] .1", right))
        right = [_percent(row.about.reference_right_language) for row in rows]
        columns.append(("reference [%] .1", right))
    return _table(block.title, columns)


def _interval(row: DirectionRow) -> str:
    interval = row.comparisons[0].difference_interval if row.comparisons else None
    return "" if interval is None else f"{interval.low:+.2f} to {interval.high:+.2f}"


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _sized(block: DirectionBlock) -> bool:
    return any(row.about.training_pairs is not None for row in block.rows)


def _identified(block: DirectionBlock) -> bool:
    return any(row.about.right_language is not None for row in block.rows)


def _figure(report: DirectionsReport, block: DirectionBlock) -> BarChart:
    """One bar a direction by the first metric, and one for the baseline beside it."""
    series = [Series(name=report.system, y=[row.scores[0].value for row in block.rows])]
    if report.baseline:
        series.append(Series(name=report.baseline, y=[row.baseline[0].value for row in block.rows]))
    ordered = ", the largest training text first" if _sized(block) else ""
    return BarChart(
        name=re.sub("[^a-z0-9]+", "-", block.title.partition(":")[0].lower()).strip("-"),
        title=block.title,
        caption=f"{report.metrics[0]} of each direction{ordered}.",
        x="direction",
        y=Axis(label=report.metrics[0], unit="%"),
        categories=[str(row.direction) for row in block.rows],
        series=series,
    )


def _verdicts(report: DirectionsReport) -> Iterator[str]:
    """The outcome of the tests, one line a block, and which test it was."""
    if not report.baseline:
        return
    for block in report.blocks:
        yield f"{block.title}: {_verdict(block.averages[0], tested=report.paired is not None)}"
    if report.paired is not None:
        title = title_of_test(report.blocks[0].averages[0].rows[0].comparisons[0])
        yield f"{title}; p of the difference of {report.metrics[0]}"


def _verdict(average: DirectionAverage, *, tested: bool) -> str:
    """How many directions are better and worse than the baseline."""
    worse = sum(row.gain < 0 for row in average.rows)
    text = f"better in {average.wins} and worse in {worse} of {len(average.rows)}"
    if not tested:
        return text
    if average.correctable:
        holm = f"after Holm's correction {average.corrected(1)} and {average.corrected(-1)}"
    else:
        needed = samples_for(len(average.rows), average.rows[0].comparisons[0].test)
        holm = f"Holm's correction needs --samples {needed} or more"
    better, worse = average.significant(1), average.significant(-1)
    return f"{text}; with p < {SIGNIFICANT} better in {better}, worse in {worse}; {holm}"
