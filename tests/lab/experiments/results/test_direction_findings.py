"""A plan with models of several directions beside models of one: trained, measured, averaged and tested."""

from __future__ import annotations

import contextlib
import io
import json
import signal
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from deepwire.cli.main import main
from deepwire.data.languages import Direction
from deepwire.errors import DataError
from deepwire.evaluation.comparison import PairedTest
from deepwire.evaluation.metric_choice import LanguageMetrics, corpus_score
from deepwire.evaluation.multilingual.direction_table import (
    DirectionFacts,
    DirectionTable,
    DirectionTableSettings,
)
from deepwire.evaluation.texts import Text
from deepwire.lab.experiments.results import experiment_runner
from deepwire.lab.experiments.results.experiment_runner import ExperimentRunner
from deepwire.lab.experiments.results.planned_runs import RunPlan, load_plan
from deepwire.lab.experiments.results.results_plan import ComparisonPlan
from deepwire.lab.experiments.results.run_measurement import RunResult
from deepwire.lab.experiments.results.run_processes import Failure
from deepwire.lab.experiments.results.system_comparison import SystemComparison
from deepwire.lab.subject.model_and_text import ParallelText

PLAN = """
title: Both ways
base: small.yaml
text: .
settings: ["data.train={text}/train", "data.test={text}/test", training.max_updates=4, training.log_every=2]
directions: {de-en: [], en-de: [data.source=en, data.target=de]}
rounds: 1
samples: 100
baseline: apart
groups: {German: [de]}
comparisons: [{system: both, baseline: apart, title: one model against two}]
systems:
  apart: {description: a model for each}
  both:
    one_model: true
    settings: [data.source=source, data.target=target]
"""
Train = Callable[[RunPlan], Failure | None]


@pytest.fixture(scope="module")
def plan(corpus: Path) -> Path:
    path = corpus / "both.yaml"
    path.write_text(PLAN)
    return path


@dataclass(frozen=True)
class Interrupted:
    """A plan that was stopped while the model of both directions was measured, and then carried on."""

    folder: Path
    trained: list[str]
    said: str


@pytest.fixture(scope="module")
def done(
    plan: Path,
    corpus: Path,
    train_here: Train,
    one_by_one: Callable[[Train], object],
    tmp_path_factory: pytest.TempPathFactory,
) -> Interrupted:
    folder = tmp_path_factory.mktemp("both") / "results"
    command = ["results", str(plan), f"text={corpus}", "--folder", str(folder), "--quiet"]
    trained: list[str] = []

    def train(run: RunPlan) -> Failure | None:
        trained.append(run.name)
        return None if (run.folder / "DONE").exists() else train_here(run)

    measure = experiment_runner.measure_run

    def stop(run: RunPlan, direction: str, *rest: Any) -> RunResult:
        if direction == "en-de":
            signal.raise_signal(signal.SIGTERM)
        return measure(run, direction, *rest)

    said = io.StringIO()
    with pytest.MonkeyPatch.context() as patch, contextlib.redirect_stderr(said):
        patch.setattr("deepwire.cli.results.can_plot", lambda *_: False)  # the page is that of other plans
        patch.setattr(experiment_runner, "train_runs", one_by_one(train))
        patch.setattr(experiment_runner, "measure_run", stop)
        assert main(command) == 143
        patch.setattr(experiment_runner, "measure_run", measure)
        assert main(command) == 0
    return Interrupted(folder, trained, said.getvalue())


@pytest.mark.slow
def test_a_stopped_plan_goes_on_with_the_direction_that_is_not_measured(done: Interrupted) -> None:
    assert "stopped by SIGTERM; the same command goes on" in done.said
    assert done.trained == ["all.both.1", "all.both.1", "de-en.apart.1", "en-de.apart.1"]
    assert done.said.count("de-en BLEU") == 1
    assert done.said.count("en-de BLEU") == 1


def test_every_direction_is_scored_averaged_and_tested(done: Interrupted, corpus: Path) -> None:
    record = json.loads((done.folder / "results.json").read_text())
    scores = {}
    for one in record["runs"]:
        target = one["direction"].rpartition("-")[2]
        lines = (done.folder / "translations" / f"{one['direction']}.{one['system']}.1.txt").read_text()
        reference = (corpus / f"test.{target}").read_text().splitlines()
        assert one["chrf"] == pytest.approx(corpus_score("chrf", lines.splitlines(), reference).value)
        scores[one["system"], one["direction"]] = one["chrf"]
    assert set(scores) == {(name, way) for name in ("apart", "both") for way in ("de-en", "en-de")}
    (compared,) = record["comparisons"]
    assert (compared["system"], compared["baseline"]) == ("both", "apart")
    rows = {row["direction"]: row for block in compared["blocks"] for row in block["directions"]}
    for way, row in rows.items():
        assert row["scores"][1]["score"] == pytest.approx(scores["both", way])
        assert row["baseline"][1]["score"] == pytest.approx(scores["apart", way])
        assert row["comparisons"][0]["p_value"] <= 1
    findings = json.loads((done.folder / "findings.json").read_text())["findings"]
    assert [one["analysis"] for one in findings] == ["directions", "comparison-both-apart", "runs"]
    columns = [column["name"] for column in findings[0]["tables"][0]["columns"]]
    table = {row[0]: dict(zip(columns, row, strict=True)) for row in findings[0]["tables"][0]["rows"]}
    both, apart = table["both"], table["apart (baseline)"]
    assert both["chrF all"] == pytest.approx((scores["both", "de-en"] + scores["both", "en-de"]) / 2)
    assert both["chrF into en"] == pytest.approx(scores["both", "de-en"])
    assert (both["models"], apart["models"], apart["win ratio"]) == (1, 2, None)
    assert apart["parameters"] > both["parameters"]
    assert {row[1] for row in findings[1]["tables"][0]["rows"]} == {"all", "German"}
    page = (done.folder / "results.md").read_text()
    assert "one model against two" in page
    assert "BLEU\\|nrefs:1" in page


def test_an_average_waits_for_all_its_directions(done: Interrupted, plan: Path, corpus: Path) -> None:
    loaded = load_plan(plan, done.folder, [f"text={corpus}"])
    runner = ExperimentRunner(loaded, done.folder, print)
    whole = runner.gather()
    part = replace(whole, results=tuple(one for one in whole.results if one.direction == "de-en"))
    found = SystemComparison(runner, part)
    assert found.mean("both", ["de-en"], lambda result: result.chrf) is not None
    assert found.mean("both", ["de-en", "en-de"], lambda result: result.chrf) is None
    for pair in (("both", "apart"), ("apart", "both")):
        compared = found.compare(ComparisonPlan(system=pair[0], baseline=pair[1]))
        assert compared is not None
        assert compared.report.test == "test"
        assert compared.missing == ("en-de",)
        assert len(compared.average.rows) == 1


def test_different_test_sets_are_not_compared(
    done: Interrupted, plan: Path, corpus: Path, monkeypatch
) -> None:
    loaded = load_plan(plan, done.folder, [f"text={corpus}"])
    runner = ExperimentRunner(loaded, done.folder, print)
    right = runner.test_set

    def other(run: RunPlan, direction: str) -> ParallelText:
        pairs = right(run, direction)
        return (
            pairs
            if run.system == "both"
            else ParallelText(pairs.source, Text("other", pairs.reference.lines[::-1]))
        )

    monkeypatch.setattr(runner, "test_set", other)
    with pytest.raises(DataError, match="both and apart were scored on different test sets"):
        SystemComparison(runner, runner.gather()).comparisons()


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ("text=nowhere", "text: no such folder: nowhere"),
        ("systems.both.settings=[]", "system both: "),
        (
            "systems.apart.settings=[data.source=source, data.target=target, 'data.directions=[de-en]']",
            "one_model",
        ),
        ("systems.both.settings=[data.directions=null]", "its model does not translate"),
        ("directions={en-de: [], de-en: []}", "the model for en-de translates de-en"),
        ("directions={German: []}", "is not a direction"),
        ("comparisons=[{system: both, baseline: none}]", "'none' is no system of this plan"),
        ("centre=English", "is not a language tag"),
        ("centre=fr", "centre: no direction of this plan has 'fr'"),
        ("groups={Romance: [de, it]}", "groups.Romance: no direction of this plan has 'it'"),
        ("directions.en-fr=null", "directions.en-fr=null: the plan has no such direction"),
    ],
)
def test_mistakes_are_found_before_anything_is_trained(
    plan: Path, corpus: Path, tmp_path: Path, capsys, change: str, message: str
) -> None:
    command = ["results", str(plan), f"text={corpus}", change, "--folder", str(tmp_path / "results")]
    assert main(command) == 2
    assert message in capsys.readouterr().err
    assert not (tmp_path / "results").exists()


def test_a_direction_can_be_taken_out_of_plan_and_models(plan: Path, corpus: Path, tmp_path: Path) -> None:
    runs = load_plan(plan, tmp_path, [f"text={corpus}", "directions.en-de=null"]).runs
    assert [run.name for run in runs] == ["all.both.1", "de-en.apart.1"]
    assert runs[0].loaded.config.data.directions == ["de-en"]


def test_outputs_of_several_seeds_do_not_count_as_more_sentences() -> None:
    lines = [f"there are {number} birds on the old roof and a cat" for number in range(30)]
    worse = [line.replace("birds on", "cats at") for line in lines]
    reference = Text("r", lines)
    good = Text("g", [(lines if number % 7 < 4 else worse)[number] for number in range(30)])
    bad = Text("b", [(lines if number % 5 < 2 else worse)[number] for number in range(30)])
    rows = []
    for seeds in (1, 3):
        table = DirectionTable(
            DirectionTableSettings(LanguageMetrics().of, paired=PairedTest("bootstrap", samples=100))
        )
        about = DirectionFacts(Direction("de", "en"))
        rows.append(table.add_outputs(about, reference, [good] * seeds, [bad] * seeds))
    assert rows[0].p_value is not None
    assert 0.02 < rows[0].p_value == rows[1].p_value
    assert rows[0].scores[0].value == pytest.approx(rows[1].scores[0].value)
