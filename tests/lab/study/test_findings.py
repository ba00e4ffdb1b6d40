"""Scores, tested differences and tables, of results made by hand."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from deepwire.errors import DataError
from deepwire.evaluation.metric_choice import LanguageMetrics
from deepwire.lab.study.findings import StudyResults, differences, findings
from deepwire.lab.study.plan import Plan
from deepwire.lab.study.store import LearningCurve, RunRecord, ScoredTest, Standing, StudyStore, pack, unpack

BLEU = LanguageMetrics(("bleu",)).of("en")[0]
REFERENCE = [f"a sentence with the number {number} and some more words" for number in range(80)]


def plan(**changes: object) -> Plan:
    systems = {name: {"settings": [f"model.d_model={len(name)}"]} for name in ("a", "b", "c")}
    settings = {"base": "small.yaml", "directions": {"de-en": ()}, "systems": systems, "baseline": "a"}
    return Plan.model_validate({**settings, "seeds": (1, 2, 3), "budgets": (10,), **changes})


def scored(wrong: int, text: str = "one", offset: int = 0) -> ScoredTest:
    """A translation in which so many sentences, of all lengths, are wrong."""
    bad = {(offset + step * 7) % len(REFERENCE) for step in range(wrong)}
    lines = ["quite other things" if place in bad else line for place, line in enumerate(REFERENCE)]
    answers = [REFERENCE]
    rows = BLEU.statistics(lines, answers)
    return ScoredTest(
        bleu=BLEU.score(lines, answers).value,
        chrf=50.0,
        signature="s",
        text=text,
        sentences=len(lines),
        statistics=pack(rows),
        seconds=2.0,
    )


def keep(store: StudyStore, of: Plan, system: str, seed: int, test: ScoredTest, stop: str = "10") -> None:
    standing = Standing(
        updates=10, target_tokens=100, seconds=3600, nll=2.0, best_nll=2.0, best_update=10,
        stood_still=False, averaged=(), settings={"beam": "4"}, tests={"de-en": test},
    )  # fmt: skip
    store.write(
        RunRecord(
            name=f"de-en.{system}.{seed}",
            system=system,
            seed=seed,
            alternative="own",
            base="small.yaml",
            settings=of.run_settings(system, "de-en", "own"),
            parameters=5_000_000,
            curve=LearningCurve(updates=(5, 10), nll=(3.0 + seed, 2.0)),
            standings={stop: standing},
        )
    )


def test_statistics_come_back_as_they_were() -> None:
    rows = BLEU.statistics(REFERENCE, [REFERENCE[::-1]])
    assert np.array_equal(unpack(pack(rows)), rows)
    with pytest.raises(DataError):
        unpack("damaged")


def test_a_difference_is_that_of_mean_scores_over_seeds(tmp_path: Path) -> None:
    study, store = plan(), StudyStore(tmp_path)
    for seed in (1, 2, 3):
        keep(store, study, "a", seed, scored(30 + seed, offset=seed))
        keep(store, study, "b", seed, scored(10 + seed, offset=seed))
    keep(store, study, "c", 1, scored(31, offset=1))
    results = StudyResults(study, store)
    better, alike = differences([results], 1000)[0]
    scores = {name: results.systems[name].scores("10") for name in "abc"}
    assert better.value == pytest.approx(np.mean(scores["b"]) - np.mean(scores["a"]))
    assert better.p_value < 0.01
    assert better.bounds[0] > 0
    assert (better.seeds, alike.seeds) == ((3, 3), (1, 3))
    assert alike.p_value > 0.1
    assert alike.bounds[0] < 0 < alike.bounds[1]
    assert 0 < better.visible < better.value


def test_the_chance_of_seeds_counts(tmp_path: Path) -> None:
    """The same means; where the seeds of a system lie far apart, they prove less."""
    found = []
    for spread in (0, 14):
        study, store = plan(), StudyStore(tmp_path / str(spread))
        for seed, change in ((1, -spread), (2, 0), (3, spread)):
            keep(store, study, "a", seed, scored(30 + change))
            keep(store, study, "b", seed, scored(24 + change))
        found.append(differences([StudyResults(study, store)], 1000)[0][0])
    near, far = found
    assert far.p_value > 2 * near.p_value
    assert far.visible > 2 * near.visible


def test_sentences_on_which_single_runs_fail_are_in_the_chance_of_seeds_alone(tmp_path: Path) -> None:
    """Every run fails on other sentences; that is why seeds differ, and is not counted a second time."""
    study, store = plan(), StudyStore(tmp_path)
    for place, system in enumerate(("a", "b", "c")):
        for seed, wrong in ((1, 24), (2, 30), (3, 36)):
            keep(store, study, system, seed, scored(wrong, offset=place * 3 + seed * 29))
    for each in differences([StudyResults(study, store)], 1000)[0]:
        assert each.error.known < each.error.estimated / 4


def test_p_values_are_corrected_for_all_comparisons_of_the_page(tmp_path: Path) -> None:
    study, store = plan(), StudyStore(tmp_path)
    for seed in (1, 2, 3):
        for system, wrong in (("a", 30), ("b", 25), ("c", 29)):
            keep(store, study, system, seed, scored(wrong + seed))
    alone = findings([(study, store)], 1000)[0][0]
    twice = findings([(study, store), (study, store)], 1000)[0][0]
    columns = [column.name for column in alone.tables[1].columns]
    place, raw = columns.index("p (Holm)"), columns.index("p")
    for one, two in zip(alone.tables[1].rows, twice.tables[1].rows, strict=True):
        assert one[raw] == two[raw]
        numbers = two[place], one[place], one[raw]
        assert list(numbers) == sorted((float(str(number)) for number in numbers), reverse=True)
    assert {figure.name for figure in alone.figures} == {"curves-1"}
    assert alone.tables[0].rows[0][:5] == ("a (baseline)", "", 5.0, "10", 3)


def test_what_a_paper_has_and_could_not_be_seen_is_listed_apart_and_a_pair_counts_once(
    tmp_path: Path,
) -> None:
    pairs = [("b", 0.5), ("c", 0.5), ("c", 90.0)]
    compared = [{"system": name, "baseline": "a", "expected": expected} for name, expected in pairs]
    study, store = plan(comparisons=compared), StudyStore(tmp_path)
    for seed in (1, 2, 3):
        for system, wrong in (("a", 30), ("b", 10), ("c", 29)):
            keep(store, study, system, seed, scored(wrong + seed, offset=seed))
    tables = {table.title: table for table in findings([(study, store)], 1000)[0][0].tables}
    shown = {
        title: [(row[0], row[names.index("a paper's")]) for row in tables[title].rows]
        for title in ("Differences", "Not decidable here")
        for names in [[column.name for column in tables[title].columns]]
    }
    assert shown == {"Differences": [("b", "+0.50"), ("c", "+90.00")], "Not decidable here": [("c", "+0.50")]}
    names = [column.name for column in tables["Differences"].columns]
    p_value, corrected = (tables["Differences"].rows[0][names.index(name)] for name in ("p", "p (Holm)"))
    assert corrected == pytest.approx(2 * float(str(p_value)))


def test_the_best_of_three_rates_lies_between_the_others(tmp_path: Path) -> None:
    peaks = {"a": 0.1, "b": 0.2, "c": 0.4}
    systems = {name: {"settings": [f"training.schedule.peak={peak}"]} for name, peak in peaks.items()}
    study, store = plan(systems=systems), StudyStore(tmp_path)
    for system, wrong in (("a", 30), ("b", 10), ("c", 29)):
        keep(store, study, system, 1, scored(wrong))
    tables = {table.title: table for table in findings([(study, store)], 100)[0][0].tables}
    ((name, tried, best, between),) = tables["Rates tried to the end"].rows
    assert (name, best, between) == ("a", "0.2", "yes")
    assert [each.partition(":")[0] for each in str(tried).split(", ")] == ["0.1", "0.2", "0.4"]


def test_runs_of_other_settings_are_left_out_and_named(tmp_path: Path) -> None:
    study, store = plan(), StudyStore(tmp_path)
    keep(store, study, "a", 1, scored(10))
    keep(store, plan(settings=("model.dropout=0.5",)), "b", 1, scored(20))
    results = StudyResults(study, store)
    assert (results.outdated, list(results.records)) == (["de-en.b.1"], ["de-en.a.1"])
    assert differences([results], 1000) == [[]]


def test_systems_scored_on_different_texts_are_not_compared(tmp_path: Path) -> None:
    study, store = plan(), StudyStore(tmp_path)
    keep(store, study, "a", 1, scored(10))
    keep(store, study, "b", 1, scored(10, text="another"))
    with pytest.raises(DataError, match="different texts"):
        differences([StudyResults(study, store)], 1000)


def test_results_of_an_earlier_version_are_refused(tmp_path: Path) -> None:
    (tmp_path / "runs").mkdir()
    (tmp_path / "runs" / "de-en.a.1.json").write_text('{"format": 1, "name": "de-en.a.1"}')
    with pytest.raises(DataError, match="no result of this version"):
        StudyResults(plan(), StudyStore(tmp_path))
