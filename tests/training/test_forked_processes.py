"""`deepwire train` shares the cores of a machine among processes of its own."""

from __future__ import annotations

import json
import os
import signal
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from job_of_processes import UPDATES, Launcher, Patch, Running, nothing
from toy_run import after_step, wait_for

import deepwire.api.training
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import DataError
from deepwire.training import loop
from deepwire.training.config import TrainingConfig
from deepwire.training.run import processes_wanted

TWO = "training.processes=2"
FOUR = {"max_updates": 1, "threads": 4, "batch_tokens": 4096, "precision": "fp32"}


@pytest.fixture(scope="module")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    launcher = Launcher(tmp_path_factory.mktemp("forked"))

    def measured(_: int) -> None:
        loop.memory_in_use = lambda device: 1000

    assert launcher.train("forked", 1, TWO, patch=measured) == [0], launcher.text()
    return launcher


def children(process: int) -> list[int]:
    return [int(child) for child in Path(f"/proc/{process}/task/{process}/children").read_text().split()]


def begun(launcher: Launcher, name: str, patch: Patch = nothing) -> tuple[Running, int]:
    """A job that has made an update, and the process that it made."""
    job = launcher.begin(name, 1, TWO, "training.max_updates=100k", patch=patch)
    wait_for(launcher.run_directory(name).metrics)
    (child,) = children(job.children[0])
    return job, child


def gone(process: int) -> bool:
    """Whether it ends; what nobody has asked for its exit code is gone, too."""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        try:
            state = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0]
        except (FileNotFoundError, ProcessLookupError):
            return True
        if state == "Z":
            return True
        time.sleep(0.005)
    return False


@pytest.mark.slow
def test_they_are_as_those_of_torchrun(launcher: Launcher) -> None:
    text = launcher.text()
    assert text.count("2 processes on cpu") == text.count("stopped at update") == 1
    metrics = launcher.run_directory("forked").metrics.read_text().splitlines()
    assert {one["memory"] for one in map(json.loads, metrics) if one["kind"] == "train"} == {2000}
    assert launcher.train("torchrun", 2) == [0, 0], launcher.text()
    assert launcher.outcome("forked") == launcher.outcome("torchrun")


def test_a_signal_to_the_command_saves_and_stops_both_and_the_run_goes_on(launcher: Launcher) -> None:
    told = launcher.folder / "told"
    job, child = begun(launcher, "signal", lambda _: after_step(4, lambda _: wait_for(told)))
    job.signal(signal.SIGTERM)
    told.write_text("now")
    assert job.wait() == [143]
    assert gone(child)
    text = launcher.text()
    assert text.count(": SIGTERM\n") == 1
    assert "torchrun" not in text
    assert launcher.run_directory("signal").checkpoints()[-1].update <= 4
    assert launcher.train("signal", 1, TWO, f"training.max_updates={UPDATES}") == [0], launcher.text()
    assert launcher.outcome("signal") == launcher.outcome("forked")


def test_killed_the_command_leaves_no_process_and_no_file(launcher: Launcher, tmp_path: Path) -> None:
    def keep_files_here(_process: int) -> None:
        tempfile.tempdir = str(tmp_path)

    job, child = begun(launcher, "killed", keep_files_here)
    job.signal(signal.SIGKILL)
    assert job.wait() == [-signal.SIGKILL]
    assert gone(child)
    assert list(tmp_path.iterdir()) == []


def test_a_process_that_is_killed_ends_the_command(launcher: Launcher) -> None:
    job, child = begun(launcher, "lost")
    os.kill(child, signal.SIGKILL)
    assert job.wait() == [1]
    errors = [line for line in launcher.text().splitlines() if line.startswith(("error:", "hint:"))]
    assert len(errors) == 2
    assert errors[0].startswith("error: the job cannot go on: another process ended without an error message")


@pytest.mark.parametrize("rank", [0, 1])
def test_an_error_of_either_process_is_shown_once_with_its_exit_code(launcher: Launcher, rank: int) -> None:
    def fail_in(_process: int) -> None:
        before = deepwire.api.training.require_startable

        def look_ahead(loaded: Any, processes: ProcessGroup, **options: bool) -> None:
            before(loaded, processes, **options)
            if processes.rank == rank:
                raise DataError("the text is not there")

        deepwire.api.training.require_startable = look_ahead

    job = launcher.begin(f"wrong{rank}", 1, TWO, patch=fail_in)
    assert job.wait() == [3], launcher.text()
    errors = [line for line in launcher.text().splitlines() if line.startswith("error:")]
    assert len(errors) == 1
    assert errors[0].endswith("the text is not there")


@pytest.mark.parametrize(
    ("settings", "wanted"),
    [
        ({"threads": 1}, 1),
        ({"threads": 16}, 4),
        ({"threads": 4, "batch_tokens": 1100}, 2),
        ({"threads": 4, "micro_batch_tokens": 1024}, 2),
        ({"threads": 4, "precision": "bf16"}, 1),
        ({"threads": 64, "precision": "bf16", "batch_tokens": 100_000}, 4),
        ({"threads": 1, "processes": 3}, 3),
        ({"threads": 4, "processes": 1}, 1),
        ({"threads": 4, "compile": True}, 1),
        ({"threads": 4, "sharding": "full"}, 1),
        ({"threads": 4, "device": "cuda"}, 1),
    ],
    ids=str,
)
def test_how_many_there_are(settings: dict[str, object], wanted: int) -> None:
    config = TrainingConfig.model_validate(
        {"max_updates": 1, "device": "cpu", "precision": "fp32", "batch_tokens": 4096, **settings}
    )
    assert processes_wanted(config, 512, lambda: 1000) == wanted


@pytest.mark.parametrize(
    ("settings", "wanted"), [({}, [4, 4]), ({"precision": "bf16", "threads": 8}, [2, 1])]
)
def test_a_large_model_has_one_process_in_bfloat16(
    settings: dict[str, object], wanted: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "sysconf", {"SC_PHYS_PAGES": 2**24, "SC_PAGE_SIZE": 2**12}.__getitem__)
    config = TrainingConfig.model_validate({**FOUR, **settings})
    sizes = (30_000_000, 40_000_000)
    assert [processes_wanted(config, 512, partial(int, size)) for size in sizes] == wanted


def test_copies_of_a_model_may_take_a_quarter_of_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    config = TrainingConfig.model_validate(FOUR)
    sizes = {"SC_PHYS_PAGES": 2**17, "SC_PAGE_SIZE": 2**12}
    monkeypatch.setattr(os, "sysconf", sizes.__getitem__)
    memory = 2**29
    wanted = [processes_wanted(config, 512, partial(int, memory // 20 // part)) for part in (3, 5, 9, 13)]
    assert wanted == [1, 2, 3, 4]
