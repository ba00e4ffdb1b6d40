from __future__ import annotations

import math
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from deepwire.checkpoint.retention import Checkpoint, among_best, best, ranked, superfluous

SCORES = st.one_of(st.none(), st.floats(allow_nan=True, allow_infinity=True, width=16))
METRICS = st.sampled_from(["loss", "bleu"])


@st.composite
def checkpoints(draw: st.DrawFn) -> list[Checkpoint]:
    updates = draw(st.lists(st.integers(1, 50), unique=True, max_size=12))
    found = []
    for update in sorted(updates):
        score = draw(SCORES)
        scores = {} if score is None else {"loss": score, "bleu": score}
        found.append(Checkpoint(update, Path(f"update-{update:06d}"), scores))
    return found


def score(one: Checkpoint, metric: str) -> float:
    value = one.scores.get(metric, math.nan)
    return value if math.isfinite(value) else math.nan


@given(checkpoints(), METRICS, st.integers(1, 5), st.integers(1, 5))
def test_the_newest_and_the_best_always_stay(
    found: list[Checkpoint], metric: str, keep_last: int, keep_best: int
) -> None:
    leaving = superfluous(found, metric, keep_last=keep_last, keep_best=keep_best)
    kept = [one for one in found if one not in leaving]
    assert kept[-keep_last:] == found[-keep_last:]
    assert len(kept) <= keep_last + keep_best
    finite = [score(one, metric) for one in found if not math.isnan(score(one, metric))]
    if finite:
        top = max(finite) if metric == "bleu" else min(finite)
        assert top in [score(one, metric) for one in kept]
        winner = best(found, metric)
        assert winner in kept
        assert score(winner, metric) == top
    assert best(kept, metric) == best(found, metric)


@given(checkpoints(), METRICS, st.integers(1, 4), st.integers(1, 4))
def test_deleting_as_checkpoints_come_keeps_the_same_best_as_keeping_all(
    found: list[Checkpoint], metric: str, keep_last: int, keep_best: int
) -> None:
    kept: list[Checkpoint] = []
    for one in found:
        kept.append(one)
        leaving = superfluous(kept, metric, keep_last=keep_last, keep_best=keep_best)
        kept = [other for other in kept if other not in leaving]
    assert ranked(kept, metric)[:keep_best] == ranked(found, metric)[:keep_best]
    assert superfluous(kept, metric, keep_last=keep_last, keep_best=keep_best) == []


@given(checkpoints(), METRICS, SCORES, st.integers(1, 4))
def test_a_new_score_is_among_the_best_exactly_when_it_is_ranked_there(
    found: list[Checkpoint], metric: str, value: float | None, keep: int
) -> None:
    new = Checkpoint(99, Path("new"), {} if value is None else {metric: value})
    assert among_best(found, metric, value, keep) == (new in ranked([*found, new], metric)[:keep])


def test_without_scores_the_newest_is_the_best() -> None:
    found = [Checkpoint(update, Path(str(update))) for update in (5, 10)]
    assert best(found, "loss") == found[1]
    assert best([], "loss") is None
