"""Is one system really better than another? Paired tests on the statistics of sentences.

Both tests take the sentence statistics of a baseline and of a system on the same lines. They draw random
numbers in the order in which sacrebleu draws them, so the same seed gives the same resamples. All p-values
are two-sided: nobody said before which of the two is better.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deepwire.errors import DataError, UsageError
from deepwire.evaluation.metric import Floats, Metric

DEFAULT_SEED = 12345
DEFAULT_SAMPLES = {"bootstrap": 1000, "randomization": 10000}

_CHUNK_CELLS = 1 << 22
_WORD_BITS = 32
# Scores are sums of products in floating point; a difference below this is rounding, not a difference.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class Interval:
    """Mean and 95 % interval of resampled numbers."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """The result of a paired test of a system and its baseline.

    Attributes:
        test: ``bootstrap`` or ``randomization``.
        metric: The metric's name.
        baseline: Score of the baseline.
        system: Score of the system.
        difference: System minus baseline.
        p_value: Two-sided; small when a difference of this size, either way, is unlikely to be chance.
        samples: Number of resamples or of shuffles.
        seed: Seed of the random numbers.
        baseline_interval: 95 % interval of the baseline's score (bootstrap only).
        system_interval: 95 % interval of the system's score (bootstrap only).
        difference_interval: 95 % interval of the difference (bootstrap only).
    """

    test: str
    metric: str
    baseline: float
    system: float
    difference: float
    p_value: float
    samples: int
    seed: int
    baseline_interval: Interval | None = None
    system_interval: Interval | None = None
    difference_interval: Interval | None = None


def paired_bootstrap(
    metric: Metric, baseline: Floats, system: Floats, *, samples: int = 1000, seed: int = DEFAULT_SEED
) -> Comparison:
    """Compare two systems by paired bootstrap resampling (Koehn 2004, section 5).

    Every resample draws N of the N sentences with replacement and scores both systems on them. The p-value
    is twice the share of resamples in which the difference has the other sign than on the whole text, or is
    zero (1 at most); one is added to both counts of the share, so that it is never 0.

    A system that was trained S times, with several seeds, has the mean of the scores of its runs. Every
    resample then also draws S of its S runs with replacement, for each of the two systems by itself: the
    p-value and the intervals count what depends on the seed, too. Of two or three runs that is a rough
    estimate.

    Args:
        metric: Made the statistics.
        baseline: ``[N, K]``, or ``[S, N, K]`` of S runs.
        system: The same of the same lines; it may have another number of runs.
        samples: Number of resamples.
        seed: Seed of the resamples.

    Raises:
        DataError: The two have different numbers of sentences.
        UsageError: ``samples`` is less than 1.
    """
    difference, first, second = _observed(metric, baseline, system, samples)
    drawn = resampled_scores(metric, (baseline, system), samples=samples, seed=seed)
    differences = drawn[1] - drawn[0]
    against = int(np.sum(differences * np.sign(difference) <= _ROUNDING))
    return Comparison(
        test="bootstrap",
        metric=metric.name,
        baseline=first,
        system=second,
        difference=difference,
        p_value=min(1.0, 2 * (against + 1) / (samples + 1)),
        samples=samples,
        seed=seed,
        baseline_interval=interval(drawn[0]),
        system_interval=interval(drawn[1]),
        difference_interval=interval(differences),
    )


def approximate_randomization(
    metric: Metric, baseline: Floats, system: Floats, *, samples: int = 10000, seed: int = DEFAULT_SEED
) -> Comparison:
    """Compare two systems by approximate randomisation (Riezler & Maxwell 2005, section 4).

    Every shuffle swaps the two outputs of a sentence with probability 1/2. The p-value is the share of
    shuffles whose absolute difference is at least the one observed, with one added to both counts of the
    share. The outputs that several runs of a system have for a sentence are swapped together: what other
    runs would give, this test does not say.

    Args:
        metric: Made the statistics.
        baseline: ``[N, K]``, or ``[S, N, K]`` of S runs.
        system: The same of the same lines and as many runs.
        samples: Number of shuffles.
        seed: Seed of the shuffles.

    Raises:
        DataError: The two have different numbers of sentences.
        UsageError: ``samples`` is less than 1.
    """
    difference, first, second = _observed(metric, baseline, system, samples)
    baseline, system = _runs(baseline), _runs(system)
    rng = np.random.default_rng(seed)
    total, exchange = (baseline + system).sum(axis=1, keepdims=True), baseline - system
    sentences, extreme = exchange.shape[1], 0
    for rows in _chunks(samples, sentences):
        swapped = rng.integers(2, size=(rows, sentences), dtype=np.bool_)
        swapped_totals = system.sum(axis=1, keepdims=True) + swapped.astype(np.float64) @ exchange
        spread = metric.values(swapped_totals) - metric.values(total - swapped_totals)
        extreme += int(np.sum(np.abs(spread.mean(axis=0)) >= abs(difference) - _ROUNDING))
    return Comparison(
        test="randomization",
        metric=metric.name,
        baseline=first,
        system=second,
        difference=difference,
        p_value=(extreme + 1) / (samples + 1),
        samples=samples,
        seed=seed,
    )


def holm(p_values: Sequence[float]) -> list[float]:
    """Correct p-values for the number of tests (Holm 1979), in the order given.

    With these, the chance that any test without a difference comes out below 0.05 is at most 0.05 for all of
    them together.
    """
    corrected = [1.0] * len(p_values)
    largest = 0.0
    for before, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - before) * p_values[place]))
        corrected[place] = largest
    return corrected


def resampled_scores(
    metric: Metric, systems: tuple[Floats, ...], *, samples: int, seed: int = DEFAULT_SEED
) -> Floats:
    """Score systems on the same bootstrap resamples.

    Args:
        metric: Made the statistics.
        systems: ``[N, K]`` for each system, or ``[S, N, K]`` of S runs, of which S are drawn, too.
        samples: Number R of resamples.
        seed: Seed of the resamples.

    Returns:
        ``[systems, R]``.
    """
    rng, rng_of_runs = np.random.default_rng(seed), np.random.default_rng([seed, 1])
    runs = [_runs(system) for system in systems]
    together = np.concatenate([run for system in runs for run in system], axis=1)
    ends = np.cumsum([len(system) for system in runs])[:-1]
    parts = []
    for rows in _chunks(samples, len(together)):
        totals = (_draw_counts(rng, rows, len(together)) @ together).reshape(rows, -1, metric.width)
        drawn = [
            (_draw_counts(rng_of_runs, rows, scores.shape[1]) * scores).mean(axis=1)
            for scores in np.split(metric.values(totals), ends, axis=1)
        ]
        parts.append(np.stack(drawn))
    return np.concatenate(parts, axis=1)


def interval(scores: Floats) -> Interval:
    """Return the mean of resampled scores and the interval that is left without the 2.5 % at either end."""
    ordered = np.sort(scores)
    cut = len(ordered) // 40
    return Interval(float(ordered.mean()), float(ordered[cut]), float(ordered[len(ordered) - cut - 1]))


def bounds(tests: Sequence[Comparison]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Ends of the 95 % intervals of a baseline and the systems tested against it; empty without intervals."""
    ends = [tests[0].baseline_interval, *(test.system_interval for test in tests)] if tests else []
    known = [each for each in ends if each is not None]
    return tuple(each.low for each in known), tuple(each.high for each in known)


def mean_score(metric: Metric, statistics: Floats) -> float:
    """The mean score of the runs of a system, of statistics ``[S, N, K]``; ``[N, K]`` are of one run."""
    return float(metric.values(_runs(statistics).sum(axis=1)).mean())


def _observed(metric: Metric, baseline: Floats, system: Floats, samples: int) -> tuple[float, float, float]:
    if samples < 1:
        raise UsageError(f"samples must be at least 1, but is {samples}")
    lines = baseline.shape[-2], system.shape[-2]
    if lines[0] != lines[1]:
        raise DataError(f"line counts differ: baseline {lines[0]}, system {lines[1]}")
    first, second = (mean_score(metric, statistics) for statistics in (baseline, system))
    return second - first, first, second


def _runs(statistics: Floats) -> Floats:
    """Statistics as ``[S, N, K]``; those of a single output are ``[N, K]``."""
    return statistics if statistics.ndim == 3 else statistics[None]


def _draw_counts(rng: np.random.Generator, rows: int, sentences: int) -> Floats:
    """How often each sentence, or run, is in each of ``rows`` resamples, ``[rows, sentences]``."""
    drawn: NDArray[np.int64] = rng.choice(sentences, size=(rows, sentences), replace=True)
    drawn += sentences * np.arange(rows)[:, None]
    return np.bincount(drawn.ravel(), minlength=rows * sentences).reshape(rows, sentences).astype(np.float64)


def _chunks(samples: int, sentences: int) -> Iterator[int]:
    """Split the samples so that a matrix of them over all sentences stays small."""
    size = max(1, _CHUNK_CELLS // sentences)
    if size > _WORD_BITS:  # random bits come in words; whole words keep the stream independent of the split
        size -= size % _WORD_BITS
    for start in range(0, samples, size):
        yield min(size, samples - start)
