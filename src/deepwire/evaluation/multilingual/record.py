"""The table of many directions as JSON values; numbers are not rounded."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict

from deepwire.evaluation.metric import Score
from deepwire.evaluation.multilingual.direction_table import (
    DirectionAverage,
    DirectionBlock,
    DirectionRow,
    DirectionsReport,
)
from deepwire.evaluation.score_report import JsonValue, plain


def as_json(report: DirectionsReport) -> dict[str, JsonValue]:
    """Everything in the report."""
    return {
        "system": report.system,
        "baseline": report.baseline,
        "test": report.test,
        "metrics": list(report.metrics),
        "blocks": [_block(block) for block in report.blocks],
        "signatures": {signature: list(names) for signature, names in report.signatures.items()},
        "notes": list(report.notes),
    }


def _block(block: DirectionBlock) -> JsonValue:
    return {
        "title": block.title,
        "averages": [_average(average) for average in block.averages],
        "directions": [_row(row) for row in block.rows],
    }


def _average(average: DirectionAverage) -> JsonValue:
    record: dict[str, JsonValue] = {
        "name": average.name,
        "directions": [str(row.direction) for row in average.rows],
        "scores": list(average.values),
    }
    if average.win_ratio is not None:
        record |= {
            "baseline": list(average.baseline),
            "wins": average.wins,
            "win_ratio": average.win_ratio,
            "significantly_better": average.significant(1),
            "significantly_worse": average.significant(-1),
            "better_after_holm": average.corrected(1) if average.correctable else None,
            "worse_after_holm": average.corrected(-1) if average.correctable else None,
        }
    return record


def _row(row: DirectionRow) -> JsonValue:
    about = row.about
    return {
        "direction": str(row.direction),
        "source": row.direction.source,
        "target": row.direction.target,
        "lines": row.lines,
        "zero_shot": about.zero_shot,
        "training_pairs": about.training_pairs,
        "scores": _scores(row.scores),
        "baseline": _scores(row.baseline),
        "comparisons": [plain(asdict(comparison)) for comparison in row.comparisons],
        "right_language": about.right_language,
        "baseline_right_language": about.baseline_right_language,
        "reference_right_language": about.reference_right_language,
    }


def _scores(scores: Sequence[Score]) -> JsonValue:
    return [
        {"name": score.name, "score": score.value, "signature": score.signature, **_details(score)}
        for score in scores
    ]


def _details(score: Score) -> dict[str, JsonValue]:
    return {key: plain(value) for key, value in score.details.items()}
