"""Studies from end to end: trials, budgets, interruptions, what is kept, and the page."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from forked import Piped

from deepwire.cli.main import main
from deepwire.errors import UsageError
from deepwire.evaluation.metric_choice import LanguageMetrics
from deepwire.lab.study import runner
from deepwire.lab.study.plan import Study, StudyRun, read_plan
from deepwire.lab.study.processes import Failure
from deepwire.lab.study.store import unpack

StandIn = Callable[[Callable[[StudyRun], Failure | None]], object]
Train = Callable[[StudyRun], Failure | None]
ROOT = Path(__file__).parents[3]

LONG = [
    "settings=[training.log_every=1, training.max_updates=30, 'training.validation={every: 5}', "
    "'training.early_stopping={metric: nll, patience: 6}', 'training.checkpoint={every: 5, keep_last: 4}', "
    "training.threads=1]",
    "budgets=[15, 30]",
    "average=2",
    "search.max_updates=5",
    "systems.broken.settings=['training.schedule={type: constant, peak: 1e30}', training.clip_norm=null]",
    "more_tests.later=later",
]


@dataclass(frozen=True)
class Done:
    """A study, carried out."""

    folder: Path
    command: list[str]
    said: str
    trained: list[str]

    def result(self, run: str) -> dict[str, Any]:
        record: dict[str, Any] = json.loads(
            (self.folder / "results" / "plan" / "runs" / f"{run}.json").read_text()
        )
        return record


@pytest.fixture(scope="module")
def done(
    plan: Path, train_here: Train, one_by_one: StandIn, tmp_path_factory: pytest.TempPathFactory
) -> Done:
    folder = tmp_path_factory.mktemp("carried-out")
    command = ["study", str(plan), *LONG, "--quiet"]
    said, trained = io.StringIO(), list[str]()

    def train(run: StudyRun) -> Failure | None:
        trained.append(f"{run.folder.relative_to(folder / 'plan')} {run.budget}".strip())
        return train_here(run)

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(said):
        patch.setattr(runner, "train_runs", one_by_one(train))
        assert main([*command, "seeds=[1]", "--folder", str(folder)]) == 0
    return Done(folder, command, said.getvalue(), trained)


def test_trials_come_first_and_then_budget_by_budget(done: Done) -> None:
    search, runs = "search/5/de-en", "runs/de-en"
    assert done.trained == [
        f"{search}/plain+own/seed-1",
        f"{search}/plain+slow/seed-1",
        f"{runs}/plain/seed-1 15",
        f"{runs}/lstm/seed-1 15",
        f"{runs}/broken/seed-1 15",
        f"{runs}/plain/seed-1 30",
        f"{runs}/lstm/seed-1 30",
    ]


def test_a_run_is_measured_at_each_budget_with_the_mean_of_regular_checkpoints(done: Done) -> None:
    result = done.result("de-en.plain.1")
    first, second = result["standings"]["15"], result["standings"]["30"]
    assert (first["updates"], first["averaged"], first["stood_still"]) == (15, [10, 15], False)
    assert second["updates"] == second["averaged"][-1] <= 30
    assert second["target_tokens"] > first["target_tokens"] > 0
    assert result["curve"]["updates"][:4] == [5, 10, 15, 20]
    assert first["settings"]["precision"] == "fp32"
    assert 0 <= first["last"] <= 100
    assert first["best_nll"] == min(result["curve"]["nll"][:3])
    assert result["parameters"] > 1000
    assert result["trained_with"]["torch"]
    test, later = first["tests"]["de-en"], first["tests"]["de-en later"]
    metric = LanguageMetrics(("bleu",)).of("en")[0]
    assert metric.score_of(unpack(test["statistics"]), 1).value == pytest.approx(test["bleu"])
    assert (test["sentences"], later["sentences"]) == (16, 20)
    lines = (done.folder / "plan" / "translations" / "de-en.plain.1.15.de-en.txt").read_text().splitlines()
    assert len(lines) == 16


def test_no_folder_of_this_machine_is_kept(done: Done, corpus: Path) -> None:
    texts = [path.read_text() for path in (done.folder / "results").rglob("*.json")]
    assert len(texts) == 5  # three runs and two trials
    assert not any(str(folder) in text for text in texts for folder in (done.folder, corpus))


def test_a_run_that_fails_is_shown_as_failed_and_the_next_follows(done: Done) -> None:
    result = done.result("de-en.broken.1")
    assert "standings" not in result
    assert "not finite" in result["failed"]["15"]
    assert "de-en.broken.1 to update 15: FAILED with exit code 5" in done.said
    page = (done.folder / "study.md").read_text()
    assert "| failed | de-en.broken.1: " in page
    assert "| plain (baseline) | own | " in page or "| plain (baseline) | slow | " in page
    assert (done.folder / "study" / "1-curves-1.svg").exists()
    assert "<img" in (done.folder / "study.html").read_text()


def test_what_is_done_is_not_done_again_and_what_failed_only_on_request(
    done: Done, one_by_one: StandIn, monkeypatch
) -> None:
    again = list[str]()

    def train(run: StudyRun) -> Failure | None:
        again.append(run.name)
        return Failure(5, "diverged again")

    monkeypatch.setattr(runner, "train_runs", one_by_one(train))
    command = [*done.command, "seeds=[1]", "--folder", str(done.folder)]
    assert main(command) == 0
    assert again == []
    assert main([*command, "--only", "broken", "--retry"]) == 0
    assert again == ["de-en.broken.1"]


@pytest.fixture
def begun(one_by_one: StandIn, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders of the runs that are begun; none of them is trained."""
    folders = list[Path]()

    def train(run: StudyRun) -> Failure | None:
        folders.append(run.folder)
        return Failure(1, "not today")

    monkeypatch.setattr(runner, "train_runs", one_by_one(train))
    return folders


def test_another_machine_goes_on_from_what_is_kept(done: Done, begun: list[Path], tmp_path: Path) -> None:
    results = shutil.copytree(done.folder / "results", tmp_path / "results")
    folders = ["--folder", str(tmp_path / "runs"), "--results", str(results)]
    assert main([*done.command, "seeds=[1]", *folders]) == 0
    assert begun == []
    trial = results / "plan" / "trials" / "de-en.plain+own.json"
    trial.write_text(json.dumps(json.loads(trial.read_text()) | {"text": "another"}))
    assert main([*done.command, "seeds=[1]", *folders]) == 0
    assert [folder.parent.name for folder in begun if "search" in folder.parts] == ["plain+own"]


def test_other_settings_are_trained_anew(done: Done, begun: list[Path], tmp_path: Path) -> None:
    results = shutil.copytree(done.folder / "results", tmp_path / "results")
    folders = ["--folder", str(tmp_path / "runs"), "--results", str(results)]
    assert main([*done.command, "seeds=[1]", *folders, "systems.lstm.settings=[model.dropout=0.1]"]) == 0
    assert begun[0].parent.name.startswith("lstm")


def test_results_that_are_gone_are_measured_again_without_training(
    done: Done, one_by_one: StandIn, train_here: Train, monkeypatch, tmp_path: Path
) -> None:
    trained = list[str]()

    def train(run: StudyRun) -> Failure | None:
        trained.append(f"{run.system} {run.budget}")
        return train_here(run)

    monkeypatch.setattr(runner, "train_runs", one_by_one(train))
    moved = shutil.copytree(done.folder / "plan", tmp_path / "moved" / "plan").parent
    folders = ["--folder", str(moved), "--results", str(tmp_path / "results")]
    assert main([*done.command, "seeds=[1]", "--only", "lstm", "--only", "broken", *folders]) == 0
    # Trials are made of what is there; the one failed.
    assert trained == ["plain ", "plain ", "broken 15"]
    again = json.loads((tmp_path / "results" / "plan" / "runs" / "de-en.lstm.1.json").read_text())
    for stop, standing in done.result("de-en.lstm.1")["standings"].items():
        for key in ("bleu", "statistics"):
            test = again["standings"][stop]["tests"]["de-en"]
            assert standing["tests"]["de-en"][key] == test[key]
        assert standing["averaged"] == again["standings"][stop]["averaged"]


def test_a_folder_of_other_runs_is_named_before_anything_is_trained(
    done: Done, begun: list[Path], capsys
) -> None:
    command = [*done.command, "seeds=[1]", "--folder", str(done.folder)]
    assert main([*command, "systems.lstm.settings=[model.dropout=0.1]"]) == 2
    assert "model.dropout" in capsys.readouterr().err
    assert begun == []


@pytest.mark.slow
def test_killed_at_any_time_the_same_command_goes_on_bit_for_bit(
    done: Done, train_here: Train, one_by_one: StandIn, tmp_path: Path, monkeypatch
) -> None:
    """`kill -9` of the command: its training saves itself and stops, and the rest comes out as without it."""
    command = [*done.command, "seeds=[1]", "search=null", "budgets=[15]", "--only", "plain"]
    command += ["--folder", str(tmp_path)]
    process = Piped(*command)
    run = tmp_path / "plan" / "runs" / "de-en" / "plain" / "seed-1"
    deadline = time.monotonic() + 300
    while not (run / "metrics.jsonl").exists() or '"train"' not in (run / "metrics.jsonl").read_text():
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    process.terminate(signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    while sys.platform == "linux" and (run / "lock").exists() and time.monotonic() < deadline:
        time.sleep(0.02)
    monkeypatch.setattr(runner, "train_runs", one_by_one(train_here))
    assert main(command) == 0
    kept = json.loads((tmp_path / "results" / "plan" / "runs" / "de-en.plain.1.json").read_text())
    whole = done.result("de-en.plain.1")
    assert kept["curve"]["nll"] == whole["curve"]["nll"][:3]
    mine, theirs = (each["standings"]["15"] for each in (kept, whole))
    assert mine["averaged"] == theirs["averaged"]
    assert mine["tests"]["de-en"]["statistics"] == theirs["tests"]["de-en"]["statistics"]


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["budgets=[17]"], "17 is no multiple of training.checkpoint.every"),
        (["average=4"], "keep_last has to be more than average=4"),
        (["systems.lstm.settings=['training.schedule={type: cosine, warmup: 5}']"], "ends with the run"),
        (["baseline=gone"], "'gone' is no system"),
        (["search.max_updates=30"], "a trial is shorter"),
        (["systems.lstm.one_model=true"], "directions=null"),
        (["text=gone"], "no such folder"),
        (["settings.0=data.train={text}/train"], "where is the text?"),
    ],
)
def test_mistakes_are_found_before_anything_is_trained(
    plan: Path, tmp_path: Path, changes: list[str], message: str
) -> None:
    with pytest.raises(UsageError) as error:
        Study(plan, tmp_path, [*LONG, *changes])
    assert message in str(error.value)


def test_a_run_file_is_no_plan(tmp_path: Path) -> None:
    (tmp_path / "run.yaml").write_text("data: {source: de, target: en, train: t}\nmodel: {d_model: 8}\n")
    with pytest.raises(UsageError, match=r"^\S*run\.yaml\S* is a run file, not the plan of a study[^\n]*$"):
        Study(tmp_path / "run.yaml", tmp_path)


def test_the_plans_of_the_repository_can_be_trained(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.chdir(ROOT)
    for path in sorted((ROOT / "examples" / "studies").glob("*.yaml")):
        if "base" in path.stem or path.with_suffix(".py").exists():  # one that brings code is trusted by hand
            continue
        overrides = ["text=tests"] if read_plan(path).text or "{text}" in path.read_text() else []
        study = Study(path, tmp_path, overrides)
        settings = {
            json.dumps([run.loaded.resolved[name] for name in ("model", "training", "data")], sort_keys=True)
            for system in study.plan.systems
            for run in [study.run(system, study.plan.parts(system)[0], 1, "own", study.plan.stops[0])]
        }
        assert len(settings) == len(study.plan.systems), f"{path}: two systems are the same"
