"""The results page: plans, what is kept, what fails; how it is judged is in test_ranking.py."""

from __future__ import annotations

import contextlib
import io
import json
import shutil
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import load_model
from deepwire.cli.main import main
from deepwire.errors import ModelError, UsageError
from deepwire.evaluation.metric_choice import corpus_score
from deepwire.lab.experiments.results import experiment_runner
from deepwire.lab.experiments.results.experiment_runner import ExperimentRunner, GatheredResults
from deepwire.lab.experiments.results.planned_runs import RunPlan, load_plan
from deepwire.lab.experiments.results.result_pages import write_pages
from deepwire.lab.experiments.results.results_plan import SearchPlan
from deepwire.lab.experiments.results.run_measurement import RunResult, time_decoding
from deepwire.lab.experiments.results.run_processes import Failure
from deepwire.lab.experiments.results.settings_search import SettingsSearch

StandIn = Callable[[Callable[[RunPlan], Failure | None]], object]


def rows(record: dict[str, Any], analysis: str, table: int = 0) -> list[list[Any]]:
    finding = next(each for each in record["findings"] if each["analysis"] == analysis)
    return finding["tables"][table]["rows"]


def measured(runner: ExperimentRunner, run: RunPlan) -> RunResult:
    result = runner.result(run, "de-en")
    assert result is not None
    return result


@dataclass(frozen=True)
class Done:
    """The plan, carried out."""

    folder: Path
    markdown: Path
    command: list[str]
    said: str


@pytest.fixture(scope="module")
def done(
    plan: Path,
    train_here: Callable[[RunPlan], Failure | None],
    one_by_one: StandIn,
    tmp_path_factory: pytest.TempPathFactory,
) -> Done:
    top = tmp_path_factory.mktemp("carried-out")
    folder, page = top / "results", top / "page.md"
    page.symlink_to("real.md")
    folder.mkdir()
    (folder / "results.md").symlink_to(top / "copy.md")
    command = ["results", str(plan), "--folder", str(folder), "--markdown", str(page), "--quiet"]
    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(said):
        patch.setattr(experiment_runner, "train_runs", one_by_one(train_here))
        assert main(command) == 0
    return Done(folder, page, command, said.getvalue())


def test_a_search_takes_what_has_the_lowest_validation_loss(
    plan: Path,
    train_here: Callable[[RunPlan], Failure | None],
    one_by_one: StandIn,
    tmp_path: Path,
    monkeypatch,
    capsys,
) -> None:
    folder = tmp_path / "results"
    alternatives = (
        "{fast: [training.schedule.peak=0.02], twin: [training.schedule.peak=1e-6], "
        "wild: ['training.schedule={peak: 1e30, warmup: 0}', training.clip_norm=null]}"
    )
    settings = "[training.max_updates=8, training.log_every=2, training.schedule.peak=1e-6]"
    command = ["results", str(plan), f"settings={settings}", "--folder", str(folder), "--only", "plain", "-q"]
    command.append(f"search={{max_updates: 4, alternatives: {alternatives}}}")
    trained: list[str] = []

    def train(run: RunPlan) -> Failure | None:
        trained.append(run.folder.relative_to(folder).as_posix())
        if len(trained) == 2:
            signal.raise_signal(signal.SIGTERM)
        return train_here(run)

    monkeypatch.setattr("deepwire.cli.results.can_plot", lambda *_: False)
    monkeypatch.setattr(experiment_runner, "train_runs", one_by_one(train))
    assert main(command) == 143
    assert main([*command, "--report-only"]) == 0
    losses = {one["alternatives"][0]: one["loss"] for one in trials(folder)}
    assert losses["own"] > 0
    assert losses["fast"] is losses["wild"] is None
    assert not any(one["taken"] for one in trials(folder))
    assert main(command) == 0
    tried = [f"search/4/de-en/plain+{name}/seed-1" for name in ("own", "fast", "fast", "wild")]
    assert trained == [*tried, "runs/de-en/plain+fast/seed-1"]
    found = {tuple(one["alternatives"]): one for one in trials(folder)}
    assert found["fast",]["loss"] < found["own", "twin"]["loss"]
    assert [names for names, one in found.items() if one["taken"]] == [("fast",)]
    assert found["wild",]["failed"] == "no finite validation loss"
    metrics = (folder / tried[1] / "metrics.jsonl").read_text().splitlines()
    scores = [json.loads(line) for line in metrics]
    assert found["fast",]["loss"] == min(one["nll"] for one in scores if one["kind"] == "valid")
    page = (folder / "results.md").read_text()
    assert "the search for settings" in page
    assert "constant, peak 0.02, warmup 2" in page
    assert "not tried yet" in page  # the trials of the other systems
    record = json.loads((folder / "results.json").read_text())
    assert [(one["system"], one["updates"]) for one in record["runs"]] == [("plain", 8)]
    resolved = json.loads((folder / tried[0] / "config.resolved.json").read_text())
    assert resolved["training"]["schedule"]["warmup"] == 2  # of 5, in half as many updates
    trained.clear()
    assert main(command) == 0
    assert trained == []


def trials(folder: Path) -> list[dict[str, Any]]:
    """Those of the one system that is trained."""
    found = json.loads((folder / "results.json").read_text())["trials"]
    return [one for one in found if one["system"] == "plain"]


def test_what_was_measured_is_shown_and_so_is_what_failed(done: Done, plan: Path) -> None:
    assert "broken seed 1: FAILED with exit code 5" in done.said
    assert "warning: lstm, plain: training.max_updates=4 ends the run within the warm-up" in done.said
    record = json.loads((done.folder / "results.json").read_text())
    assert {one["system"] for one in record["runs"]} == {"lstm", "plain"}
    for one in record["runs"]:
        model = load_model(find_model(f"{done.folder}/runs/{one['direction']}/{one['system']}/seed-1")).model
        assert one["parameters"] == sum(parameter.numel() for parameter in model.parameters())
    assert [one["run"] for one in record["failed"]] == ["de-en.broken.1"]
    findings = json.loads((done.folder / "findings.json").read_text())
    ranking = rows(findings, "league-de-en")
    assert {row[1] for row in ranking} == {"lstm (baseline)", "plain"}
    assert [row[2] for row in ranking] == sorted((row[2] for row in ranking), reverse=True)
    reference = (plan.parent / "test.en").read_text().splitlines()
    for one in record["runs"]:
        lines = (done.folder / "translations" / f"de-en.{one['system']}.1.txt").read_text().splitlines()
        assert one["bleu"] == pytest.approx(corpus_score("bleu", lines, reference).value)
        assert one["updates"] == 4
    outcomes = {row[0]: row[7] for row in rows(findings, "claims", 1)}
    assert outcomes["lstm above broken (BLEU)"] == "broken failed"
    assert outcomes["lstm above unknown (BLEU)"] == "unknown not measured"
    assert done.markdown.is_symlink()
    assert (done.folder / "results.md").is_symlink()
    page = done.markdown.read_text()
    assert page.startswith("# Two small systems\n\nFour updates teach nothing.\n\n## ")
    assert "de-en.broken.1" in page


def test_more_tests_are_translated_shown_and_judged_together(done: Done, plan: Path) -> None:
    findings = json.loads((done.folder / "findings.json").read_text())
    shown = {row[1].split()[0]: row for row in rows(findings, "texts-de-en")}
    assert set(shown) == {"lstm", "plain"}
    here = {row[0]: row[5] for row in rows(findings, "claims", 1)}["lstm above plain (BLEU)"]
    both = {}
    for system, row in shown.items():
        places = [done.folder / f"translations/{name}de-en.{system}.1.txt" for name in ("", "more/")]
        texts = [
            (place.read_text().splitlines(), (plan.parent / f"{name}.en").read_text().splitlines())
            for place, name in zip(places, ("test", "later"), strict=True)
        ]
        (first, reference), (second, other) = texts
        texts.append((first + second, reference + other))
        scores = [corpus_score("bleu", *text).value for text in texts]
        assert row[3:6] == pytest.approx(scores)
        both[system] = f"{scores[2]:.2f}"
    assert here == f"{both['lstm']} / {both['plain']}"
    outcome = {row[0]: row[6:8] for row in rows(findings, "claims", 1)}["lstm above plain (BLEU)"]
    assert outcome[0] == max(row[9] or 0.0 for row in shown.values()), "the p of all test sets as one"
    assert "more, 20 pairs" in done.markdown.read_text()


def test_more_tests_that_come_later_are_translated_without_training(
    done: Done, plan: Path, tmp_path: Path, one_by_one: StandIn, monkeypatch, capsys
) -> None:
    folder = shutil.copytree(done.folder, tmp_path / "results")
    for language in ("de", "en"):
        shutil.copy(plan.parent / f"test.{language}", tmp_path / f"new.{language}")
    with pytest.raises(UsageError, match=r"more_tests\.new: the same text as data\.test"):
        load_plan(plan, folder, [f"more_tests={{new: {tmp_path}/new}}"])
    with (tmp_path / "new.en").open("a") as english, (tmp_path / "new.de").open("a") as german:
        english.write("A cat.\n")
        german.write("Eine Katze.\n")
    loaded = load_plan(plan, folder, [f"more_tests={{more: later, new: {tmp_path}/new}}"])
    runner, said = ExperimentRunner(loaded, folder, print), []
    monkeypatch.setattr(experiment_runner, "train_runs", one_by_one(lambda run: said.append(run.name)))
    runs = [run for run in loaded.runs if run.system != "broken"]

    def missing(runner: ExperimentRunner) -> list[list[str]]:
        return [runner.extra_tests.missing(run, measured(runner, run)) for run in runs]

    assert missing(runner) == [["new"], ["new"]]
    write_pages(runner, html=False)
    page = (folder / "results.md").read_text()
    assert "Not translated yet: lstm.1, plain.1." in page
    checkpoints = (runs[1].folder / "checkpoints").rename(tmp_path / "deleted")
    runner.run_plan()
    assert "plain.1: more test sets are not translated: " in capsys.readouterr().out
    assert missing(runner) == [[], ["new"]]
    checkpoints.rename(runs[1].folder / "checkpoints")
    runner.run_plan()
    assert said == []
    for run in runs:
        found = runner.extra_tests.lines(run, measured(runner, run), "new")
        assert found is not None
        assert len(found) == len(runner.lines(run, "de-en")) + 1
    text = (tmp_path / "new.en").read_text()
    (tmp_path / "new.en").write_text(text.replace("A cat.", "A dog."))
    again = ExperimentRunner(load_plan(plan, folder, [f"more_tests={{new: {tmp_path}/new}}"]), folder, print)
    assert missing(again) == [["new"], ["new"]], "the text has changed"
    (tmp_path / "new.en").write_text(text)
    again = ExperimentRunner(load_plan(plan, folder, [f"more_tests={{new: {tmp_path}/new}}"]), folder, print)
    assert missing(again) == [[], []]
    result = again.result(runs[0], "de-en").model_copy(update={"model": "another"})
    assert again.extra_tests.missing(runs[0], result) == ["more", "new"], "it was trained anew"
    with pytest.raises(ModelError, match="not the one that was measured"):
        again.extra_tests.translate(runs[0], result)


def test_what_is_done_is_not_done_again(
    done: Done, plan: Path, one_by_one: StandIn, capsys, monkeypatch
) -> None:
    def never(run: RunPlan) -> Failure | None:
        raise AssertionError(f"{run.name} was trained again")

    monkeypatch.setattr(experiment_runner, "train_runs", one_by_one(never))
    before = json.loads((done.folder / "results.json").read_text())
    assert main(done.command) == 0
    assert "broken seed 1: failed before" in capsys.readouterr().err
    assert json.loads((done.folder / "results.json").read_text()) == before
    with pytest.raises(AssertionError, match=r"broken\.1 was trained again"):
        ExperimentRunner(load_plan(plan, done.folder), done.folder, print).run_plan(retry=True)
    # Other settings are another run.
    other = load_plan(plan, done.folder, ["seeds=[2]"])
    with pytest.raises(AssertionError, match=r"plain\.2 was trained again"):
        ExperimentRunner(other, done.folder, print).run_plan(["plain"], ["de-en"])


def test_what_was_timed_beside_a_training_is_timed_again_by_turns(
    done: Done, plan: Path, tmp_path: Path, one_by_one: StandIn, monkeypatch, capsys
) -> None:
    loaded = load_plan(plan, done.folder, ["rounds=2"])
    runner = ExperimentRunner(loaded, done.folder, print, at_once=2)
    before = {}
    for result in runner.gather().results:
        assert result.decoding_alone
        before[result.system] = result
        path = done.folder / "measured" / f"de-en.{result.system}.1.json"
        record = json.loads(path.read_text())
        record["record"]["found"] |= {"decoding_alone": False, "decoding_speed": 1e-9}
        path.write_text(json.dumps(record))
    timed: list[tuple[str, float]] = []

    def spy(run: RunPlan, *rest: Any) -> RunResult:
        result = time_decoding(run, *rest)
        timed.append((run.system, result.decoding_speed))
        return result

    monkeypatch.setattr(experiment_runner, "train_runs", one_by_one(lambda _: None))
    monkeypatch.setattr(experiment_runner, "time_decoding", spy)
    runner.run_plan()
    assert [system for system, _ in timed] == ["lstm", "plain"] * 2
    for result in runner.gather().results:
        speed = max(speed for system, speed in timed if system == result.system)
        assert speed > 0
        assert result == before[result.system].model_copy(update={"decoding_speed": speed})
    runner.run_plan()
    assert len(timed) == 4
    # Without its checkpoint a model keeps what was measured, and the others are timed.
    shutil.copytree(done.folder, tmp_path / "results")
    runner = ExperimentRunner(load_plan(plan, tmp_path / "results"), tmp_path / "results", print, at_once=2)
    for run in runner.loaded.runs:
        if (kept := runner.result(run, "de-en")) is not None:
            runner._keep(run, kept.model_copy(update={"decoding_alone": False}))
    shutil.rmtree(tmp_path / "results" / "runs" / "de-en" / "lstm" / "seed-1" / "checkpoints")
    runner.run_plan()
    assert "lstm.1: its decoding is not timed again: " in capsys.readouterr().out
    assert [one.decoding_alone for one in runner.gather().results] == [False, True]


def test_what_an_earlier_version_measured_still_counts(done: Done, plan: Path) -> None:
    """A version that lacks a setting recorded none of it; the setting's default means what it always did."""
    loaded = load_plan(plan, done.folder)
    run = next(run for run in loaded.runs if run.system == "plain")
    path = done.folder / "measured" / f"{run.name}.json"
    kept = path.read_text()
    record = json.loads(kept)
    settings = record["record"]["settings"]
    del settings["training"]["compile"]
    settings["data"]["prepared"] = "elsewhere"
    path.write_text(json.dumps(record))
    assert ExperimentRunner(loaded, done.folder, print).result(run, "de-en") is not None
    settings["training"]["batch_tokens"] = 7
    path.write_text(json.dumps(record))
    assert ExperimentRunner(loaded, done.folder, print).result(run, "de-en") is None
    path.write_text(kept)


def test_what_was_done_counts_wherever_the_text_lies_but_not_for_another_text(
    done: Done, plan: Path, tmp_path: Path
) -> None:
    moved = shutil.copytree(plan.parent, tmp_path / "moved") / plan.name
    loaded = load_plan(moved, done.folder)
    run = next(run for run in loaded.runs if run.system == "plain")
    assert ExperimentRunner(loaded, done.folder, print).result(run, "de-en") is not None
    for role in ("train", "valid", "test"):
        text = Path(str(run.loaded.config.data.corpora()[role][0].prefix) + ".en")
        assert text.is_relative_to(tmp_path)
        before = text.read_text()
        text.write_text(before.replace("a", "o"))
        assert ExperimentRunner(loaded, done.folder, print).result(run, "de-en") is None, role
        text.write_text(before)
    assert ExperimentRunner(loaded, done.folder, print).result(run, "de-en") is not None
    # Pages, too, are made from the text where it is now.
    stored = run.folder / "config.resolved.json"
    kept = stored.read_text()
    stored.write_text(kept.replace(str(plan.parent), "/nowhere"))
    write_pages(ExperimentRunner(loaded, done.folder, print), html=False)
    stored.write_text(kept)


def test_what_an_earlier_version_kept_counts_where_its_text_lay(
    done: Done, plan: Path, tmp_path: Path
) -> None:
    """That version kept no digest of the text."""
    path = done.folder / "measured" / "de-en.plain.1.json"
    kept = path.read_text()
    record = json.loads(kept)
    del record["record"]["text"]
    path.write_text(json.dumps(record))
    moved = shutil.copytree(plan.parent, tmp_path / "moved") / plan.name
    found = []
    for where in (plan, moved):
        loaded = load_plan(where, done.folder)
        run = next(run for run in loaded.runs if run.system == "plain")
        found.append(ExperimentRunner(loaded, done.folder, print).result(run, "de-en") is not None)
    path.write_text(kept)
    assert found == [True, False]


def test_a_browser_opens_the_page(done: Done, open_in_browser: Callable[[Path], str]) -> None:
    pytest.importorskip("matplotlib")
    page = open_in_browser(done.folder / "results.html")
    assert page.count("<h2") == 4
    assert "lstm (baseline)" in page
    assert "<p>Four updates teach nothing.</p>" in page


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("baseline=nobody", "is no system of this plan"),
        ("seeds=[1,1]", "a seed is given twice"),
        ("systems.plain.both=[connection=magic]", "system plain"),
        ("directions={De En: []}", "directions"),
        ("base=nowhere.yaml", "no such file"),
        (
            "systems.plain.settings=['training.schedule={type: cosine, warmup: 300, updates: 4}']",
            "where the cosine ends",
        ),
        ("families={slow: {systems: [nobody], settings: [seed=1]}}", "families.slow: 'nobody' is no system"),
        (
            "families={a: {systems: [plain], settings: [seed=1]}, b: {systems: [plain], settings: [seed=1]}}",
            "families.b: 'plain' is in families.a too",
        ),
        (
            "search={max_updates: 4}",
            "search.max_updates: 4 is not below training.max_updates=4 of system lstm",
        ),
        ("systems.plain.one_model=true", "more_tests: not where directions are shown together"),
        ("more_tests={two: later}", "more_tests.two: the same text as more_tests.more"),
        ("directions={all: []}", "'all' is the name of all of them together"),
        ("search={max_updates: 2, direction: x}", "search.direction: 'x' is no direction"),
        ("search={max_updates: 2, alternatives: {own: []}}", "'own' stands for the settings as they are"),
        ("search={max_updates: 2, alternatives: {x: [training.x=1]}}", "system lstm, alternative x: "),
        ("systems.plain.alternatives={x: []}", "systems.plain: has alternatives, but the plan has no search"),
    ],
)
def test_mistakes_are_found_before_anything_is_trained(
    plan: Path, tmp_path: Path, capsys, change: str, message: str
) -> None:
    folder = tmp_path / "results"
    assert main(["results", str(plan), change, "--folder", str(folder)]) == 2
    assert message in capsys.readouterr().err
    assert not folder.exists()


def test_a_mistake_in_a_plan_is_told_with_its_line(plan: Path, tmp_path: Path) -> None:
    """Each setting of a run where the plan has it, be that the command line."""
    wrong = plan.parent / "wrong.yaml"
    wrong.write_text("extends: plan.yaml\nsystems:\n  plain:\n    both:\n      - connection=magic\n")
    lines = refusal(wrong, tmp_path).message.splitlines()
    assert [line.partition(": must be")[0] for line in lines] == [
        f"{wrong}:5: system plain: model.encoder.connection",
        f"{wrong}:5: system plain: model.decoder.connection",
    ]
    told = refusal(plan, tmp_path, "settings=[training.max_update=3]").message
    assert told.startswith("command line: system lstm: training.max_update: unknown key")
    told = refusal(plan, tmp_path, "systems.plain.settings=[model.heads=5]").message
    assert told.startswith("command line: system plain: model: heads: 5 heads do not divide")


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        (["directions.foo=[]"], "command line: directions.foo: 'foo' is not a direction"),
        (["groups.g=[English]"], "command line: groups.g: 'English' is not a language tag"),
        (["groups.g=[fr]"], "command line: groups.g: no direction of this plan has 'fr'"),
    ],
)
def test_a_wrong_language_is_told_with_its_key(
    plan: Path, tmp_path: Path, changes: list[str], message: str
) -> None:
    together = ["more_tests.more=null", "comparisons=[{system: plain, baseline: lstm}]"]
    assert refusal(plan, tmp_path, *together, *changes).message.startswith(message)


def refusal(plan: Path, tmp_path: Path, *changes: str) -> UsageError:
    with pytest.raises(UsageError) as raised:
        load_plan(plan, tmp_path / "results", changes)
    return raised.value


def test_a_file_in_place_of_the_folder_is_found_before_anything_is_trained(
    plan: Path, tmp_path: Path, capsys
) -> None:
    (tmp_path / "file").touch()
    for folder in (tmp_path / "file", tmp_path / "file" / "below"):
        assert main(["results", str(plan), "--folder", str(folder)]) == 2
        assert f"--folder: {tmp_path}/file is a file, not a folder" in capsys.readouterr().err
    (tmp_path / "config.resolved.json").touch()
    assert main(["results", str(plan), "--folder", str(tmp_path)]) == 2
    assert f"--folder: {tmp_path} is the directory of a training run" in capsys.readouterr().err


def test_a_test_set_that_is_not_there_is_found_before_anything_is_trained(
    plan: Path, tmp_path: Path, capsys
) -> None:
    folder = tmp_path / "results"
    assert main(["results", str(plan), "more_tests={gone: nowhere}", "--folder", str(folder)]) == 3
    assert f"{plan.parent}/nowhere.de: no such file" in capsys.readouterr().err
    assert not folder.exists()


def test_a_folder_of_other_settings_is_not_taken_for_this_plan(done: Done, plan: Path, capsys) -> None:
    """`deepwire train` lets some settings change in the middle of a run, and would find nothing to do."""
    command = ["results", str(plan), "--folder", str(done.folder), "--only", "plain"]
    for change, said in (
        ("max_updates=2", "training.max_updates=4, and the plan has 2"),
        ("clip_norm=null", "training.clip_norm=1.0, and the plan has null"),
    ):
        assert main([*command, f"systems.plain.settings=[training.{change}]"]) == 2
        assert f"plain/seed-1: was trained with {said}" in capsys.readouterr().err


def test_a_report_of_changed_settings_replaces_none(done: Done, plan: Path, tmp_path: Path, capsys) -> None:
    folder = shutil.copytree(done.folder, tmp_path / "results")
    command = ["results", str(plan), "--folder", str(folder), "--report-only", "-q"]
    before = (folder / "results.json").read_bytes()
    for change, why in (
        ("seeds=[9]", "there are de-en.lstm.1, de-en.plain.1"),
        ("settings.0=training.max_updates=8", "de-en.lstm.1: measured with training.max_updates=4, now 8"),
    ):
        assert main([*command, change]) == 2
        assert f"{folder}: nothing that was measured there is of this plan: {why}" in capsys.readouterr().err
        assert (folder / "results.json").read_bytes() == before
    assert main([*command, "systems.plain.settings=[training.log_every=1]"]) == 0
    assert (
        "not on the pages: de-en.plain.1: measured with training.log_every=2, now 1"
        in capsys.readouterr().err
    )


def test_the_text_of_a_plan_lies_where_the_command_runs(plan: Path, tmp_path: Path, monkeypatch) -> None:
    (tmp_path / "here").mkdir()
    for language in ("de", "en"):
        shutil.copy(plan.parent / f"later.{language}", tmp_path / "here" / f"own.{language}")
    monkeypatch.chdir(tmp_path)
    loaded = load_plan(plan, tmp_path, ["text=here", "more_tests={more: null, own: '{text}/own'}"])
    assert len(loaded.more["de-en"]["own"][0].lines) == 20


def test_an_unknown_system_or_direction_is_named(plan: Path, tmp_path: Path, capsys) -> None:
    for option in ("--only", "--direction"):
        assert main(["results", str(plan), option, "x", "--folder", str(tmp_path / "r")]) == 2
        assert f"{option}: the plan has no 'x'" in capsys.readouterr().err


def test_what_has_not_been_run_is_named_briefly(plan: Path, tmp_path: Path) -> None:
    loaded = load_plan(plan, tmp_path, ["seeds=[1,2]"])
    missing = tuple((run, run.directions) for run in loaded.runs if run.name != "de-en.broken.1")
    gathered = GatheredResults((), (), missing)
    said = ["Not run yet: de-en seed 1 (lstm, plain); de-en seed 2 (all systems)."]
    assert gathered.not_run(loaded.plan.systems) == said
    assert gathered.not_run(loaded.plan.systems, "de-en") == said
    assert gathered.not_run(loaded.plan.systems, "en-de") == []
    assert len(gathered.waiting()) == 5


def test_a_page_that_cannot_be_written_is_refused_before_any_run(plan: Path, tmp_path: Path, capsys) -> None:
    page = tmp_path / "no" / "page.md"
    folder = tmp_path / "results"
    assert main(["results", str(plan), "--folder", str(folder), "--markdown", str(page), "-q"]) == 2
    assert f"{page}: the folder {page.parent} does not exist" in capsys.readouterr().err
    assert not folder.exists()


def test_the_plan_is_never_written_over(plan: Path, tmp_path: Path, capsys) -> None:
    before = plan.read_text()
    command = ["results", str(plan), "--report-only", "--folder", str(tmp_path / "results")]
    assert main([*command, "--markdown", str(plan)]) == 2
    assert f"{plan}: is a text that is read, and would be replaced" in capsys.readouterr().err
    assert plan.read_text() == before


def test_pages_of_something_else_are_not_replaced(plan: Path, tmp_path: Path, capsys) -> None:
    folder = tmp_path / "mine"
    folder.mkdir()
    page = folder / "results.md"
    page.write_text("my results")
    command = ["results", str(plan), "--report-only", "-q", "--folder"]
    assert main([*command, str(folder)]) == 2
    assert f"--folder: {page} is not from this command, and would be replaced" in capsys.readouterr().err
    assert page.read_text() == "my results"
    for _ in range(2):  # a page without any run is one of this command, too
        assert main([*command, str(tmp_path / "ours")]) == 0


def test_without_a_run_no_page_is_written(plan: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    folder = tmp_path / "results"
    assert (
        main(["results", str(plan), "--report-only", "--folder", str(folder), "--markdown", str(page), "-q"])
        == 0
    )
    assert not page.exists()
    assert len(json.loads((folder / "results.json").read_text())["missing"]) == 3


@pytest.mark.parametrize(
    ("name", "overrides"),
    [
        ("multi30k", ["seeds=[1]"]),
        (
            "six-directions",
            ["text=tests", "search={max_updates: 99, alternatives: {low: [training.schedule.peak=0.001]}}"],
        ),
        ("l10n", ["text=tests"]),
        ("number-formats", ["seeds=[1]"]),
    ],
)
def test_the_plans_of_the_repository_build_every_system(
    tmp_path: Path, monkeypatch, name: str, overrides: list[str]
) -> None:
    root = Path(__file__).parents[4]
    monkeypatch.chdir(root)
    loaded = load_plan(root / "examples" / "results" / f"{name}.yaml", tmp_path, overrides)
    names = set(loaded.plan.systems)
    for claim in loaded.claims:
        assert {claim.higher, claim.lower} <= names
        assert claim.numbers is None or claim.numbers[0] > claim.numbers[1]
    parts = ("model", "training", "data")
    settings = {
        json.dumps([run.directions, *(run.loaded.resolved[part] for part in parts)], sort_keys=True)
        for run in loaded.runs
    }
    assert len(settings) == len(loaded.runs), "two systems are the same"
    for trial in loaded.trials:
        system = loaded.plan.systems[trial.run.system]
        assert (trial.run.part == "all") == system.one_model
        assert trial.run.loaded.config.training.max_updates == loaded.plan.search.max_updates
    peaks = {run.system: run.loaded.config.training.schedule.model_dump()["peak"] for run in loaded.runs}
    assert {trial.run.system for trial in loaded.trials} == (set(peaks) if loaded.plan.search else set())
    if name == "multi30k":
        ways = {"gtrans": 0.7, "depth-lstm": 1, "post-norm": 0.5, "pre-norm": 0.5 * 1.4, "ode-rk2": 0.5 * 2}
        assert {name: peaks[name] / 0.005 for name in ways} == pytest.approx(ways)
    if loaded.plan.joint:
        resolved: list[Any] = [run.loaded.resolved for run in loaded.runs]
        sizes = {str(one["data"]["vocabulary"]["size"]) for one in resolved}
        assert len(sizes) == 1, "systems differ in the size of their vocabulary"
        for run in loaded.runs:
            languages = run.loaded.config.data.languages
            found = [f"{run.loaded.config.data.source}-{run.loaded.config.data.target}"]
            assert list(run.directions) == (list(map(str, languages.directions)) if languages else found)


def test_a_plan_is_a_yaml_file(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="a plan is a"):
        load_plan(tmp_path / "plan", tmp_path)


SEARCH = "search={max_updates: 2, alternatives: {low: [training.schedule.peak=0.001]}}"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("systems.plain.tuned_as=gone", "'gone' is no system of this plan"),
        ("systems.plain={tuned_as: lstm, alternatives: {}}", "has alternatives of its own"),
        ("systems={lstm: {tuned_as: plain}, plain: {tuned_as: lstm}}", "has no trials of its own"),
    ],
)
def test_who_is_tuned_as_whom_is_checked(plan: Path, tmp_path: Path, change: str, message: str) -> None:
    with pytest.raises(UsageError) as error:
        load_plan(plan, tmp_path, [SEARCH, change])
    assert message in str(error.value)


def test_a_system_that_is_tuned_as_another_has_its_alternative_and_no_trials(
    plan: Path, tmp_path: Path
) -> None:
    loaded = load_plan(plan, tmp_path, [SEARCH, "systems.plain.tuned_as=lstm"])
    assert {trial.run.system for trial in loaded.trials} == {"lstm", "broken"}
    search = SettingsSearch(loaded, tmp_path, print)
    for trial in loaded.trials:
        search._put(trial, {"loss": 1.0 if trial.names == ("low",) else 2.0})
    assert search.taken() == {"lstm": "low", "plain": "low", "broken": "low"}
    run = next(run for run in loaded.decided(search.taken()).runs if run.system == "plain")
    assert (run.alternative, run.loaded.config.training.schedule.model_dump()["peak"]) == ("low", 0.001)
    assert search.left(["plain"]) == []


def test_a_trial_can_be_the_beginning_of_its_run(plan: Path, tmp_path: Path) -> None:
    change = SEARCH.replace("{max", "{shorten_warmup: false, settings: [training.log_every=1], max")
    for settings, warmup in (([change], 5), ([SEARCH], 2)):
        trial = load_plan(plan, tmp_path, settings).trials[0].run.loaded.config.training
        assert (trial.max_updates, trial.schedule.warmup_in(trial.max_updates)) == (2, warmup)
        assert trial.log_every == (1 if warmup == 5 else 2)


@pytest.mark.parametrize(
    ("shortened", "words"),
    [
        ("true", "the warm-up of the schedule was shortened in proportion."),
        ("false", "the warm-up of the schedule was that of the whole run where it fits."),
    ],
)
def test_the_page_says_what_became_of_the_warmup(
    plan: Path, tmp_path: Path, shortened: str, words: str
) -> None:
    loaded = load_plan(plan, tmp_path, [SEARCH.replace("{max", f"{{shorten_warmup: {shortened}, max")])
    (finding,) = SettingsSearch(loaded, tmp_path, print).findings()
    assert words in finding.measured
    said = [str(field.description) for field in SearchPlan.model_fields.values()]
    assert [text for text in said if "in proportion" in text] == [
        str(SearchPlan.model_fields["shorten_warmup"].description)
    ]
