from __future__ import annotations

import numpy as np
import pytest
from sacrebleu.metrics import BLEU, CHRF, TER
from sacrebleu.significance import PairedTest

from deepwire.evaluation.metric_choice import make_metric
from deepwire.evaluation.significance import StandardError, paired_test, resampled_scores

TESTS = ("bootstrap", "randomization")
SACREBLEU = {"bleu": BLEU, "chrf": CHRF, "ter": TER}


def their_result(metric_class, test, samples, reference, *systems):
    named = [(f"system {number}", lines) for number, lines in enumerate(systems)]
    test = PairedTest(named, {"metric": metric_class()}, [reference], test_type=test, n_samples=samples)
    _, scores = test()
    return next(results for name, results in scores.items() if name != "System")


@pytest.fixture(autouse=True)
def same_seed_for_sacrebleu(monkeypatch):
    monkeypatch.setenv("SACREBLEU_SEED", "12345")


@pytest.mark.parametrize("name", SACREBLEU)
def test_bootstrap_draws_the_resamples_of_sacrebleu(name, reference, damaged):
    metric, one, two = make_metric(name), damaged(0.2, 1), damaged(0.22, 2)
    counts = metric.statistics(one, reference), metric.statistics(two, reference)
    _, theirs = their_result(SACREBLEU[name], "bs", 300, reference, one, two)
    ours = paired_test(metric, *counts, samples=300)
    assert ours.system == pytest.approx(theirs.score)
    assert ours.system_interval.mean == pytest.approx(theirs.mean, rel=1e-5)
    assert (ours.system_interval.high - ours.system_interval.low) / 2 == pytest.approx(theirs.ci, rel=1e-4)
    drawn = resampled_scores(metric, counts, samples=300)
    centred = np.abs(drawn[1] - drawn[0]) - np.abs(drawn[1] - drawn[0]).mean()
    p_value = (np.sum(centred > abs(ours.difference)) + 1) / 301
    assert p_value == pytest.approx(theirs.p_value, abs=2 / 301)


@pytest.mark.parametrize("name", SACREBLEU)
def test_randomization_has_the_p_value_of_sacrebleu(name, reference, damaged):
    metric, one, two = make_metric(name), damaged(0.2, 1), damaged(0.22, 2)
    counts = metric.statistics(one, reference), metric.statistics(two, reference)
    _, theirs = their_result(SACREBLEU[name], "ar", 500, reference, one, two)
    ours = paired_test(metric, *counts, "randomization", samples=500)
    # Equal differences count here and not there; they are frequent only for TER, whose counts are few.
    slack = 0.03 if name == "ter" else 1e-9
    assert theirs.p_value - 1e-9 <= ours.p_value <= theirs.p_value + slack


def test_a_bootstrap_by_hand():
    # Two sentences: the system is better on the first and the same on the second, so a resample shows no
    # difference with probability 1/4.
    metric = make_metric("ter")
    baseline, system = np.array([[2.0, 10], [2, 10]]), np.array([[1.0, 10], [2, 10]])
    result = paired_test(metric, baseline, system, samples=4000)
    assert (result.baseline, result.system, result.difference) == pytest.approx((20, 15, -5))
    assert result.p_value == pytest.approx(0.5, abs=0.06)  # only the second sentence was drawn; either way
    randomized = paired_test(metric, baseline, system, "randomization", samples=1000)
    assert randomized.p_value == 1  # swapping the one different sentence gives the same size


def runs(damaged, metric, reference, rates: tuple[float, ...], first: int) -> np.ndarray:
    """Statistics of three runs whose outputs are damaged at these rates."""
    texts = [damaged(rate, first + place) for place, rate in enumerate(rates)]
    return np.stack([metric.statistics(lines, reference) for lines in texts])


def test_one_failed_run_of_three_is_no_proof(reference, damaged):
    """All sentences of a failed run are bad, so resampling sentences alone finds p = 0 for the system."""
    metric = make_metric("bleu")
    baseline = runs(damaged, metric, reference, (0.1, 0.1, 0.1), 1)
    failed = runs(damaged, metric, reference, (0.1, 0.1, 0.9), 11)
    worse = runs(damaged, metric, reference, (0.4, 0.4, 0.45), 21)
    for_sure = paired_test(metric, baseline.sum(axis=0), failed.sum(axis=0))
    result = paired_test(metric, baseline, failed)
    scores = [[float(metric.values(run.sum(axis=0))) for run in system] for system in (baseline, failed)]
    assert result.difference == pytest.approx(np.mean(scores[1]) - np.mean(scores[0]))
    assert result.difference < -10
    randomized = paired_test(metric, baseline, failed, "randomization", samples=10)
    assert randomized.difference == result.difference
    assert for_sure.p_value < 0.01
    assert result.p_value > 0.2
    assert result.difference_interval.high > -1 > for_sure.difference_interval.high
    assert paired_test(metric, baseline, worse).p_value < 0.01


def test_runs_are_drawn_as_often_as_there_are():
    """Of two runs with scores 0 and 50 a resample has 0, 25 or 50, in a quarter, half and a quarter."""
    two = np.array([[[0.0, 10]] * 5, [[5.0, 10]] * 5])
    (drawn,) = resampled_scores(make_metric("ter"), (two,), samples=4000)
    values, counts = np.unique(drawn.round(6), return_counts=True)
    assert values.tolist() == [0, 25, 50]
    assert counts / 4000 == pytest.approx([0.25, 0.5, 0.25], abs=0.03)


def test_results_do_not_depend_on_chunks(monkeypatch, reference, damaged):
    from deepwire.evaluation import significance

    metric = make_metric("bleu")
    one, two = metric.statistics(damaged(0.2, 1), reference), metric.statistics(damaged(0.21, 2), reference)
    whole = [paired_test(metric, one, two, test, samples=200) for test in TESTS]
    monkeypatch.setattr(significance, "_CHUNK_CELLS", 200 * 64)
    split = [paired_test(metric, one, two, test, samples=200) for test in TESTS]
    assert [result.p_value for result in whole] == [result.p_value for result in split]


def test_a_standard_error_has_a_normal_and_a_student_part():
    """Tables of both distributions; beyond all resamples p still becomes smaller."""
    assert StandardError(2.0, 0.0, 0).critical(0.05) == pytest.approx(2 * 1.959964, abs=1e-5)
    for degrees, critical in ((1, 12.7062), (3, 3.18245), (4, 2.77645), (39, 2.02269)):
        assert StandardError(0.0, 2.0, degrees).critical(0.05) == pytest.approx(2 * critical, abs=1e-4)
    both = StandardError(0.25, 0.35, 39)
    assert both.critical(0.05) == pytest.approx(2.0 * np.hypot(0.25, 0.35), rel=0.01)
    assert 0 < both.p_value(4.0) < 1e-9
    assert StandardError(0.0, 0.0, 0).p_value(0.0) == 1


@pytest.mark.parametrize(("known", "estimated", "degrees"), [(0.25, 0.35, 39), (0.3, 0.2, 7), (0.2, 0.0, 0)])
def test_what_is_visible_is_found_in_four_of_five_repetitions(known, estimated, degrees):
    """The deviation of seeds is itself estimated anew in each of 3,000 repetitions."""
    rng, repetitions = np.random.default_rng(1), 3000
    visible = StandardError(known, estimated, degrees).visible(0.05)
    noise = rng.normal(0, np.hypot(known, estimated), repetitions)
    seen = [
        estimated * np.sqrt(rng.chisquare(degrees) / degrees) if degrees else 0.0 for _ in range(repetitions)
    ]
    errors = [StandardError(known, each, degrees) for each in seen]
    found = [error.p_value(visible + one) < 0.05 for error, one in zip(errors, noise, strict=True)]
    absent = [error.p_value(one) < 0.05 for error, one in zip(errors, noise, strict=True)]
    assert np.mean(found) == pytest.approx(0.8, abs=0.03)
    assert np.mean(absent) == pytest.approx(0.045, abs=0.015)
