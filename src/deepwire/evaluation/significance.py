"""Paired significance tests of two systems, on the statistics of their sentences.

Random numbers are drawn in the order in which sacrebleu draws them, so the same seed gives the same
resamples. All p-values are two-sided.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deepwire.errors import UsageError
from deepwire.evaluation.metric import Floats, Metric

DEFAULT_SEED = 12345
DEFAULT_SAMPLES = {"bootstrap": 1000, "randomization": 10000}

_CHUNK_CELLS = 1 << 22
_WORD_BITS = 32
# Scores are sums of products in floating point: a smaller difference than this is rounding.
_ROUNDING = 1e-9
_NORMAL = np.linspace(-8, 8, 321)  # standard errors, and how often the normal distribution has them
_NORMAL_SHARES = np.exp(-(_NORMAL**2) / 2) / np.exp(-(_NORMAL**2) / 2).sum()


@dataclass(frozen=True)
class Interval:
    """Mean and 95 % interval of resampled numbers."""

    mean: float
    low: float
    high: float


@dataclass(frozen=True)
class Comparison:
    """The result of a paired test of a system and its baseline; intervals of 95 % only by bootstrap."""

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


@dataclass(frozen=True)
class StandardError:
    """The standard error of a difference, in two parts.

    Attributes:
        known: The part that is known, as that of the sentences by many resamples: a normal distribution.
        estimated: The part that was estimated with few `degrees` of freedom, as that of seeds: Student's t.
    """

    known: float
    estimated: float
    degrees: int

    def p_value(self, difference: float) -> float:
        """The chance of a difference as large in either direction, where there is none."""
        known = max(self.known, _ROUNDING)
        if not self.estimated:
            return math.erfc(abs(difference) / known / math.sqrt(2))
        rest = (abs(difference) - known * _NORMAL) / self.estimated
        return min(1.0, 2 * float(_NORMAL_SHARES @ _student_tail(rest, self.degrees)))

    def critical(self, level: float) -> float:
        """The difference whose p-value is a level."""
        low, high = 0.0, 1e6 * (self.known + self.estimated)
        for _ in range(60):
            middle = (low + high) / 2
            low, high = (middle, high) if self.p_value(middle) > level else (low, middle)
        return high

    def visible(self, level: float) -> float:
        """The smallest true difference whose p-value is below a level in 80 % of all repetitions."""
        return self.critical(level) + self.critical(2 * (1 - 0.8))


def _student_tail(values: Floats, degrees: int) -> Floats:
    """The chances that Student's t is at least as large (Abramowitz and Stegun 1964, 26.7.3 and 26.7.4)."""
    angles, odd = np.arctan(values / math.sqrt(degrees)), degrees % 2
    terms, total = np.cos(angles) ** odd, np.zeros_like(angles)
    for power in range(odd, degrees - 1, 2):
        total += terms
        terms = terms * np.cos(angles) ** 2 * (power + 1) / (power + 2)
    inside: Floats = np.sin(angles) * total
    return (1 - (2 / math.pi * (angles + inside) if odd else inside)) / 2


def paired_test(
    metric: Metric,
    baseline: Floats,
    system: Floats,
    test: str = "bootstrap",
    samples: int | None = None,
    seed: int = DEFAULT_SEED,
) -> Comparison:
    """Tests whether the difference of two systems on the same lines is more than chance.

    `bootstrap` (Koehn 2004, section 5) scores both systems on resamples of the N sentences. The p-value is
    twice the share of resamples in which the difference is zero or has the other sign. If a system has S
    runs, of several seeds, S of them are drawn, too: p-value and intervals count what depends on the seed.

    `randomization` (Riezler & Maxwell 2005, section 4) swaps the outputs of each sentence with probability
    1/2. The p-value is the share of shuffles whose absolute difference is at least the one observed. The
    outputs that several runs have for a sentence are swapped together.

    Either share has one added to both of its counts, so that it is never 0.

    Args:
        metric: Made the statistics.
        baseline: `[N, K]`, or `[S, N, K]` of S runs, whose mean score counts.
        system: The same of the same lines.
        test: `bootstrap` or `randomization`.
        samples: Resamples or shuffles; the usual number of the test when None.
        seed: Of the random numbers.

    Raises:
        UsageError: `samples` is less than 1.
    """
    samples = DEFAULT_SAMPLES[test] if samples is None else samples
    if samples < 1:
        raise UsageError(f"samples must be at least 1, but is {samples}")
    first, second = mean_score(metric, baseline), mean_score(metric, system)
    intervals: list[Interval] = []
    if test == "bootstrap":
        drawn = resampled_scores(metric, (baseline, system), samples=samples, seed=seed)
        differences = drawn[1] - drawn[0]
        against = int(np.sum(differences * np.sign(second - first) <= _ROUNDING))
        p_value = min(1.0, 2 * (against + 1) / (samples + 1))
        intervals = [interval(drawn[0]), interval(drawn[1]), interval(differences)]
    else:
        extreme = _count_extreme(metric, _runs(baseline), _runs(system), abs(second - first), samples, seed)
        p_value = (extreme + 1) / (samples + 1)
    return Comparison(test, metric.name, first, second, second - first, p_value, samples, seed, *intervals)


def _count_extreme(
    metric: Metric, baseline: Floats, system: Floats, observed: float, samples: int, seed: int
) -> int:
    """How many shuffles have at least the observed difference."""
    rng = np.random.default_rng(seed)
    total, exchange = (baseline + system).sum(axis=1, keepdims=True), baseline - system
    sentences, extreme = exchange.shape[1], 0
    for rows in _chunks(samples, sentences):
        swapped = rng.integers(2, size=(rows, sentences), dtype=np.bool_)
        swapped_totals = system.sum(axis=1, keepdims=True) + swapped.astype(np.float64) @ exchange
        spread = metric.values(swapped_totals) - metric.values(total - swapped_totals)
        extreme += int(np.sum(np.abs(spread.mean(axis=0)) >= observed - _ROUNDING))
    return extreme


def holm(p_values: Sequence[float]) -> list[float]:
    """Corrects p-values for the number of tests (Holm 1979), in the order given."""
    corrected = [1.0] * len(p_values)
    largest = 0.0
    for before, place in enumerate(sorted(range(len(p_values)), key=p_values.__getitem__)):
        largest = max(largest, min(1.0, (len(p_values) - before) * p_values[place]))
        corrected[place] = largest
    return corrected


def resampled_scores(
    metric: Metric, systems: tuple[Floats, ...], *, samples: int, seed: int = DEFAULT_SEED
) -> Floats:
    """Scores systems, `[N, K]` or `[S, N, K]` each, on the same bootstrap resamples: `[systems, samples]`."""
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
    """The mean of resampled scores and the interval that is left without the 2.5 % at either end."""
    ordered = np.sort(scores)
    cut = len(ordered) // 40
    return Interval(float(ordered.mean()), float(ordered[cut]), float(ordered[len(ordered) - cut - 1]))


def bounds(tests: Sequence[Comparison]) -> tuple[tuple[float, ...], tuple[float, ...]]:
    """Ends of the 95 % intervals of a baseline and the systems tested against it; empty without intervals."""
    ends = [tests[0].baseline_interval, *(test.system_interval for test in tests)] if tests else []
    known = [each for each in ends if each is not None]
    return tuple(each.low for each in known), tuple(each.high for each in known)


def mean_score(metric: Metric, statistics: Floats) -> float:
    """The mean score of the runs of a system, of statistics `[S, N, K]`; `[N, K]` are of one run."""
    return float(metric.values(_runs(statistics).sum(axis=1)).mean())


def _runs(statistics: Floats) -> Floats:
    return statistics if statistics.ndim == 3 else statistics[None]


def _draw_counts(rng: np.random.Generator, rows: int, sentences: int) -> Floats:
    """How often each sentence, or run, is in each resample, `[rows, sentences]`."""
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
