"""Which checkpoints are the best and which may go: pure functions over their scores."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path

HIGHER_IS_BETTER = frozenset({"bleu", "chrf", "chrf++"})


@dataclass(frozen=True)
class Checkpoint:
    """A checkpoint on disk.

    Attributes:
        update: Updates that it had made.
        path: Its folder.
        scores: Validation scores by metric (``loss``, ``perplexity``, ``bleu``, ...); empty without any.
        unknown: Why nobody knows its scores; empty where they are known.
    """

    update: int
    path: Path
    scores: dict[str, float] = field(default_factory=dict)
    unknown: str = ""


def better(metric: str, score: float, than: float) -> bool:
    """Whether ``score`` beats ``than``; equal scores do not."""
    return score > than if metric in HIGHER_IS_BETTER else score < than


def ranked(checkpoints: Sequence[Checkpoint], metric: str) -> list[Checkpoint]:
    """The checkpoints that have a finite score, the best first; of equal ones the older first."""
    sign = -1.0 if metric in HIGHER_IS_BETTER else 1.0
    scored = [
        checkpoint for checkpoint in checkpoints if math.isfinite(checkpoint.scores.get(metric, math.nan))
    ]
    return sorted(scored, key=lambda checkpoint: (sign * checkpoint.scores[metric], checkpoint.update))


def best(checkpoints: Sequence[Checkpoint], metric: str) -> Checkpoint | None:
    """The best checkpoint; where none has a score, the newest; None where there is none at all."""
    order = ranked(checkpoints, metric)
    return order[0] if order else max(checkpoints, key=lambda checkpoint: checkpoint.update, default=None)


def among_best(checkpoints: Sequence[Checkpoint], metric: str, score: float | None, keep: int) -> bool:
    """Whether a new checkpoint with ``score`` would be checkpoint of the ``keep`` best."""
    if score is None or not math.isfinite(score):
        return False
    order = ranked(checkpoints, metric)
    return len(order) < keep or better(metric, score, order[keep - 1].scores[metric])


def superfluous(
    checkpoints: Sequence[Checkpoint], metric: str, *, keep_last: int, keep_best: int
) -> list[Checkpoint]:
    """The checkpoints that are neither among the newest ``keep_last`` nor among the best ``keep_best``.

    One whose scores are unknown may be the best, and is kept.
    """
    newest = sorted(checkpoints, key=lambda checkpoint: checkpoint.update)[-keep_last:]
    kept = {checkpoint.update for checkpoint in (*newest, *ranked(checkpoints, metric)[:keep_best])}
    return [
        checkpoint for checkpoint in checkpoints if checkpoint.update not in kept and not checkpoint.unknown
    ]
