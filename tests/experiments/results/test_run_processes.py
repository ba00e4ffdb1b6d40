"""The trainings of a results page: processes of their own, several at a time, and signals."""

from __future__ import annotations

import signal
import sys
import time
from pathlib import Path

import pytest

from deepwire.errors import UsageError
from deepwire.experiments.results import run_processes
from deepwire.experiments.results.planned_runs import load_plan
from deepwire.experiments.results.run_processes import Failure, Stopped, stoppable, train_runs

sys.path.insert(0, str(Path(__file__).parents[2] / "training"))
from forked import Piped

_LONG = f"loss not finite: {'x' * 300}"


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP], ids=["asked", "terminal closed"])
def test_a_signal_stops_it_and_the_same_command_goes_on(
    plan: Path, tmp_path: Path, number: signal.Signals
) -> None:
    folder = tmp_path / "results"
    before = signal.signal(number, signal.SIG_DFL)  # a program begun with nohup ignores one of them
    process = Piped(
        *("results", str(plan), "--folder", str(folder)),
        *(
            "--only",
            "plain",
            "settings=[training.max_updates=100k, training.validation.every=100k]",
        ),
    )
    signal.signal(number, before)
    metrics = folder / "runs" / "de-en" / "plain" / "seed-1" / "metrics.jsonl"
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
    run = folder / "runs" / "de-en" / "plain" / "seed-1"
    saved = sorted(path.name for path in (run / "checkpoints").glob("update-*"))
    assert len(saved) == 1
    assert not (run / "DONE").exists()


@pytest.mark.parametrize(
    ("code", "outcome"),
    [(0, None), (5, _LONG), (2, UsageError), (130, Stopped), (143, Stopped)],
)
def test_how_a_training_process_ended_decides_what_follows(
    plan: Path, tmp_path: Path, monkeypatch, code: int, outcome: object
) -> None:
    program = tmp_path / "program"
    lines = f"{'warning ' * 50}", f"error: {_LONG}"
    program.write_text("\n".join(["#!/bin/sh", *(f"echo '{line}' >&2" for line in lines), f"exit {code}"]))
    program.chmod(0o755)
    monkeypatch.setattr(run_processes.sys, "executable", str(program))
    run = load_plan(plan, tmp_path).runs[0]
    with stoppable() as stop:
        trained = train_runs([run], at_once=2, stop=stop)
        if isinstance(outcome, type):
            with pytest.raises(outcome):
                next(trained)
            return
        assert list(trained) == [(run, None if outcome is None else Failure(code, _LONG))]


def test_two_at_a_time_and_one_less_while_a_result_is_looked_at(
    plan: Path, tmp_path: Path, monkeypatch
) -> None:
    """Each run waits for a file; all that are left are stopped, and save themselves, when nobody waits."""
    program = tmp_path / "program"
    script = """
        trap "echo stopped >> $0.log; exit 143" TERM
        for word; do case $word in run=*) run=$(echo $word | tr / .);; esac; done
        echo begun $run >> $0.log
        until [ -e $0$run ]; do sleep 0.02; done
        echo ended $run >> $0.log
    """
    program.write_text(f"#!/bin/sh\n{script}")
    program.chmod(0o755)
    monkeypatch.setattr(run_processes.sys, "executable", str(program))
    runs = load_plan(plan, tmp_path, ["seeds=[1,2,3,4]"]).runs[:4]
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
        trained = train_runs(runs, at_once=2, stop=stop)
        assert next(trained) == (runs[1], None)
        assert sorted(lines(3)) == sorted([f"begun {names[0]}", f"begun {names[1]}", f"ended {names[1]}"])
        (tmp_path / f"program{names[2]}").touch()
        assert next(trained) == (runs[2], None)
        assert sorted(lines(5)[3:]) == [f"begun {names[2]}", f"ended {names[2]}"]
        trained.close()
    assert lines(6)[5:] == ["stopped"]
