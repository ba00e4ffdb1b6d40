"""How systems are ranked and claims judged: claims, spread over seeds, p-values of many systems."""

from __future__ import annotations

import math

import numpy as np
import pytest

from deepwire.evaluation.metric_choice import make_metric
from deepwire.evaluation.significance import Comparison, paired_bootstrap
from deepwire.lab.experiments.results.paper_claims import FAILED, Claim, Verdict, count_outcomes, judge
from deepwire.lab.experiments.results.ranking import (
    OutputStatistics,
    RankedSystem,
    Spread,
    corrected,
    means,
    rank_systems,
)
from deepwire.lab.experiments.results.run_measurement import RunResult, conditions, pace


def claim(measure: str = "bleu") -> Claim:
    return Claim.model_validate(
        {"paper": "P", "where": "T", "measure": measure, "higher": "a", "lower": "b", "numbers": [2, 1]}
    )


def bootstrap(difference: float, p_value: float) -> Comparison:
    """A test with this result."""
    return Comparison("bootstrap", "BLEU", 1.0, 1.0 + difference, difference, p_value, 1000, 1)


@pytest.mark.parametrize(
    ("measure", "values", "p_value", "outcome"),
    [
        ("bleu", {"a": 30.0, "b": 28.0}, 0.01, "as in the paper"),
        ("bleu", {"a": 30.0, "b": 28.0}, 0.2, "as in the paper, not significant"),
        ("bleu", {"a": 28.0, "b": 30.0}, 0.06, "the other way round, not significant"),
        ("bleu", {"a": 28.0, "b": 30.0}, 0.04, "the other way round"),
        ("bleu", {"a": 28.0, "b": 28.0}, 1.0, "equal"),
        ("bleu", {"a": 0.9, "b": 0.1}, 0.01, "neither has learned to translate (BLEU below 1)"),
        ("bleu", {"a": 28.0}, None, "b not measured"),
        ("bleu", {"b": 28.0}, None, "a failed"),
        ("bleu", {"a": 30.0, "b": 10.0}, None, "as in the paper, not tested"),
        ("decoding_speed", {"a": 100.0, "b": 91.0}, None, "equal within 10 %"),
        ("decoding_speed", {"a": 100.0, "b": 50.0}, None, "as in the paper"),
        ("training_speed", {"a": 50.0, "b": 100.0}, None, "the other way round"),
    ],
)
def test_claims_are_judged_by_direction_and_test(measure, values, p_value, outcome) -> None:
    test = None if p_value is None else bootstrap(values["a"] - values["b"], p_value)
    verdict = judge(claim(measure), "de-en", values, test, {"a": FAILED})
    assert verdict.outcome == outcome
    assert verdict.p_value == p_value


def test_a_claim_goes_the_way_of_its_test() -> None:
    """The BLEU of all seeds together may differ from the mean of their BLEU."""
    verdict = judge(claim(), "de-en", {"a": 28.001, "b": 28.0}, bootstrap(-0.01, 0.4), {})
    assert verdict.outcome == "the other way round, not significant"


def test_failed_systems_are_counted_by_themselves() -> None:
    """A system that diverged says something; one that was not trained yet says nothing."""
    failed = judge(claim(), "de-en", {"b": 28.0}, None, {"a": FAILED})
    missing = judge(claim(), "de-en", {"a": 28.0}, None, {})
    assert (failed.kind, missing.kind) == ("a system failed", "not measured")


def test_spread_over_seeds() -> None:
    spread = Spread.of([30.0, 32.0, 34.0])
    assert (spread.mean, spread.deviation, spread.low, spread.high, spread.count) == (32, 2, 30, 34, 3)
    assert math.isnan(Spread.of([30.0]).deviation)


def standing(system: str, bleu: dict[int, float], p_value: float | None = None) -> RankedSystem:
    """A system with a run for each seed."""
    runs = tuple(
        RunResult(
            direction="de-en",
            system=system,
            seed=seed,
            bleu=value,
            chrf=1.0,
            parameters=1,
            updates=1,
            target_tokens=1,
            training_seconds=1.0,
            training_speed=100.0 * seed,
            decoding_speed=1.0,
            valid_loss=None,
            memory=1,
            model="",
            settings={},
        )
        for seed, value in bleu.items()
    )
    return RankedSystem(system, runs, None if p_value is None else bootstrap(1.0, p_value))


def test_the_page_says_what_ran_beside_the_timing() -> None:
    (one,) = standing("a", {1: 30.0}).results
    two = one.model_copy(update={"at_once": 2})
    alone = two.model_copy(update={"decoding_alone": True})
    assert pace([one]) == "one run after the other"
    assert pace([alone, alone]) == "up to 2 runs at a time, decoding alone"
    assert pace([alone, two]) == "up to 2 runs at a time, decoding beside runs in training"


def test_a_claim_compares_means_over_the_seeds_that_both_systems_have() -> None:
    """An unlucky seed of one of them alone must not turn the claim round."""
    ranks = [standing("a", {1: 30.0, 2: 10.0, 3: 28.0}), standing("b", {1: 25.0, 3: 27.0})]
    assert means(ranks, ("a", "b"), "bleu") == {"a": 29.0, "b": 26.0}
    assert means(ranks, ("a", "b"), "training_speed") == {"a": 200.0, "b": 200.0}
    assert means(ranks, ("a", "nobody"), "bleu") == {"a": pytest.approx(68 / 3)}
    assert means([standing("a", {1: 30.0}), standing("b", {2: 25.0})], ("a", "b"), "bleu") == {
        "a": 30.0,
        "b": 25.0,
    }
    assert means([], ("a", "b"), "bleu") == {}


def test_p_values_are_corrected_for_the_number_of_systems() -> None:
    """Those of 0.02, 0.06, 0.08 and 1 are taken four, three, two times and once; none falls again."""
    given = [0.06, None, 0.02, 1.0, 0.08]
    ranks = [standing(str(place), {1: 1.0}, p_value) for place, p_value in enumerate(given)]
    assert corrected(ranks) == [pytest.approx(0.18), None, pytest.approx(0.08), 1.0, pytest.approx(0.18)]
    assert corrected([standing("alone", {1: 1.0})]) == [None]


def test_the_page_says_where_runs_were_not_made_alike() -> None:
    """Runs of an older version, another processor or another number format must not stand there unnoticed."""
    here = {"torch": "2.13.0", "device": "a processor", "precision": "bf16"}
    one, two = (standing("a", {seed: 30.0}).results[0] for seed in (1, 2))
    known = {"trained_with": here, "date": "2026-11-22T10:00:00+00:00"}
    first = one.model_copy(update=known)
    second = two.model_copy(update=known | {"trained_with": here | {"precision": "fp32"}})
    assert conditions([first, second.model_copy(update=known)]) == [
        "Trained with torch 2.13.0, device a processor, precision bf16: 2 runs.",
        "Measured 2026-11-22.",
    ]
    other = first.model_copy(update={"direction": "en-de"})
    assert conditions([first, other])[0].endswith("bf16: 1 run."), "one model in two directions"
    older = one.model_copy(update={"seed": 3})
    assert conditions([first, second, older])[:3] == [
        "Trained with torch 2.13.0, device a processor, precision bf16: 1 run.",
        "Trained with torch 2.13.0, device a processor, precision fp32: 1 run.",
        "Measured by an earlier version, which did not write down with what: 1 run.",
    ]
    greedy = second.model_copy(update={"settings": {"beam": "1", "BLEU": "13a"}})
    beam = first.model_copy(update={"settings": {"beam": "4", "BLEU": "zh"}})
    assert conditions([beam, greedy])[-1] == "Not measured alike: beam is 1 or 4."


def test_several_texts_are_judged_as_one() -> None:
    """On the first text one system is better, on the second, longer one the other is, by more."""
    metric = make_metric("bleu")
    short, long = (
        [f"there are {number} birds on the old roof and a cat" for number in range(n)] for n in (20, 60)
    )

    def worse(lines: list[str], every: int) -> list[str]:
        return [
            line if number % every else line.replace("birds on", "cats at")
            for number, line in enumerate(lines)
        ]

    first = OutputStatistics.of(
        metric, short, {("a", 1): worse(short, 9), ("b", 1): worse(short, 2), ("c", 1): short}
    )
    second = OutputStatistics.of(metric, long, {("a", 1): worse(long, 2), ("b", 1): worse(long, 9)})
    both = OutputStatistics.together([first, second])
    alone, together = first.compare("b", "a", 500), both.compare("b", "a", 500)
    assert alone is not None
    assert together is not None
    assert alone.difference > 0 > together.difference
    lines = {
        name: worse(short, here) + worse(long, there) for name, here, there in (("a", 9, 2), ("b", 2, 9))
    }
    ours, theirs = (metric.statistics(lines[name], short + long) for name in ("a", "b"))
    assert together == paired_bootstrap(metric, theirs, ours, samples=500)
    (a,), (c,) = (standing(name, {1: 0.0}).results for name in ("a", "c"))
    assert both.score(a) == pytest.approx(metric.score(lines["a"], short + long).value)
    assert c in first
    assert c not in both, "it has not translated the second text"
    assert judge(claim(), "de-en", {"a": 1.5, "b": 2.0}, together, {}).outcome == "the other way round"


def test_seeds_are_compared_together_and_do_not_count_as_more_sentences() -> None:
    """Of a system that gains on half of the sentences and loses on others, a second seed is no more proof."""
    references = [f"there are {number} birds on the old roof and a cat" for number in range(40)]
    worse = [line.replace("birds on", "cats at") for line in references]
    bad = [(references if number % 5 < 2 else worse)[number] for number in range(40)]
    good = [(references if number % 7 < 4 else worse)[number] for number in range(40)]
    metric = make_metric("bleu")
    one = OutputStatistics.of(metric, references, {("base", 1): bad, ("new", 1): good})
    same = OutputStatistics.of(
        metric, references, {("base", s): bad for s in (1, 2)} | {("new", s): good for s in (1, 2)}
    )
    first, second = one.compare("base", "new", 500), same.compare("base", "new", 500)
    assert first is not None
    assert second is not None
    assert first.difference == pytest.approx(second.difference)
    assert 0.02 < first.p_value == second.p_value
    before, after = (metric.statistics(lines, references) for lines in (bad, good))
    more = paired_bootstrap(metric, np.tile(before, (2, 1)), np.tile(after, (2, 1)), samples=500)
    assert more.p_value < first.p_value / 2, "as if seeds were sentences"
    assert one.compare("base", "nobody", 500) is None


def test_the_difference_is_that_of_the_mean_scores() -> None:
    """Of runs of other lengths, BLEU of all outputs as one text is another number."""
    references = [f"there are {number} birds on the old roof and a cat" for number in range(40)]
    short = [line[: line.index(" and")] for line in references]
    metric = make_metric("bleu")
    lines = {("base", 1): short, ("base", 2): references, ("new", 1): references, ("new", 2): references}
    scores = {key: metric.score(text, references).value for key, text in lines.items()}
    results = [
        standing(name, {seed: 0.0}).results[0].model_copy(update={"bleu": score})
        for (name, seed), score in scores.items()
    ]
    new, base = rank_systems(results, OutputStatistics.of(metric, references, lines), "base", 100)
    assert new.comparison is not None
    assert new.comparison.difference == pytest.approx(new.bleu.mean - base.bleu.mean)


def test_one_failed_seed_of_three_does_not_settle_a_rank() -> None:
    """Its outputs are bad on every sentence, and sentences alone would be sure of it."""
    references = [f"there are {number} birds on the old roof and a cat" for number in range(40)]
    fair = [line.replace("birds on", "cats at") for line in references]
    outputs = {("base", seed): fair for seed in (1, 2, 3)} | {("new", seed): fair for seed in (1, 2)}
    metric = make_metric("bleu")
    failed = OutputStatistics.of(metric, references, outputs | {("new", 3): ["nothing at all"] * 40})
    test = failed.compare("base", "new", 500)
    assert test is not None
    assert test.difference < -5
    assert test.p_value > 0.3
    bad = {("new", seed): ["there are birds"] * 40 for seed in (1, 2, 3)}
    worse = OutputStatistics.of(metric, references, outputs | bad)
    sure = worse.compare("base", "new", 500)
    assert sure is not None
    assert sure.p_value < 0.01


def test_a_pair_counts_once_and_so_does_a_cause_and_speeds_not_at_all() -> None:
    def verdict(outcome: str, **claim: str) -> Verdict:
        made = Claim.model_validate({"paper": "P", "where": "T", **claim})
        return Verdict(made, "de-en", (1.0, 2.0), 0.01, outcome, outcome)

    slow = "a begins slowly"
    counted = count_outcomes(
        [
            verdict("as in the paper", higher="x", lower="y"),
            verdict("as in the paper", higher="x", lower="y"),
            verdict("as in the paper", higher="x", lower="z"),
            verdict("the other way round", higher="a", lower="x", cause=slow),
            verdict("the other way round", higher="a", lower="y", cause=slow),
            verdict("as in the paper", higher="z", lower="a", cause=slow),
            verdict("as in the paper", higher="x", lower="y", measure="decoding_speed"),
        ]
    )
    assert counted == {("de-en", "as in the paper"): 2, ("de-en", f"not decided: {slow}"): 1}
