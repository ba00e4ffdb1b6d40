"""The table of many directions as text."""

from __future__ import annotations

from collections.abc import Iterator

from deepwire.evaluation.multilingual.direction_table import (
    SIGNIFICANT,
    DirectionAverage,
    DirectionBlock,
    DirectionRow,
    DirectionsReport,
    samples_for,
)
from deepwire.evaluation.score_report import aligned, title_of_test


def as_text(report: DirectionsReport) -> str:
    """Averages, then every direction, block by block; then signatures and notes."""
    parts = [heading(report)]
    for block in report.blocks:
        parts.append(
            f"{block.title}\n{aligned([average_head(report), *average_rows(report, block)], names=1)}"
        )
        if block.rows:
            parts.append(aligned([row_head(report, block), *rows_of(report, block)], names=1))
    if report.baseline:
        parts.append("\n".join(verdicts(report)))
    parts.append("\n".join(signature_lines(report)))
    if report.notes:
        parts.append("\n".join(f"note: {note}" for note in report.notes))
    return "\n\n".join(parts)


def heading(report: DirectionsReport) -> str:
    """What was compared on what, in one line."""
    against = f" against {report.baseline}" if report.baseline else ""
    return f"{report.system}{against} on {report.test}"


def average_head(report: DirectionsReport) -> list[str]:
    """Titles of the columns of averages."""
    head = ["average", "directions", *report.metrics]
    if report.baseline:
        head += [*(f"baseline {name}" for name in report.metrics), "difference", "win ratio %"]
    return head


def average_rows(report: DirectionsReport, block: DirectionBlock) -> Iterator[list[str]]:
    """One row for each average of a block."""
    for average in block.averages:
        cells = [average.name, str(len(average.rows)), *(f"{value:.2f}" for value in average.values)]
        if report.baseline:
            difference = average.values[0] - average.baseline[0]
            cells += [*(f"{value:.2f}" for value in average.baseline), f"{difference:+.2f}"]
            cells.append(f"{average.win_ratio:.2f}")
        yield cells


def row_head(report: DirectionsReport, block: DirectionBlock) -> list[str]:
    """Titles of the columns of directions."""
    head = ["direction", "lines"]
    head += ["training pairs"] if _has_sizes(block) else []
    head += report.metrics
    if report.baseline:
        head += [*(f"baseline {name}" for name in report.metrics), "difference"]
        head += ["95 % interval"] if _has_intervals(block) else []
        head += ["p"] if report.paired else []
    if _has_languages(block):
        head += ["right language %", *(["baseline %"] if report.baseline else []), "reference %"]
    return head


def rows_of(report: DirectionsReport, block: DirectionBlock) -> Iterator[list[str]]:
    """One row for each direction of a block."""
    for row in block.rows:
        cells = [str(row.direction), f"{row.lines:,}"]
        if _has_sizes(block):
            size = row.about.training_pairs
            cells.append("" if size is None else f"{size:,}")
        cells += [f"{score.value:.2f}" for score in row.scores]
        if report.baseline:
            cells += [f"{score.value:.2f}" for score in row.baseline]
            cells.append(f"{row.scores[0].value - row.baseline[0].value:+.2f}")
            cells += [_interval(row)] if _has_intervals(block) else []
            cells += [p_value(row)] if report.paired else []
        if _has_languages(block):
            about = row.about
            shares = [about.right_language, *([about.baseline_right_language] if report.baseline else [])]
            cells += [percent(share) for share in (*shares, about.reference_right_language)]
        yield cells


def verdicts(report: DirectionsReport) -> Iterator[str]:
    """What the tests say, one line a block, and which test it was."""
    for block in report.blocks:
        yield f"{block.title}: {verdict(block.averages[0], tested=report.paired is not None)}"
    if report.paired is not None:
        yield which_test(report)


def which_test(report: DirectionsReport) -> str:
    """Which test was run on which metric."""
    title = title_of_test(report.blocks[0].averages[0].rows[0].comparisons[0])
    return f"{title}; p of the difference of {report.metrics[0]}"


def verdict(average: DirectionAverage, *, tested: bool) -> str:
    """How many directions are better and worse than the baseline."""
    worse = sum(row.gain < 0 for row in average.rows)
    text = f"better in {average.wins} and worse in {worse} of {len(average.rows)}"
    if not tested:
        return text
    return (
        f"{text}; with p < {SIGNIFICANT} better in {average.significant(1)}, "
        f"worse in {average.significant(-1)}; {holm(average)}"
    )


def holm(average: DirectionAverage) -> str:
    """What Holm's correction leaves of the significant differences."""
    if not average.correctable:
        needed = samples_for(len(average.rows), average.rows[0].comparisons[0].test)
        return f"Holm's correction needs --samples {needed} or more"
    return f"after Holm's correction {average.corrected(1)} and {average.corrected(-1)}"


def signature_lines(report: DirectionsReport) -> Iterator[str]:
    """Each signature with the target languages it stands for."""
    for signature, languages in report.signatures.items():
        yield f"{signature} ({', '.join(languages)})"


def p_value(row: DirectionRow) -> str:
    """The p-value of a row, with a star where it is small."""
    if row.p_value is None:
        return ""
    return f"{row.p_value:.4f}" + (" *" if row.p_value < SIGNIFICANT else "")


def percent(share: float | None) -> str:
    """A share from 0 to 1 in percent."""
    return "" if share is None else f"{100 * share:.1f}"


def _interval(row: DirectionRow) -> str:
    found = row.comparisons[0].difference_interval if row.comparisons else None
    return "" if found is None else f"{found.low:+.2f} .. {found.high:+.2f}"


def _has_sizes(block: DirectionBlock) -> bool:
    return any(row.about.training_pairs is not None for row in block.rows)


def _has_intervals(block: DirectionBlock) -> bool:
    return any(row.comparisons and row.comparisons[0].difference_interval for row in block.rows)


def _has_languages(block: DirectionBlock) -> bool:
    return any(row.about.right_language is not None for row in block.rows)
