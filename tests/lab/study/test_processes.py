"""The trainings of a study: processes of their own, several at a time, and signals."""

from __future__ import annotations

import os
import signal
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest
from forked import Piped, fork

from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.errors import UsageError
from deepwire.io.atomic import write_json
from deepwire.lab.study import processes
from deepwire.lab.study.plan import END, OWN, Study, StudyRun
from deepwire.lab.study.processes import Failure, Stopped, require_own_folder, stoppable, train_runs


def runs_of(plan: Path, folder: Path, *overrides: str) -> list[StudyRun]:
    study = Study(plan, folder, overrides)
    system = next(iter(study.plan.systems))
    return [study.run(system, "de-en", seed, OWN, study.plan.stops[0]) for seed in study.plan.seeds]


def in_turn(runs: list[StudyRun]) -> Callable[[], StudyRun | None]:
    waiting = iter(runs)
    return lambda: next(waiting, None)


StandIn = Callable[[str], None]


@pytest.fixture
def stand_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> StandIn:
    """Has a shell script stand for the program that trains."""

    def write(script: str) -> None:
        program = tmp_path / "program"
        program.write_text(f"#!/bin/sh\n{script}\n")
        program.chmod(0o755)
        monkeypatch.setattr(processes.sys, "executable", str(program))

    return write


_LONG = f"loss not finite: {'x' * 300}"


@pytest.mark.parametrize(
    "number",
    [
        pytest.param(signal.SIGTERM, id="asked"),
        pytest.param(signal.SIGHUP, id="terminal closed", marks=pytest.mark.slow),
    ],
)
def test_a_signal_stops_it_and_the_same_command_goes_on(
    plan: Path, tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "results"
    before = signal.signal(number, signal.SIG_DFL)  # a program begun with nohup ignores one of them
    process = Piped(
        *("study", str(plan), "--folder", str(folder)),
        *(
            "--only",
            "plain",
            "search=null",
            "settings=[training.max_updates=100k, training.validation.every=100k]",
        ),
    )
    signal.signal(number, before)
    metrics = folder / "plan" / "runs" / "de-en" / "plain" / "seed-1" / "metrics.jsonl"
    deadline = time.monotonic() + 300
    try:
        while not (metrics.exists() and metrics.read_text().count("train")):
            assert process.poll() is None, process.stderr.read().decode()
            assert time.monotonic() < deadline
            time.sleep(0.02)
    finally:
        process.terminate(number)
        code = process.wait(300)
    assert code == 128 + number
    assert "the same command goes on" in process.stderr.read().decode()
    run = folder / "plan" / "runs" / "de-en" / "plain" / "seed-1"
    saved = sorted(path.name for path in (run / "checkpoints").glob("update-*"))
    assert len(saved) == 1
    assert not (run / "DONE").exists()


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(0, None), (5, _LONG), (2, UsageError), (130, Stopped), (143, Stopped)],
)
def test_how_a_training_process_ended_decides_what_follows(
    plan: Path, tmp_path: Path, stand_in: StandIn, code: int, outcome: object
) -> None:
    lines = f"{'warning ' * 50}", f"error: {_LONG}", "hint: try another"
    stand_in("\n".join([*(f"echo '{line}' >&2" for line in lines), f"exit {code}"]))
    run = runs_of(plan, tmp_path, "seeds=[1]")[0]
    with stoppable() as stop:
        trained = train_runs(in_turn([run]), at_once=2, stop=stop)
        if isinstance(outcome, type):
            with pytest.raises(outcome):
                next(trained)
            return
        assert list(trained) == [
            (run, None if outcome is None else Failure(code, f"{_LONG}; hint: try another"))
        ]


def test_two_at_a_time_and_one_less_while_a_result_is_looked_at(
    plan: Path, tmp_path: Path, stand_in: StandIn
) -> None:
    """Each run waits for a file; all that are left are stopped, and save themselves, when nobody waits."""
    script = """
        trap "echo stopped >> $0.log; exit 143" TERM
        for word; do case $word in run=*) run=$(echo $word | tr / .);; esac; done
        echo begun $run >> $0.log
        until [ -e $0$run ]; do sleep 0.02; done
        echo ended $run >> $0.log
    """
    stand_in(script)
    runs = runs_of(plan, tmp_path, "seeds=[1,2,3,4]")
    names = [f"run={run.folder}".replace("/", ".") for run in runs]
    log = tmp_path / "program.log"

    def lines(count: int) -> list[str]:
        deadline = time.monotonic() + 300
        while not (log.exists() and log.read_text().count("\n") >= count):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        return log.read_text().splitlines()

    (tmp_path / f"program{names[1]}").touch()
    with stoppable() as stop:
        trained = train_runs(in_turn(runs), at_once=2, stop=stop)
        assert next(trained) == (runs[1], None)
        assert sorted(lines(3)) == sorted([f"begun {names[0]}", f"begun {names[1]}", f"ended {names[1]}"])
        (tmp_path / f"program{names[2]}").touch()
        assert next(trained) == (runs[2], None)
        assert sorted(lines(5)[3:]) == [f"begun {names[2]}", f"ended {names[2]}"]
        trained.close()
    assert lines(6)[5:] == ["stopped"]


@pytest.mark.skipif(sys.platform != "linux", reason="only Linux tells a process of its parent's end")
def test_a_training_stops_when_the_command_that_started_it_is_killed(
    plan: Path, tmp_path: Path, stand_in: StandIn
) -> None:
    log = tmp_path / "log"
    trap = f"trap 'echo stopped >> {log}; exit 143' TERM"
    stand_in(f"{trap}\necho begun >> {log}\nwhile :; do sleep 0.02; done")
    run = runs_of(plan, tmp_path, "seeds=[1]")[0]

    def work() -> int:
        with stoppable() as stop:
            return len(list(train_runs(in_turn([run]), at_once=1, stop=stop)))

    def wait_for(lines: list[str]) -> None:
        deadline = time.monotonic() + 300
        while not log.exists() or log.read_text().split() != lines:
            assert time.monotonic() < deadline
            time.sleep(0.01)

    child = fork(work)
    wait_for(["begun"])
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    wait_for(["begun", "stopped"])


def test_a_run_is_begun_when_the_training_before_it_has_let_go(
    plan: Path, tmp_path: Path, stand_in: StandIn, monkeypatch
) -> None:
    """Who was killed may still be saving."""
    stand_in("exit 0")
    run = runs_of(plan, tmp_path, "seeds=[1]")[0]
    with RunDirectory(run.folder).locked(), stoppable() as stop:
        monkeypatch.setattr(processes, "_SAVING_SECONDS", 0.1)
        with pytest.raises(UsageError, match="in use"):
            next(train_runs(in_turn([run]), at_once=1, stop=stop))
        waited = list[float]()

        def let_go(seconds: float) -> None:
            waited.append(seconds)
            (run.folder / "lock").unlink(missing_ok=True)

        monkeypatch.setattr(processes, "_SAVING_SECONDS", 60.0)
        monkeypatch.setattr(processes.time, "sleep", let_go)
        assert next(train_runs(in_turn([run]), at_once=1, stop=stop)) == (run, None)
        assert waited


def test_a_run_goes_on_to_the_next_budget_and_to_no_other_length(plan: Path, tmp_path: Path) -> None:
    run = runs_of(plan, tmp_path, "budgets=[4, 8]")[0]
    stored = RunDirectory(run.folder).resolved_config
    run.folder.mkdir(parents=True)
    write_json(stored, runs_of(plan, tmp_path, "settings.1=training.max_updates=8")[0].loaded.resolved)
    require_own_folder(run)
    alone = runs_of(plan, tmp_path)[0]
    assert alone.budget == END
    with pytest.raises(UsageError, match="max_updates=8, and the plan has 4"):
        require_own_folder(alone)
