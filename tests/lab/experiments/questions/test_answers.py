"""Answers of hand-made numbers: verdicts, what counts once, what is missing, and the page."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Sequence
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest

from deepwire.cli.main import main
from deepwire.errors import DataError, UsageError
from deepwire.evaluation.metric_choice import LanguageMetrics
from deepwire.lab.experiments.questions.answers import AnsweredQuestion, answer_questions
from deepwire.lab.experiments.questions.question_findings import (
    differences,
    question_finding,
    speeds_by_length,
)
from deepwire.lab.experiments.questions.question_plan import GOALS, ClaimPlan, read_questions
from deepwire.lab.experiments.questions.question_results import (
    LearningCurve,
    QuestionResult,
    ResultFolder,
    RunStanding,
    ScoredTest,
    TriedSettings,
    pack,
    unpack,
)
from deepwire.lab.experiments.questions.question_verdicts import (
    ClaimOutcome,
    SystemResults,
    judge_claim,
    paired_difference,
    seed_deviation,
)
from deepwire.lab.experiments.questions.question_words import answer_of, claims_table, count_of_claims

SENTENCES, WORDS = 60, 20


def statistics(share: float, seed: int) -> np.ndarray:
    """BLEU statistics of sentences of which a share of the words is right."""
    right = np.random.default_rng(seed).binomial(WORDS, share, SENTENCES)
    grams = [np.maximum(right - n, 0) for n in range(4)]
    totals = [np.full(SENTENCES, WORDS - n) for n in range(4)]
    lengths = [np.full(SENTENCES, WORDS)] * 2
    return np.stack([*lengths, *grams, *totals], axis=1).astype(np.float64)


def standing(
    share: float, seed: int = 1, *, updates: int = 30, still: bool = True, text: str = "t"
) -> RunStanding:
    rows = statistics(share, seed)
    bleu = LanguageMetrics(("bleu",)).of("en")[0].score_of(rows, 1).value
    test = ScoredTest(
        bleu=bleu,
        chrf=50.0,
        signature="v",
        text=text,
        sentences=SENTENCES,
        statistics=pack(rows),
        seconds=1.0,
    )
    return RunStanding(
        updates=updates,
        target_tokens=1000 * updates,
        seconds=60.0,
        nll=2.0,
        best_nll=2.0,
        best_update=updates,
        stood_still=still,
        averaged=(updates,),
        settings={"beam": "4"},
        tests={"de-en": test},
    )


def result(
    system: str, seed: int, equal: RunStanding | None, plateau: RunStanding | None = None, failed: str = ""
) -> QuestionResult:
    both = {"equal": equal, "plateau": plateau}
    return QuestionResult.model_validate(
        {
            "name": f"de-en.{system}.{seed}",
            "system": system,
            "seed": seed,
            "alternative": "own",
            "base": "small.yaml",
            "settings": [],
            "parameters": 1_500_000,
            "curve": LearningCurve(updates=(10, 20, 30), nll=(5.0, 4.0, 3.0 + seed), bleu=(None, None, 1.0)),
            "standings": {goal: each for goal, each in both.items() if each is not None},
            "failed": {"equal": failed} if failed else {},
        }
    )


def system(name: str, *runs: QuestionResult) -> SystemResults:
    return SystemResults(name, {run.seed: (run,) for run in runs})


CLAIM = ClaimPlan(says="a above b", paper="P", better="a", than="b")


def outcome(*systems: SystemResults) -> ClaimOutcome:
    deviation = seed_deviation(each.bleu("equal") for each in systems)
    deviations = dict.fromkeys(GOALS, deviation)
    return judge_claim(CLAIM, {each.system: each for each in systems}, 200, deviations).outcome


def test_packed_statistics_come_back() -> None:
    rows = statistics(0.5, 3)
    assert np.array_equal(unpack(pack(rows)), rows)
    with pytest.raises(ValueError, match="whole numbers"):
        pack(rows + 0.5)
    with pytest.raises(DataError):
        unpack("0" + pack(rows))


def test_two_thousand_sentences_are_kept_in_kilobytes() -> None:
    rng = np.random.default_rng(1)
    lengths = rng.integers(4, 60, 2000)
    rows = [rng.binomial(np.maximum(lengths - n, 0), 0.5**n * 0.6) for n in range(4)]
    totals = [np.maximum(lengths - n, 0) for n in range(4)]
    assert len(pack(np.stack([lengths, lengths + 1, *rows, *totals], axis=1).astype(float))) < 12_000


def test_a_clear_difference_holds_or_is_turned_round() -> None:
    good = [result("a", seed, standing(0.8, seed)) for seed in (1, 2)]
    bad = [result("b", seed, standing(0.6, seed + 9)) for seed in (1, 2)]
    assert outcome(system("a", *good), system("b", *bad)) is ClaimOutcome.HOLDS
    turned = [each.model_copy(update={"system": "b"}) for each in good]
    worse = [each.model_copy(update={"system": "a"}) for each in bad]
    assert outcome(system("a", *worse), system("b", *turned)) is ClaimOutcome.REVERSED


def test_a_difference_within_the_noise_is_open() -> None:
    assert (
        outcome(system("a", result("a", 1, standing(0.7, 1))), system("b", result("b", 1, standing(0.7, 2))))
        is ClaimOutcome.OPEN
    )


def test_seeds_that_disagree_leave_a_claim_open_that_one_seed_would_settle() -> None:
    """Seeds count with the sentences."""
    first = system("a", result("a", 1, standing(0.8, 1))), system("b", result("b", 1, standing(0.6, 2)))
    assert outcome(*first) is ClaimOutcome.HOLDS
    a = [result("a", 1, standing(0.8, 1)), result("a", 2, standing(0.5, 3))]
    b = [result("b", 1, standing(0.6, 2)), result("b", 2, standing(0.6, 4))]
    assert outcome(system("a", *a), system("b", *b)) is ClaimOutcome.OPEN


def test_all_seeds_count_also_where_one_system_has_more(plan: Path) -> None:
    """By the first seed of each, a is above b; the second seed of b says that this is chance."""
    a, b = result("a", 1, standing(0.8, 1)), result("b", 1, standing(0.6, 2))
    other = result("b", 2, standing(0.95, 3))
    assert outcome(system("a", a), system("b", b)) is ClaimOutcome.HOLDS
    (question, _) = answered(plan, [a, b, other])
    verdict = question.verdicts[0].equal
    bleu = question.systems["b"].bleu("equal")
    assert verdict.outcome is ClaimOutcome.OPEN
    assert verdict.seeds == (1, 2)
    assert verdict.bleu is not None
    assert verdict.bleu[1] == pytest.approx(sum(bleu) / 2)
    table = claims_table(question)
    assert table is not None
    assert table.rows[0][-1] == "1 and 2"
    assert claims_table(answered(plan, [result("a", 2, standing(0.8, 4))])[0]).rows[0][-1] == "2"


def test_a_single_seed_is_as_uncertain_as_those_of_other_systems(plan: Path) -> None:
    """Two systems with one seed differ clearly by their sentences, and not beside the seeds of a third."""
    pair = [result("a", 1, standing(0.75, 1)), result("b", 1, standing(0.65, 2))]
    third = [result("c", seed, standing(share, seed)) for seed, share in ((1, 0.8), (2, 0.6))]
    (alone, _), (beside, _) = answered(plan, pair), answered(plan, [*pair, *third])
    assert (alone.deviations["equal"], alone.verdicts[0].outcome) == (None, ClaimOutcome.HOLDS)
    deviation = beside.deviations["equal"]
    assert deviation is not None
    first, second = beside.systems["c"].bleu("equal")
    assert deviation.sd == pytest.approx(abs(first - second) / 2**0.5)
    assert beside.verdicts[0].outcome is ClaimOutcome.OPEN
    words = question_finding(beside).measured
    assert f"a standard deviation between seeds of one system of {deviation.sd:.2f} BLEU" in words
    assert "the tests count the sentences alone" in question_finding(alone).measured


def test_seeds_are_judged_by_how_far_they_lie_apart_where_they_are_compared(plan: Path) -> None:
    """Far apart in the midst of training, close together at its end."""
    runs = [
        result(name, seed, standing(early, seed), standing(0.8 + seed / 1000, seed, updates=60))
        for name in "abc"
        for seed, early in ((1, 0.7), (2, 0.4))
    ]
    question, _ = answered(plan, runs)
    equal, plateau = question.deviations["equal"], question.deviations["plateau"]
    assert equal is not None
    assert plateau is not None
    assert (equal.degrees, plateau.degrees) == (3, 3)
    assert equal.sd > 5 * plateau.sd
    words = question_finding(question).measured
    assert f"{equal.sd:.2f} BLEU (3 degrees of freedom) after 30 updates" in words
    assert f"{plateau.sd:.2f} BLEU (3 degrees of freedom) at the end" in words


def test_the_error_of_means_falls_with_seeds() -> None:
    """Against the formula: the standard deviation of one seed, for each mean over its seeds."""
    deviation = seed_deviation([[30.0, 31.0], [20.0, 20.0, 23.0], [5.0]])
    assert deviation is not None
    assert deviation.degrees == 3
    assert deviation.sd == pytest.approx(((0.5 + 6.0) / 3) ** 0.5)
    many = dataclasses.replace(deviation, degrees=1000)
    assert many.draws((1, 1), 20_000).std() == pytest.approx(deviation.sd * 2**0.5, rel=0.02)
    assert many.draws((2, 4), 20_000).std() == pytest.approx(deviation.sd * 0.75**0.5, rel=0.02)
    assert deviation.draws((1, 1), 20_000).std() > many.draws((1, 1), 20_000).std()


def test_the_plateau_decides_where_it_was_reached() -> None:
    a = result("a", 1, standing(0.6, 1), standing(0.8, 2, updates=60))
    b = result("b", 1, standing(0.8, 3), standing(0.6, 4, updates=60))
    verdict = judge_claim(CLAIM, {"a": system("a", a), "b": system("b", b)}, 200, dict.fromkeys(GOALS))
    assert (verdict.equal.outcome, verdict.plateau.outcome) == (ClaimOutcome.REVERSED, ClaimOutcome.HOLDS)
    assert verdict.outcome is ClaimOutcome.HOLDS
    alone = b.model_copy(update={"standings": {"equal": b.standings["equal"]}})
    assert outcome(system("a", a), system("b", alone)) is ClaimOutcome.REVERSED


def test_to_beat_a_system_that_has_not_learned_is_no_success() -> None:
    a, b = result("a", 1, standing(0.8)), result("b", 1, standing(0.2))
    assert outcome(system("a", a), system("b", b)) is ClaimOutcome.NOT_LEARNED


def test_failed_and_missing_runs_decide_nothing() -> None:
    a = result("a", 1, standing(0.8))
    assert outcome(system("a", a), system("b")) is ClaimOutcome.MISSING
    assert (
        outcome(system("a", a), system("b", result("b", 1, None, failed="diverged"))) is ClaimOutcome.FAILED
    )


def test_different_texts_are_not_compared() -> None:
    with pytest.raises(DataError, match="different texts"):
        paired_difference([[standing(0.8)]], [[standing(0.6, text="other")]], 100, None)


SYSTEMS = """
base: small.yaml
directions: {de-en: []}
seeds: [1, 2]
baseline: a
systems: {a: {description: the first}, b: {}, c: {}}
"""
QUESTIONS = """
title: Answers
parts: {small: {plan: systems.yaml, equal_updates: 30}}
samples: 200
questions:
  Q1:
    title: Is a better?
    part: small
    systems: [a, b, c]
    claims:
      - {says: a above b, paper: P 1, better: a, than: b}
      - {says: a above c, paper: P 2, better: a, than: c}
    answers: {holds: "Yes, a is.", reversed: "No, a is not.", open: Neither.}
  Q2:
    title: Is c better?
    part: small
    systems: [b, c]
    claims: [{says: c above b, paper: P 3, better: c, than: b}]
    answers: {holds: "Yes.", reversed: "No.", open: Neither.}
queue: [{question: Q1}]
"""


@pytest.fixture
def plan(tmp_path: Path) -> Path:
    (tmp_path / "systems.yaml").write_text(SYSTEMS)
    (tmp_path / "questions.yaml").write_text(QUESTIONS)
    return tmp_path / "questions.yaml"


def answered(plan: Path, results: Sequence[QuestionResult]) -> list[AnsweredQuestion]:
    folder = ResultFolder(plan.parent / "results" / "small")
    for each in results:
        folder.write(each)
    return answer_questions(read_questions(plan), plan.parent / "results")


def test_a_system_that_loses_to_two_others_counts_once(plan: Path) -> None:
    slow = [result("a", 1, standing(0.6, 1)), *(result(name, 1, standing(0.8, 2)) for name in "bc")]
    questions = answered(plan, slow)
    assert [verdict.outcome for verdict in questions[0].verdicts] == [ClaimOutcome.REVERSED] * 2
    counted = count_of_claims(questions)
    assert "put to 3 comparisons, of which 3 are measured. " in counted
    assert (
        "which leaves 3. They make 2 findings: *the other way round* (1), *no clear difference* (1)."
        in counted
    )


def test_a_claim_of_two_questions_counts_where_it_has_most_seeds(plan: Path) -> None:
    plan.write_text(QUESTIONS.replace("says: c above b", "says: a above b"))
    runs = [
        *(result("a", seed, standing(0.8, seed)) for seed in (1, 2)),
        *(result("b", seed, standing(0.6, seed)) for seed in (1, 2)),
        result("c", 1, standing(0.5, 1)),
    ]
    counted = count_of_claims(answered(plan, runs))
    assert "put to 3 comparisons, of which 3 are measured. " in counted
    assert "which leaves 2. They make 1 findings: *as the paper says* (1)." in counted


def test_the_page_says_who_had_other_batches(plan: Path) -> None:
    def of(name: str, tokens: int) -> QuestionResult:
        return result(name, 1, standing(0.8).model_copy(update={"target_tokens": tokens}))

    questions = answered(plan, [of("a", 1000), of("b", 1000), of("c", 1094)])
    assert "c with seed 1 had 9.4% more target tokens" in question_finding(questions[0]).measured
    questions = answered(plan, [of("c", 1000)])
    assert "those with one seed with the same batches" in question_finding(questions[0]).measured


def test_what_is_not_measured_counts_pair_by_pair(plan: Path) -> None:
    questions = answered(plan, [])
    assert "put to 3 comparisons, of which 0 are measured. " in count_of_claims(questions)
    assert answer_of(questions[0]) == "**Not yet measured.**"


def test_seeds_of_an_alternative_that_was_not_taken_are_left_out(plan: Path) -> None:
    """The first seed was trained before a better alternative was tried."""
    systems = plan.parent / "systems.yaml"
    systems.write_text(
        SYSTEMS + "search: {max_updates: 10, alternatives: {slow: [training.schedule.scale=0.5]}}\n"
    )
    slow = {"alternative": "slow", "settings": ("training.schedule.scale=0.5",)}
    runs = [
        result("a", 1, standing(0.2)),
        result("a", 2, standing(0.8)).model_copy(update=slow),
        *(result("b", seed, standing(0.6)) for seed in (1, 2)),
    ]
    tried = [
        TriedSettings(
            system="a", alternatives=(name,), settings=(), loss=loss, failed=None, taken=name == "slow"
        )
        for name, loss in (("own", 3.0), ("slow", 2.0))
    ]
    ResultFolder(plan.parent / "results" / "small").write_trials(tried)
    questions = answered(plan, runs)
    assert list(questions[0].systems["a"].runs) == [2]
    assert questions[0].part.outdated == {"de-en.a.1": "a"}
    assert questions[0].verdicts[0].outcome is ClaimOutcome.HOLDS


def test_results_of_other_settings_are_left_out_and_named(plan: Path) -> None:
    other = result("a", 1, standing(0.8)).model_copy(update={"settings": ("model.dropout=0.3",)})
    questions = answered(plan, [other, result("b", 1, standing(0.6))])
    assert questions[0].verdicts[0].outcome is ClaimOutcome.MISSING
    assert questions[0].part.outdated == {"de-en.a.1": "a"}


@pytest.mark.parametrize("other", ["equal_updates: 60", "equal_updates: 30, average: 2"])
def test_results_of_another_update_or_mean_are_left_out(plan: Path, other: str) -> None:
    whole = {"averaged": (10, 20, 30), "stood_still": False}
    runs = [result(name, 1, standing(0.8).model_copy(update=whole)) for name in "ab"]
    assert answered(plan, runs)[0].verdicts[0].outcome is ClaimOutcome.OPEN
    plan.write_text(plan.read_text().replace("equal_updates: 30", other))
    (question, _) = answer_questions(read_questions(plan), plan.parent / "results")
    assert question.verdicts[0].outcome is ClaimOutcome.MISSING
    assert "Not yet trained to the common update: a, b." in question_finding(question).notes


def test_the_page_opens_with_the_answers_and_a_picture_of_each(plan: Path) -> None:
    runs = [
        result("a", 1, standing(0.8, 1), standing(0.85, 5, updates=60, still=False)),
        result("a", 2, standing(0.8, 2)),
        result("b", 1, standing(0.6, 3), standing(0.6, 6, updates=50)),
        result("b", 2, None, failed="loss not finite"),
    ]
    answered(plan, runs)
    page = plan.parent / "page.md"
    command = ["questions", str(plan), "--report-only", "--markdown", str(page)]
    assert main([*command, "--results", str(plan.parent / "results")]) == 0
    text = page.read_text()
    opening, numbers = text.split("# The numbers")
    assert opening.index("## Q1. Is a better?") < opening.index("**Yes, a is.**") < opening.index("## Q2.")
    assert "![Q1: learning curves](page/q1.svg)" in opening
    first = opening.split("## Q2.")[0]
    assert re.search(
        r"After 30 updates, a has \d+\.\d BLEU and b \d+\.\d \(p 0\.\d{3}\)\. As far as they were", first
    )
    rows = [line.removeprefix("| ").split(" | ") for line in first.splitlines() if line.startswith("|")]
    assert rows[0][2:5] == ["here", "when", "BLEU (parameters)"]
    assert [row[3] for row in rows[2:4]] == ["After 30 updates", "As far as they were trained"]
    assert re.fullmatch(r"a \d+\.\d \(1\.5M\); b \d+\.\d \(1\.5M\)", rows[2][4])
    assert [row[5][0] for row in rows[2:4]] == ["+", "+"]
    assert "**Not yet measured.**" in opening.split("## Q2.")[1]
    assert "Longer training is not yet measured" not in opening
    assert "still learning at its limit" in numbers
    assert "a run failed: loss not finite" in numbers
    assert "Not yet trained: c." in numbers
    assert "Not yet measured: a above c (P 2)." in opening
    assert str(plan.parent) not in text
    picture = ElementTree.parse(page.parent / "page" / "q1.svg").getroot()
    words = "".join(picture.itertext())
    assert "validation loss" in words
    ground = next(iter(picture.iter("{http://www.w3.org/2000/svg}path")))
    assert "fill: #ffffff" in ground.get("style", ""), "black letters on a dark page"


@pytest.mark.parametrize("goes_on", [True, False])
def test_where_runs_end_at_the_common_update_none_is_longer(plan: Path, goes_on: bool) -> None:
    if not goes_on:
        plan.write_text(QUESTIONS.replace("equal_updates: 30", "equal_updates: 30, plateau: false"))
    question = answered(plan, [result("a", 1, standing(0.8, 1)), result("b", 1, standing(0.6, 2))])[0]
    finding = question_finding(question)
    assert question.part.plateau == goes_on
    assert ("Longer training is not yet measured." in answer_of(question)) == goes_on
    assert any(note.startswith("Not yet trained to the end: a, b") for note in finding.notes) == goes_on
    assert ("after 30 updates, where all end. " in finding.measured) == (not goes_on)


def test_bars_show_how_far_systems_lie_above_the_one_of_the_first_claim(plan: Path) -> None:
    """Best first; those that have not learned, or have no run, have no bar."""
    (plan.parent / "systems.yaml").write_text(SYSTEMS.replace("c: {}", "c: {}, d: {}, e: {}, f: {}"))
    (plan.parent / "questions.yaml").write_text(QUESTIONS.replace("[a, b, c]", "[a, b, c, d, e, f]"))
    shares = {"a": 0.7, "b": 0.6, "c": 0.8, "d": 0.5, "e": 0.0}
    still = {name: standing(share + 0.1, updates=60) for name, share in shares.items() if name in "abc"}
    runs = [result(name, 1, standing(share), still.get(name)) for name, share in shares.items()]
    first, second = answered(plan, runs)
    chart = differences(first)
    assert chart is not None
    assert chart.title == "Q1: BLEU beside b after 30 updates, with 95 % intervals"
    assert chart.categories == ("c", "a", "d")
    (bars,) = chart.series  # two bars at the plateau would be no picture
    expected = first.systems["c"].bleu("equal")[0] - first.systems["b"].bleu("equal")[0]
    assert bars.y[0] == pytest.approx(expected)
    for low, value, high in zip(bars.low, bars.y, bars.high, strict=True):
        assert low < value < high
    assert differences(second) is None


def test_speeds_by_length_are_a_picture_and_missing_ones_are_said(plan: Path) -> None:
    plan.write_text(
        QUESTIONS.replace("    title: Is c better?\n", "    title: Is c better?\n    speeds: speeds.json\n")
    )
    page = plan.parent / "page.md"
    command = [
        "questions",
        str(plan),
        "--report-only",
        "--markdown",
        str(page),
        "--results",
        str(plan.parent),
    ]
    assert main(command) == 0
    assert "Speed by length: not yet measured." in page.read_text()
    record = {"seconds_of_steps": {"atr": [0.01] * 50, "mhplstm": [0.02] * 50}, "options": {"batch": 2}}
    (plan.parent / "speeds.json").write_text(json.dumps(record))
    (question,) = (each for each in answered(plan, []) if each.name == "Q2")
    chart = speeds_by_length(question)
    assert chart is not None
    assert [line.name for line in chart.series] == ["atr", "mhplstm"]
    assert chart.series[0].x == (5, 10, 20, 30, 50)
    assert chart.series[0].y[1] == pytest.approx(2 / (10 * 0.01))
    page.unlink()
    assert main(command) == 0
    assert (
        "not yet measured." not in page.read_text().split("Q2. Is c better?")[1].split("![")[1].split("\n")[0]
    )
    (plan.parent / "speeds.json").write_text("{}")
    assert main(command) == 3


def test_a_damaged_result_is_named(plan: Path, capsys) -> None:
    answered(plan, [result("a", 1, standing(0.8))])
    path = plan.parent / "results" / "small" / "runs" / "de-en.a.1.json"
    path.write_text(path.read_text().replace('"seed"', '"sead"'))
    page = ["--markdown", str(plan.parent / "page.md"), "--results", str(plan.parent / "results")]
    assert main(["questions", str(plan), "--report-only", *page]) == 3
    assert f"{path}: is no result of this version" in capsys.readouterr().err


def test_the_plan_is_never_written_over(plan: Path, capsys) -> None:
    before = plan.read_text()
    assert main(["questions", str(plan), "--report-only", "--markdown", str(plan)]) == 2
    assert f"{plan}: is a text that is read, and would be replaced" in capsys.readouterr().err
    assert plan.read_text() == before


def test_a_finished_page_is_not_replaced_by_an_empty_one(plan: Path, capsys) -> None:
    page, results = plan.parent / "page.md", plan.parent / "wrong"
    page.write_text("all answers")
    command = ["questions", str(plan), "--report-only", "--results", str(results), "--markdown", str(page)]
    assert main(command) == 2
    assert f"{results}: holds no result of this plan, so {page} stays" in capsys.readouterr().err
    assert page.read_text() == "all answers"


def test_a_pair_is_claimed_once(plan: Path) -> None:
    twice = "{says: b above a, paper: P, better: b, than: a}"
    plan.write_text(
        QUESTIONS.replace("      - {says: a above c", f"      - {twice}\n      - {{says: a above c")
    )
    with pytest.raises(UsageError, match="a pair counts once"):
        read_questions(plan)
