"""Runs whose learning rate follows their length: longer and shorter ones, and where that comes too late."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from toy_run import run_training

from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.training.spec import TrainingSpec

JobMaker = Callable[..., TrainingSpec]
ReadRecords = Callable[..., list[dict[str, object]]]
Digest = Callable[[RunDirectory, int], list[str]]
SETTINGS: dict[str, object] = {
    "schedule": {"type": "wsd", "peak": 0.01, "warmup": 3, "decay": 0.5},
    "validation": {"every": 5},
}


def make(make_job: JobMaker, name: str, updates: int) -> TrainingSpec:
    return make_job(name, max_updates=updates, **SETTINGS)


def interrupted(make_job: JobMaker, name: str, updates: int, at: int) -> None:
    """Train a run of so many updates up to one of them."""
    job = make_job(name, max_updates=updates, stop_after=f"{at}u", **SETTINGS)
    run_training(job, quiet=True)


@pytest.mark.parametrize(("before", "now"), [(10, 20), (40, 20)])
def test_a_run_whose_length_changes_in_time_is_the_one_of_that_length(
    before: int, now: int, make_job: JobMaker, read_records: ReadRecords, weights_digest: Digest
) -> None:
    straight = make(make_job, "straight", now)
    run_training(straight, quiet=True)
    interrupted(make_job, "changed", before, 5)
    changed = make(make_job, "changed", now)
    run_training(changed, quiet=True)
    assert read_records(changed.run) == read_records(straight.run)
    assert weights_digest(changed.run, now) == weights_digest(straight.run, now)
    assert f"changed: training.max_updates: {before} -> {now}" in changed.run.log.read_text()
