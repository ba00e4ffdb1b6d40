"""Write a report as an aligned table with signatures, or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict

from deepwire.evaluation.comparison import ScoreReport, SystemResult
from deepwire.evaluation.multi_bleu import MultiBleuMetric, multi_bleu_line
from deepwire.evaluation.significance import Comparison, Interval

JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]

_SIGNIFICANT = 0.05


def as_text(report: ScoreReport) -> str:
    """Write scores, intervals and p-values as a table, then one signature per metric."""
    if report.baseline is None:
        blocks = [aligned(_score_rows(report), names=1)]
    else:
        blocks = [aligned(_test_rows(report), names=2), _test_note(report)]
    detail = [
        f"{system.name}: {multi_bleu_line(score)}"
        for system in report.systems
        for score in system.scores
        if score.name == MultiBleuMetric.name
    ]
    signatures = [f"{score.name}|{score.signature}" for score in report.systems[0].scores]
    blocks += ["\n".join(lines) for lines in (detail, signatures) if lines]
    return "\n\n".join(blocks)


def as_json(report: ScoreReport) -> dict[str, JsonValue]:
    """Return everything in the report as JSON values; scores are not rounded."""
    systems: list[JsonValue] = []
    for number, system in enumerate(report.systems):
        scores: list[JsonValue] = [
            {
                "name": score.name,
                "score": score.value,
                "signature": score.signature,
                "higher_is_better": score.higher_is_better,
                **{key: plain(value) for key, value in score.details.items()},
            }
            for score in system.scores
        ]
        comparisons: list[JsonValue] = [
            {key: plain(value) for key, value in asdict(comparison).items()}
            for comparison in system.comparisons
        ]
        systems.append(
            {
                "name": system.name,
                "baseline": number == report.baseline,
                "scores": scores,
                "comparisons": comparisons,
            }
        )
    return {
        "lines": report.lines,
        "references": list(report.references),
        "systems": systems,
        "warnings": list(report.warnings),
    }


def plain(value: object) -> JsonValue:
    """A value of a report in the types of JSON."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"no JSON form for {type(value).__name__}")


def _score_rows(report: ScoreReport) -> Iterator[list[str]]:
    yield ["system", *(score.name for score in report.systems[0].scores)]
    for system in report.systems:
        yield [system.name, *(f"{score.value:.2f}" for score in system.scores)]


def _test_rows(report: ScoreReport) -> Iterator[list[str]]:
    with_intervals = any(
        comparison.difference_interval for system in report.systems for comparison in system.comparisons
    )
    yield (
        ["system", "metric", "score", "95 % interval", "difference", "95 % interval", "p"]
        if with_intervals
        else ["system", "metric", "score", "difference", "p"]
    )
    for place in range(len(report.systems[0].scores)):
        for number, system in enumerate(report.systems):
            row = _baseline_row(report, place) if number == report.baseline else _system_row(system, place)
            yield row if with_intervals else [row[0], row[1], row[2], row[4], row[6]]


def _baseline_row(report: ScoreReport, place: int) -> list[str]:
    system = report.systems[report.baseline or 0]
    other = next(system for system in report.systems if system.comparisons)
    score = system.scores[place]
    own = _interval(other.comparisons[place].baseline_interval)
    return [system.name, score.name, f"{score.value:.2f}", own, "baseline", "", ""]


def _system_row(system: SystemResult, place: int) -> list[str]:
    score, comparison = system.scores[place], system.comparisons[place]
    return [
        system.name,
        score.name,
        f"{score.value:.2f}",
        _interval(comparison.system_interval),
        f"{comparison.difference:+.2f}",
        _interval(comparison.difference_interval, sign=True),
        _p_value(comparison),
    ]


def _interval(interval: Interval | None, *, sign: bool = False) -> str:
    if interval is None:
        return ""
    low, high = (f"{edge:+.2f}" if sign else f"{edge:.2f}" for edge in (interval.low, interval.high))
    return f"{low} .. {high}"


def _p_value(comparison: Comparison) -> str:
    return f"{comparison.p_value:.4f}" + (" *" if comparison.p_value < _SIGNIFICANT else "")


def _test_note(report: ScoreReport) -> str:
    comparison = next(system for system in report.systems if system.comparisons).comparisons[0]
    return f"{title_of_test(comparison)}; * p < {_SIGNIFICANT}"


def title_of_test(comparison: Comparison) -> str:
    """Which test a comparison is, with its settings."""
    title = {
        "bootstrap": "paired bootstrap (Koehn 2004), two-sided",
        "randomization": "approximate randomisation (Riezler & Maxwell 2005), two-sided",
    }[comparison.test]
    return f"{title}; {comparison.samples} samples, seed {comparison.seed}"


def aligned(rows: Iterable[list[str]], names: int) -> str:
    """Rows of cells as aligned lines; the first ``names`` columns hold names, the others numbers."""
    cells = list(rows)
    widths = [max(len(row[column]) for row in cells) for column in range(len(cells[0]))]
    return "\n".join(_line(row, widths, names) for row in cells)


def _line(row: Sequence[str], widths: Sequence[int], names: int) -> str:
    """One line: names on the left edge of their columns, numbers on the right."""
    columns = zip(row, widths, strict=True)
    return "  ".join(
        cell.ljust(width) if number < names else cell.rjust(width)
        for number, (cell, width) in enumerate(columns)
    ).rstrip()
