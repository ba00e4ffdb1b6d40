from __future__ import annotations

import fcntl
import json
import math
import os
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepwire.checkpoint.run_directory import (
    Checkpoint,
    RunDirectory,
    among_best,
    best,
    checkpoints_to_delete,
    ranked,
)
from deepwire.errors import ResourceError

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


@given(checkpoints(), METRICS, st.integers(1, 4), st.sets(st.integers(1, 50)))
def test_interim_checkpoints_change_nothing_of_what_else_is_kept(
    found: list[Checkpoint], metric: str, keep_last: int, stops: set[int]
) -> None:
    """They have no scores, come between the others, and leave as soon as there is a newer one."""

    def keep(coming: Sequence[Checkpoint]) -> list[Checkpoint]:
        kept: list[Checkpoint] = []
        for one in coming:
            kept.append(one)
            leaving = checkpoints_to_delete(kept, metric, keep_last=keep_last, keep_best=1)
            kept = [other for other in kept if other not in leaving]
        return kept

    interim = [
        Checkpoint(update, Path(f"update-{update:06d}"), interim=True)
        for update in stops - {one.update for one in found}
    ]
    together = keep(sorted([*found, *interim], key=lambda one: one.update))
    assert [one for one in together if not one.interim] == keep(found)
    assert not any(one.interim for one in together[:-1])


def score(one: Checkpoint, metric: str) -> float:
    value = one.scores.get(metric, math.nan)
    return value if math.isfinite(value) else math.nan


@given(checkpoints(), METRICS, st.integers(1, 5), st.integers(1, 5))
def test_the_newest_and_the_best_always_stay(
    found: list[Checkpoint], metric: str, keep_last: int, keep_best: int
) -> None:
    leaving = checkpoints_to_delete(found, metric, keep_last=keep_last, keep_best=keep_best)
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
def test_deleting_as_checkpoints_come_keeps_the_same_ones_as_keeping_all(
    found: list[Checkpoint], metric: str, keep_last: int, keep_best: int
) -> None:
    kept: list[Checkpoint] = []
    for one in found:
        kept.append(one)
        leaving = checkpoints_to_delete(kept, metric, keep_last=keep_last, keep_best=keep_best)
        kept = [other for other in kept if other not in leaving]
    assert ranked(kept, metric)[:keep_best] == ranked(found, metric)[:keep_best]
    assert checkpoints_to_delete(kept, metric, keep_last=keep_last, keep_best=keep_best) == []


@given(checkpoints(), METRICS, SCORES, st.integers(1, 4))
def test_a_new_score_is_among_the_best_exactly_when_it_is_ranked_there(
    found: list[Checkpoint], metric: str, value: float | None, keep: int
) -> None:
    new = Checkpoint(99, Path("new"), {} if value is None else {metric: value})
    assert among_best(found, metric, value, keep) == (new in ranked([*found, new], metric)[:keep])


CheckpointMaker = Callable[..., Path]


def updates(run: RunDirectory) -> list[int]:
    return [one.update for one in run.checkpoints()]


def test_the_index_names_best_last_and_scores(run: RunDirectory, checkpoint: CheckpointMaker) -> None:
    for update, loss in ((100, 3.0), (200, 2.0), (300, 2.5)):
        checkpoint(update, loss=loss)
    index = json.loads(run.index.read_text())
    assert (index["metric"], index["best"], index["last"]) == ("loss", "update-000200", "update-000300")
    assert index["checkpoints"]["update-000300"] == {"loss": 2.5}
    best = run.best()
    assert best is not None
    assert best.update == 200


def test_old_checkpoints_leave_but_never_the_best(run: RunDirectory, checkpoint: CheckpointMaker) -> None:
    losses = {100: 3.0, 200: 1.0, 300: 2.5, 400: 2.0, 500: 2.2}
    for update, loss in losses.items():
        checkpoint(update, keep_last=2, loss=loss)
        # A new object: what is kept must not depend on the memory of one process.
        assert RunDirectory(run.path).best().scores["loss"] == min(
            other for number, other in losses.items() if number <= update
        )
    assert updates(run) == [200, 400, 500]
    assert [path.name for path in run.checkpoints_folder.glob(".*")] == []


def test_a_failed_save_keeps_the_checkpoints_before_it(
    run: RunDirectory, checkpoint: CheckpointMaker
) -> None:
    checkpoint(100)

    def write(folder: Path) -> None:
        (folder / "half").write_text("x")
        raise OSError(28, "No space left on device")

    with pytest.raises(ResourceError, match="No space left"):
        run.save(200, write, metric="loss", keep_last=1, keep_best=1)
    assert updates(run) == [100]
    assert [path.name for path in run.checkpoints_folder.iterdir() if path.is_dir()] == ["update-000100"]


def test_a_lock_dies_with_its_holder(run: RunDirectory) -> None:
    child = os.fork()
    if child == 0:
        try:
            with run.locked():
                os._exit(0)
        finally:
            os._exit(99)
    os.waitpid(child, 0)
    assert (run.path / "lock").read_text().startswith(f"pid {child} ")
    with run.locked(), (run.path / "lock").open() as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
