"""Averages, win ratios and groups, against numbers worked out by hand."""

from __future__ import annotations

import pytest

from deepwire.data.languages import Direction
from deepwire.evaluation.comparison import PairedTest
from deepwire.evaluation.metric import Score
from deepwire.evaluation.metric_choice import LanguageMetrics, corpus_score
from deepwire.evaluation.multilingual.direction_names import Group, parse_group, resource_groups
from deepwire.evaluation.multilingual.direction_table import (
    DirectionAverage,
    DirectionFacts,
    DirectionRow,
    DirectionTable,
    samples_for,
)
from deepwire.evaluation.significance import Comparison

DE, FR = Direction("en", "de"), Direction("en", "fr")


def table(*groups: Group, paired: PairedTest | None = None) -> DirectionTable:
    return DirectionTable(LanguageMetrics().of, "en", groups, paired)


def row(direction: str, ours: float, theirs: float, p: float | None = None) -> DirectionRow:
    tests = () if p is None else (Comparison("bootstrap", "BLEU", theirs, ours, ours - theirs, p, 1000, 1),)
    about = DirectionFacts(Direction.parse(direction))
    return DirectionRow(about, 1, (Score("BLEU", ours, "s"),), (Score("BLEU", theirs, "s"),), tests)


def test_directions_are_averaged_by_kind_and_zero_shot_ones_apart(translated):
    made = table()
    expected = {}
    for name, every in (("en-de", 2), ("en-fr", 3), ("de-en", 4), ("de-fr", 5)):
        given = translated(name, every, zero_shot=name == "de-fr")
        made.add(*given)
        expected[name] = corpus_score("bleu", given[2].lines, given[1].lines).value
    report = made.report("ours", None, "test")
    assert [block.title for block in report.blocks] == [
        "All trained directions",
        "Out of en",
        "Into en",
        "Zero-shot: directions that were not trained",
    ]
    everything, out, _, zero_shot = report.blocks
    assert everything.rows == ()
    assert everything.averages[0].values[0] == pytest.approx(
        (expected["en-de"] + expected["en-fr"] + expected["de-en"]) / 3
    )
    assert [str(one.direction) for one in out.rows] == ["en-de", "en-fr"]
    assert out.averages[0].values[0] == pytest.approx((expected["en-de"] + expected["en-fr"]) / 2)
    assert len(set(expected.values())) == 4
    assert report.metrics == ("BLEU", "chrF2")
    assert [str(one.direction) for one in zero_shot.rows] == ["de-fr"]
    assert out.averages[0].win_ratio is None


def test_a_tie_is_no_win():
    average = DirectionAverage(
        "all", (row("en-de", 21, 20), row("en-fr", 20, 20), row("en-cs", 19, 20), row("en-br", 9, 5))
    )
    assert (average.wins, average.win_ratio) == (2, 50.0)
    assert average.values == (pytest.approx(17.25),)
    assert average.baseline == (pytest.approx(16.25),)


def test_significance_is_counted_by_sign_and_corrected_for_the_number_of_directions():
    average = DirectionAverage(
        "all",
        (
            row("en-de", 21, 20, 0.001),
            row("en-fr", 21, 20, 0.02),
            row("en-cs", 18, 20, 0.01),
            row("en-br", 21, 20, 0.3),
        ),
    )
    assert (average.significant(1), average.significant(-1)) == (2, 1)
    # Holm: 0.001 < 0.05 / 4, 0.01 < 0.05 / 3, 0.02 < 0.05 / 2, 0.3 is not
    assert (average.corrected(1), average.corrected(-1)) == (2, 1)
    stricter = DirectionAverage(
        "all", (row("en-de", 21, 20, 0.02), row("en-fr", 21, 20, 0.03), row("en-cs", 21, 20, 0.04))
    )
    assert (stricter.significant(1), stricter.corrected(1)) == (3, 0)


def test_a_correction_that_nothing_could_pass_is_not_made():
    # The smallest p-value of a bootstrap with 1000 samples is 2 / 1001; 0.05 / 26 is below it.
    assert DirectionAverage("all", tuple(row("en-de", 21, 20, 0.0009) for _ in range(25))).correctable
    assert not DirectionAverage("all", tuple(row("en-de", 21, 20, 0.0009) for _ in range(26))).correctable
    assert samples_for(25) == 1000
    assert samples_for(25, "randomization") == 500


def test_the_test_runs_for_every_metric_of_every_direction(translated):
    made = table(paired=PairedTest("bootstrap", samples=50))
    better = made.add(*translated("en-de", 8, 2))
    same = made.add(*translated("en-fr", 3, 3))
    assert [one.metric for one in better.comparisons] == ["BLEU", "chrF2"]
    assert better.gain > 0
    assert better.p_value == pytest.approx(2 / 51)
    assert same.gain == 0
    assert same.p_value == 1.0


def test_the_groups_of_the_papers(translated):
    sizes = {Direction("en", "de"): 1_000_000, Direction("br", "en"): 153_447, Direction("en", "yo"): 10_000}
    groups = [parse_group("de,br"), *resource_groups(sizes, "en")]
    made = table(*groups)
    for name in ("en-de", "en-br", "en-yo"):
        made.add(*translated(name))
    averages = made.report("ours", None, "test").blocks[0].averages
    found = {one.name: [str(each.direction) for each in one.rows] for one in averages}
    assert found == {
        "all": ["en-br", "en-de", "en-yo"],
        "de, br": ["en-br", "en-de"],
        "high (from 900,000 pairs)": ["en-de"],
        "medium": ["en-br"],
        "low (below 100,000 pairs)": ["en-yo"],
    }


def test_signatures_name_the_languages_they_stand_for(translated):
    made = table()
    for name in ("en-de", "en-zh", "zh-en"):
        made.add(*translated(name))
    signatures = made.report("ours", None, "test").signatures
    bleu = {name: languages for name, languages in signatures.items() if name.startswith("BLEU|")}
    assert {languages for name, languages in bleu.items() if "tok:zh" in name} == {("zh",)}
    assert {languages for name, languages in bleu.items() if "tok:13a" in name} == {("de", "en")}
