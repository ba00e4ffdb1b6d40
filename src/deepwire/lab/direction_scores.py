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
from deepwire.lab.report.finding import (
    Axis,
    BarChart,
    Cell,
    Column,
    Finding,
    ModelSource,
    Series,
    Table,
    provenance,
)


def directions_finding(report: DirectionsReport, models: Sequence[ModelSource] = ()) -> Finding:
    """The finding of ``deepwire evaluate-directions``.

    Args:
        report: What was scored.
        models: The models that translated, where they are known.
    """
    return Finding(
        analysis="directions",
        title=f"{_systems(report)} on {report.test}",
        measured=f"{' and '.join(report.metrics)} of each translation direction, and their averages over "
        f"directions, all weighted equally. {_explained(report)}".strip(),
        tables=direction_tables(report),
        figures=direction_figures(report),
        notes=direction_notes(report),
        provenance=provenance(models, (report.test,), {"metrics": ", ".join(report.metrics)}),
    )


def direction_tables(report: DirectionsReport) -> tuple[Table, ...]:
    """The averages of all blocks, then the directions of each block."""
    blocks = [block for block in report.blocks if block.rows]
    return (_average_table(report), *(_direction_table(report, block) for block in blocks))


def direction_figures(report: DirectionsReport) -> tuple[BarChart, ...]:
    """For each block one bar a direction by the first metric, and one for the baseline beside it."""
    return tuple(_figure(report, block) for block in report.blocks if block.rows)


def direction_notes(report: DirectionsReport) -> tuple[str, ...]:
    """The outcome of the tests, which tests these were, the signatures, and the notes of the evaluation."""
    return (*_verdicts(report), *_signatures(report), *report.notes)


def _systems(report: DirectionsReport) -> str:
    return f"{report.system} against {report.baseline}" if report.baseline else report.system


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


def _average_table(report: DirectionsReport) -> Table:
    columns = [Column(name="directions"), Column(name="languages"), Column(name="number")]
    columns += _score_columns(report)
    if report.baseline:
        columns += [Column(name="difference", digits=2), Column(name="win ratio", unit="%", digits=2)]
    if report.paired is not None:
        columns += [Column(name=f"{sign}, p < {SIGNIFICANT}") for sign in ("better", "worse")]
    rows = [
        (block.title, *_average_cells(report, average))
        for block in report.blocks
        for average in block.averages
    ]
    return Table(title="Averages", columns=tuple(columns), rows=tuple(rows))


def _average_cells(report: DirectionsReport, average: DirectionAverage) -> Iterator[Cell]:
    yield average.name
    yield len(average.rows)
    yield from _score_cells(average.values, average.baseline)
    if report.baseline:
        yield average.values[0] - average.baseline[0]
        yield average.win_ratio
    if report.paired is not None:
        yield average.significant(1)
        yield average.significant(-1)


def _direction_table(report: DirectionsReport, block: DirectionBlock) -> Table:
    columns = [Column(name="direction"), Column(name="lines")]
    columns += [Column(name="training pairs")] if _sized(block) else []
    columns += _score_columns(report)
    columns += [Column(name="difference", digits=2)] if report.baseline else []
    columns += [Column(name="95 % interval")] if _with_intervals(block) else []
    columns += [Column(name="p", digits=4)] if report.paired is not None else []
    if _identified(block):
        names = ["right language", *(["baseline"] if report.baseline else []), "reference"]
        columns += [Column(name=name, unit="%", digits=1) for name in names]
    rows = [tuple(_direction_cells(report, block, row)) for row in block.rows]
    return Table(title=block.title, columns=tuple(columns), rows=tuple(rows))


def _direction_cells(report: DirectionsReport, block: DirectionBlock, row: DirectionRow) -> Iterator[Cell]:
    yield str(row.direction)
    yield row.lines
    if _sized(block):
        yield row.about.training_pairs
    yield from _score_cells([score.value for score in row.scores], [score.value for score in row.baseline])
    if report.baseline:
        yield row.scores[0].value - row.baseline[0].value
    if _with_intervals(block):
        interval = row.comparisons[0].difference_interval if row.comparisons else None
        yield "" if interval is None else f"{interval.low:+.2f} to {interval.high:+.2f}"
    if report.paired is not None:
        yield row.p_value
    if _identified(block):
        yield _percent(row.about.right_language)
        if report.baseline:
            yield _percent(row.about.baseline_right_language)
        yield _percent(row.about.reference_right_language)


def _score_columns(report: DirectionsReport) -> list[Column]:
    """A column for each metric; with a baseline, the same of the baseline beside it."""
    return [
        Column(name=name, digits=2)
        for metric in report.metrics
        for name in ([metric, f"baseline {metric}"] if report.baseline else [metric])
    ]


def _score_cells(system: Sequence[float], baseline: Sequence[float]) -> Iterator[float]:
    for number, value in enumerate(system):
        yield value
        if baseline:
            yield baseline[number]


def _figure(report: DirectionsReport, block: DirectionBlock) -> BarChart:
    series = [Series(name=report.system, y=tuple(row.scores[0].value for row in block.rows))]
    if report.baseline:
        series.append(Series(name=report.baseline, y=tuple(row.baseline[0].value for row in block.rows)))
    ordered = ", the largest training text first" if _sized(block) else ""
    return BarChart(
        name=re.sub("[^a-z0-9]+", "-", block.title.partition(":")[0].lower()).strip("-"),
        title=block.title,
        caption=f"{report.metrics[0]} of each direction{ordered}.",
        x=Axis(label="direction"),
        y=Axis(label=report.metrics[0], unit="%"),
        categories=tuple(str(row.direction) for row in block.rows),
        series=tuple(series),
    )


def _verdicts(report: DirectionsReport) -> Iterator[str]:
    """The outcome of the tests, one line a block, and which test it was."""
    if not report.baseline:
        return
    tested = report.paired is not None
    for block in report.blocks:
        yield f"{block.title}: {_verdict(block.averages[0], tested=tested)}"
    if tested:
        title = title_of_test(report.blocks[0].averages[0].rows[0].comparisons[0])
        yield f"{title}; p of the difference of {report.metrics[0]}"


def _verdict(average: DirectionAverage, *, tested: bool) -> str:
    """How many directions are better and worse than the baseline."""
    worse = sum(row.gain < 0 for row in average.rows)
    text = f"better in {average.wins} and worse in {worse} of {len(average.rows)}"
    if not tested:
        return text
    return (
        f"{text}; with p < {SIGNIFICANT} better in {average.significant(1)}, "
        f"worse in {average.significant(-1)}; {_after_holm(average)}"
    )


def _after_holm(average: DirectionAverage) -> str:
    if not average.correctable:
        needed = samples_for(len(average.rows), average.rows[0].comparisons[0].test)
        return f"Holm's correction needs --samples {needed} or more"
    return f"after Holm's correction {average.corrected(1)} and {average.corrected(-1)}"


def _signatures(report: DirectionsReport) -> Iterator[str]:
    """Each signature with the target languages it stands for."""
    for signature, languages in report.signatures.items():
        yield f"{signature} ({', '.join(languages)})"


def _percent(share: float | None) -> float | None:
    return None if share is None else 100 * share


def _sized(block: DirectionBlock) -> bool:
    return any(row.about.training_pairs is not None for row in block.rows)


def _with_intervals(block: DirectionBlock) -> bool:
    return any(row.comparisons and row.comparisons[0].difference_interval for row in block.rows)


def _identified(block: DirectionBlock) -> bool:
    return any(row.about.right_language is not None for row in block.rows)
