"""The queue of questions from end to end: trials, both goals, interruptions, and what is kept."""

from __future__ import annotations

import contextlib
import io
import json
import os
import shutil
import signal
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deepwire.cli.main import main
from deepwire.errors import UsageError
from deepwire.evaluation.metric_choice import LanguageMetrics
from deepwire.lab.experiments.questions import question_runner
from deepwire.lab.experiments.questions.question_results import unpack
from deepwire.lab.experiments.questions.question_runs import load_questions
from deepwire.lab.experiments.results.planned_runs import RunPlan
from deepwire.lab.experiments.results.run_processes import Failure
from deepwire.model.fusions.groups import GroupsConfig

sys.path.insert(0, str(Path(__file__).parents[3] / "training"))
from forked import Piped

StandIn = Callable[[Callable[[RunPlan], Failure | None]], object]
Train = Callable[[RunPlan], Failure | None]


@dataclass(frozen=True)
class Done:
    """The queue, carried out."""

    folder: Path
    results: Path
    command: list[str]
    said: str
    trained: list[str]

    def result(self, run: str) -> dict[str, Any]:
        record: dict[str, Any] = json.loads((self.results / "small" / "runs" / f"{run}.json").read_text())
        return record


@pytest.fixture(scope="module")
def done(
    plan: Path, train_here: Train, one_by_one: StandIn, tmp_path_factory: pytest.TempPathFactory
) -> Done:
    top = tmp_path_factory.mktemp("carried-out")
    command = ["questions", str(plan), "--folder", str(top / "runs"), "--results", str(top / "results")]
    said, trained = io.StringIO(), list[str]()

    def train(run: RunPlan) -> Failure | None:
        trained.append(str(run.folder.relative_to(top / "runs" / "small")))
        return train_here(run)

    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(said):
        patch.setattr(question_runner, "train_runs", one_by_one(train))
        assert main(command) == 0
    return Done(top / "runs", top / "results", command, said.getvalue(), trained)


def test_trials_come_first_and_then_the_queue_in_its_order(done: Done) -> None:
    search, runs = "search/10/de-en", "runs/de-en"
    assert done.trained == [
        f"{search}/plain+own/seed-1",
        f"{search}/plain+slow/seed-1",
        f"{runs}/lstm/seed-1",
        f"{runs}/broken/seed-1",
        f"{runs}/plain/seed-1",
        f"{runs}/plain/seed-1",  # on to the plateau
    ]


def test_both_goals_are_measured_with_the_mean_of_regular_checkpoints(done: Done) -> None:
    result = done.result("de-en.plain.1")
    equal, plateau = result["standings"]["equal"], result["standings"]["plateau"]
    assert (equal["updates"], equal["averaged"], equal["stood_still"]) == (30, [20, 30], False)
    assert plateau["updates"] == plateau["averaged"][-1] <= 60
    assert plateau["target_tokens"] > equal["target_tokens"] > 0
    curve = result["curve"]
    assert curve["updates"][:4] == [10, 20, 30, 40]
    assert equal["best_nll"] == min(curve["nll"][:3])
    assert result["parameters"] > 1000
    assert result["trained_with"]["torch"]


def test_the_kept_statistics_give_the_kept_score(done: Done) -> None:
    test = done.result("de-en.plain.1")["standings"]["equal"]["tests"]["de-en"]
    metric = LanguageMetrics(("bleu",)).of("en")[0]
    assert metric.score_of(unpack(test["statistics"]), 1).value == pytest.approx(test["bleu"])
    assert test["sentences"] == 16
    assert "version:" in test["signature"]


def test_no_folder_of_this_machine_is_kept(done: Done, corpus: Path) -> None:
    texts = [path.read_text() for path in done.results.rglob("*.json")]
    assert len(texts) == 4  # three runs and the trials
    for text in texts:
        assert str(done.folder) not in text
        assert str(corpus) not in text


def test_a_run_that_fails_is_kept_as_failed_and_the_next_follows(done: Done) -> None:
    result = done.result("de-en.broken.1")
    assert result["standings"] == {}
    assert "not finite" in result["failed"]["equal"]
    assert "Q1 broken seed 1 to the common update: FAILED with exit code 5" in done.said


def test_progress_says_what_is_done(done: Done) -> None:
    progress = json.loads((done.folder / "progress.json").read_text())
    states = {step["step"]: step["state"] for step in progress["steps"]}
    assert states["Q1 plain seed 1 to the plateau"] == "done"
    assert states["Q1 broken seed 1 to the common update"].startswith("failed: ")
    assert (progress["done"], progress["of"]) == (3, 4)


def test_what_is_done_is_not_done_again_and_what_failed_only_on_request(
    done: Done, one_by_one: StandIn, monkeypatch
) -> None:
    again = list[str]()

    def train(run: RunPlan) -> Failure | None:
        again.append(run.name)
        return Failure(5, "diverged again")

    monkeypatch.setattr(question_runner, "train_runs", one_by_one(train))
    assert main(done.command) == 0
    assert again == []
    assert main([*done.command, "--only", "Q1", "--retry"]) == 0
    assert again == ["de-en.broken.1"]


@pytest.fixture
def begun(one_by_one: StandIn, monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """Folders of the runs that are begun; none of them is trained."""
    folders = list[Path]()

    def train(run: RunPlan) -> Failure | None:
        folders.append(run.folder)
        return Failure(1, "not today")

    monkeypatch.setattr(question_runner, "train_runs", one_by_one(train))
    return folders


def test_another_machine_goes_on_from_what_is_kept(done: Done, begun: list[Path], tmp_path: Path) -> None:
    """Its folder of runs is empty: trials and runs whose outcome is kept are not made again."""
    results = shutil.copytree(done.results, tmp_path / "results")
    trials = results / "small" / "trials.json"
    before = trials.read_bytes()
    folders = ["--folder", str(tmp_path / "runs"), "--results", str(results)]
    assert main([*done.command[:2], *folders]) == 0
    assert begun == []
    kept = json.loads(before)
    kept["trials"][0]["text"] = "another"
    trials.write_text(json.dumps(kept))
    folders[1] = str(tmp_path / "others")
    assert main([*done.command[:2], *folders]) == 0
    assert [folder.parent.name for folder in begun if "search" in folder.parts] == ["plain+own"]


def test_other_settings_of_a_system_are_trained_anew(
    done: Done, plan: Path, begun: list[Path], tmp_path: Path
) -> None:
    change = "parts.small.settings=['systems.lstm.settings=[model.dropout=0.1]', search=null]"
    results = shutil.copytree(done.results, tmp_path / "results")
    folders = ["--folder", str(tmp_path / "runs"), "--results", str(results)]
    assert main(["questions", str(plan), *folders, change]) == 0
    assert [folder.parent.name for folder in begun] == ["lstm"]


@pytest.mark.parametrize("change", ["search.seed=7", "search.shorten_warmup=true"])
def test_trials_of_another_search_are_made_anew(
    done: Done, plan: Path, begun: list[Path], tmp_path: Path, change: str
) -> None:
    results = shutil.copytree(done.results, tmp_path / "results")
    folders = ["--folder", str(tmp_path / "runs"), "--results", str(results)]
    assert main(["questions", str(plan), *folders, f"parts.small.settings=['{change}']"]) == 0
    assert [folder.parent.name for folder in begun if "search" in folder.parts][:1] == ["plain+own"]


@pytest.fixture
def trained(train_here: Train, one_by_one: StandIn, monkeypatch) -> list[str]:
    """Which runs are trained from here on, and to which update."""
    seen = list[str]()

    def train(run: RunPlan) -> Failure | None:
        seen.append(f"{run.system} {run.loaded.config.training.max_updates}")
        return train_here(run)

    monkeypatch.setattr(question_runner, "train_runs", one_by_one(train))
    return seen


def test_results_that_are_gone_are_measured_again_without_training(
    done: Done, trained: list[str], tmp_path: Path
) -> None:
    assert main([*done.command[:4], "--results", str(tmp_path)]) == 0
    assert trained == ["broken 30", "plain 60"]  # the one failed; the other finds that it is done
    for run in ("lstm", "plain"):
        again = json.loads((tmp_path / "small" / "runs" / f"de-en.{run}.1.json").read_text())
        for goal, standing in done.result(f"de-en.{run}.1")["standings"].items():
            assert standing["tests"]["de-en"]["bleu"] == again["standings"][goal]["tests"]["de-en"]["bleu"]
            assert standing["averaged"] == again["standings"][goal]["averaged"]


def test_runs_that_were_moved_go_on_where_they_are(done: Done, trained: list[str], tmp_path: Path) -> None:
    shutil.copytree(done.command[3], tmp_path / "moved")
    folders = ["--folder", str(tmp_path / "moved"), "--results", str(tmp_path / "results")]
    assert main([*done.command[:2], *folders]) == 0
    assert trained == ["broken 30", "plain 60"]  # the one failed; the other finds that it is done


def test_a_run_of_other_settings_is_named_before_anything_is_trained(
    done: Done, one_by_one: StandIn, monkeypatch, capsys
) -> None:
    def train(run: RunPlan) -> Failure | None:
        raise AssertionError(run.name)

    monkeypatch.setattr(question_runner, "train_runs", one_by_one(train))
    before = (done.results / "small" / "runs" / "de-en.lstm.1.json").read_bytes()
    change = "parts.small.settings=['systems.lstm.settings=[model.dropout=0.1]', search=null]"
    assert main([*done.command, change]) == 2
    assert "lstm/seed-1: cannot go on, because this run was started otherwise" in capsys.readouterr().err
    assert (done.results / "small" / "runs" / "de-en.lstm.1.json").read_bytes() == before


def test_a_setting_of_decoding_that_changes_no_translation_may_differ(done: Done, trained: list[str]) -> None:
    changed = "decoding.cuda_graphs=false, decoding.batch_tokens=4096, decoding.window=64"
    assert main([*done.command, f"parts.small.settings=['systems.lstm.settings=[{changed}]']"]) == 0
    assert trained == []


def test_another_text_is_trained_anew(
    plan: Path, corpus: Path, done: Done, one_by_one: StandIn, monkeypatch, tmp_path: Path
) -> None:
    for language in ("de", "en"):
        lines = (corpus / f"train.{language}").read_text().splitlines(keepends=True)
        (tmp_path / f"train.{language}").write_text("".join(lines[:150]))
    begun = list[str]()

    def train(run: RunPlan) -> Failure | None:
        begun.append(run.system)
        return Failure(1, "not today")

    monkeypatch.setattr(question_runner, "train_runs", one_by_one(train))
    results = shutil.copytree(done.results, tmp_path / "results")
    command = ["questions", str(plan), "--folder", str(tmp_path / "runs"), "--results", str(results)]
    systems = (corpus / "systems.yaml").read_text()
    moved = systems.replace("settings:\n", f"settings:\n  - data.train={tmp_path / 'train'}\n", 1)
    try:
        (corpus / "systems.yaml").write_text(moved)
        assert main([*command, "parts.small.settings=[search=null]"]) == 0
    finally:
        (corpus / "systems.yaml").write_text(systems)
    assert begun == ["lstm", "broken", "plain"]


def test_text_that_is_missing_is_found_before_anything_is_trained(plan: Path, tmp_path: Path, capsys) -> None:
    change = "parts.small.settings=['settings.1=data.valid=gone', search=null]"
    folders = ["--folder", str(tmp_path / "runs"), "--results", str(tmp_path / "results")]
    limits = "queue=[{question: Q2}]"
    assert main(["questions", str(plan), *folders, change, limits]) == 3
    assert "gone" in capsys.readouterr().err


@pytest.mark.slow
def test_killed_at_any_time_the_same_command_goes_on_bit_for_bit(
    done: Done, plan: Path, train_here: Train, one_by_one: StandIn, tmp_path: Path, monkeypatch
) -> None:
    """`kill -9` of the command: its training saves itself and stops, and the rest comes out as without it."""
    folder, results = tmp_path / "runs", tmp_path / "results"
    command = ["questions", str(plan), "--folder", str(folder), "--results", str(results)]
    command += ["queue=[{question: Q2, systems: [plain]}]", "parts.small.settings=[search=null]"]
    process = Piped(*command)
    run = folder / "small" / "runs" / "de-en" / "plain" / "seed-1"
    deadline = time.monotonic() + 300
    while not (run / "metrics.jsonl").exists() or '"train"' not in (run / "metrics.jsonl").read_text():
        assert process.poll() is None, process.stderr.read().decode()
        assert time.monotonic() < deadline
        time.sleep(0.005)
    trainer = int((run / "lock").read_text().split()[1].strip(",")) if (run / "lock").exists() else 0
    process.terminate(signal.SIGKILL)
    assert process.wait(60) == -signal.SIGKILL
    if sys.platform == "linux":
        while trainer and Path(f"/proc/{trainer}").exists():
            assert time.monotonic() < deadline, "the training outlived its parent"
            time.sleep(0.02)
    monkeypatch.setattr(question_runner, "train_runs", one_by_one(train_here))
    assert main(command) == 0
    kept = json.loads((results / "small" / "runs" / "de-en.plain.1.json").read_text())
    whole = done.result("de-en.plain.1")
    assert kept["standings"]["equal"]["averaged"] == whole["standings"]["equal"]["averaged"]
    assert kept["curve"]["nll"] == whole["curve"]["nll"][:3]
    mine, theirs = (each["standings"]["equal"]["tests"]["de-en"] for each in (kept, whole))
    assert mine["statistics"] == theirs["statistics"]


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("parts.small.equal_updates=70", "training.max_updates=60 is below equal_updates=70"),
        ("parts.small.plateau=false", "until plateau, but parts.small.plateau is false"),
        ("parts.small.equal_updates=35", "equal_updates=35 is no multiple of training.checkpoint.every=10"),
        ("parts.small.average=4", "keep_last=4 is too few for average=4"),
        ("parts.small.settings=['settings.3=training.log_every=1']", "no training.early_stopping"),
        ("queue=[{question: Q9}]", "'Q9' is no question of this plan"),
        ("queue=[{question: Q1, systems: [gone]}]", "'gone' is no system of Q1"),
        ("queue=[{question: Q1, seeds: [7]}]", "part small has no seed 7"),
        ("questions.Q2.systems=[plain, lstm, gone]", "part small has no system 'gone'"),
        ("questions.Q2.claims.0.than=plain", "'plain' is compared with itself"),
        ("questions.Q2.part=gone", "'gone' is no part of this plan"),
    ],
)
def test_mistakes_are_found_before_anything_is_trained(
    plan: Path, tmp_path: Path, change: str, message: str
) -> None:
    with pytest.raises(UsageError) as error:
        load_questions(plan, tmp_path, [change])
    assert message in str(error.value)


@pytest.mark.parametrize("schedule", ["cosine", "wsd"])
def test_a_schedule_that_follows_the_length_cannot_go_on_to_a_plateau(
    schedule: str, plan: Path, tmp_path: Path
) -> None:
    settings = f"'training.schedule={{type: {schedule}, warmup: 5}}'"
    change = f'parts.small.settings=["settings.1={settings}"]'
    with pytest.raises(UsageError, match=f"schedule {schedule} ends where the run ends") as caught:
        load_questions(plan, tmp_path, [change])
    assert "training.schedule.updates" in caught.value.hint
    of_its_own = change.replace("warmup: 5", "warmup: 5, updates: 60")
    assert load_questions(plan, tmp_path, [of_its_own]).steps


def test_without_a_plateau_runs_end_where_they_are_compared(plan: Path, tmp_path: Path) -> None:
    changes = ["parts.small.plateau=false", "queue=[{question: Q1}]"]
    with pytest.raises(UsageError, match=r"max_updates=60 is above equal_updates=30"):
        load_questions(plan, tmp_path, changes)
    assert load_questions(plan, tmp_path, [*changes, "parts.small.equal_updates=60"]).steps


def test_the_questions_of_the_repository_can_be_trained(tmp_path: Path, monkeypatch) -> None:
    root = Path(__file__).parents[4]
    monkeypatch.chdir(root)
    loaded = load_questions(root / "examples" / "questions" / "questions.yaml", tmp_path, ["text=tests"])
    asked = {(each.part, name) for each in loaded.plan.questions.values() for name in each.systems}
    assert asked == {(name, system) for name, part in loaded.parts.items() for system in part.systems}
    assert {(step.part, step.system) for step in loaded.steps} == asked, "a system is never trained"
    part = loaded.parts["captions"]
    settings = {
        json.dumps([run.loaded.resolved[name] for name in ("model", "training")], sort_keys=True)
        for system in part.systems
        for run in part.runs(system, 1, "equal")
    }
    assert len(settings) == len(part.systems), "two systems are the same"
    first = list(dict.fromkeys(step.system for step in loaded.steps))[:3]
    assert first == ["post-norm", "pre-norm", "depth-lstm-open"]
    for run in part.runs("gtrans-12", 1, "plateau"):
        fusions = run.loaded.config.model.encoder.fusion, run.loaded.config.model.decoder.fusion
        assert [each.size for each in fusions if isinstance(each, GroupsConfig)] == [3, 2], (
            "groups of one layer are what its paper advises against"
        )
    assert os.environ.get("OMP_NUM_THREADS") is None or all(
        run.loaded.config.training.threads == 1 for run in part.runs("post-norm", 1, "equal")
    )
