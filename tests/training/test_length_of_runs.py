"""Runs whose learning rate follows their length: longer and shorter ones, and where that comes too late."""

from __future__ import annotations

import shutil
from collections.abc import Callable

import pytest
from toy_run import run_training

from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.errors import UsageError
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


@pytest.mark.parametrize(("before", "now"), [(10, 20), (40, 12)])
def test_in_its_decay_it_keeps_its_length(before: int, now: int, make_job: JobMaker) -> None:
    interrupted(make_job, "decaying", before, 10)
    job = make(make_job, "decaying", now)
    resolved = job.run.resolved_config.read_bytes()
    with pytest.raises(UsageError, match=f"max_updates: {before} -> {now}: the decay") as caught:
        run_training(job, quiet=True)
    assert "copy of the run" in caught.value.hint
    assert job.run.resolved_config.read_bytes() == resolved
    assert [checkpoint.update for checkpoint in job.run.checkpoints()] == [5, 10]


def test_a_copy_without_the_decay_goes_on(make_job: JobMaker, weights_digest: Digest) -> None:
    """As the documentation says, from the checkpoint before the decay, which is kept however many follow."""
    few = {**SETTINGS, "checkpoint": {"every": 2, "keep_last": 1}, "validation": {"every": 100}}
    short, longer, straight = (
        make_job(name, max_updates=updates, **few)
        for name, updates in (("short", 10), ("longer", 20), ("straight", 20))
    )
    run_training(short, quiet=True)
    assert [checkpoint.update for checkpoint in short.run.checkpoints()] == [4, 10]
    assert find_model(f"{short.run.path}@update-4").exists()
    longer.run.checkpoints_folder.mkdir(parents=True)
    for path in short.run.path.glob("*.*"):
        shutil.copy(path, longer.run.path)
    shutil.copytree(short.run.checkpoint_path(4), longer.run.checkpoint_path(4))
    run_training(longer, quiet=True)
    run_training(straight, quiet=True)
    assert weights_digest(longer.run, 20) == weights_digest(straight.run, 20)
    log = longer.run.log.read_text()
    assert "changed: training.max_updates: 10 -> 20" in log
    assert "warning" not in log
