"""From single runs to systems: means and spreads over seeds, ranks, and tests against the baseline."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping, Sequence, Set
from dataclasses import dataclass

import numpy as np

from deepwire.evaluation.metric import Floats, Metric, References
from deepwire.evaluation.significance import Comparison, holm, paired_bootstrap
from deepwire.lab.experiments.results.run_measurement import RunResult


@dataclass(frozen=True)
class Spread:
    """Mean of some numbers, their standard deviation (nan of a single one), least and greatest."""

    mean: float
    deviation: float
    low: float
    high: float
    count: int

    @classmethod
    def of(cls, numbers: Sequence[float]) -> Spread:
        """Of at least one number."""
        deviation = statistics.stdev(numbers) if len(numbers) > 1 else math.nan
        return cls(statistics.fmean(numbers), deviation, min(numbers), max(numbers), len(numbers))


@dataclass(frozen=True)
class RankedSystem:
    """One system in one direction, over its seeds.

    Attributes:
        results: The runs.
        comparison: With the baseline, None for the baseline itself or where they share no seed.
    """

    system: str
    results: tuple[RunResult, ...]
    comparison: Comparison | None

    @property
    def bleu(self) -> Spread:
        """Over seeds."""
        return Spread.of([result.bleu for result in self.results])

    def mean(self, name: str, seeds: Set[int] = frozenset()) -> float:
        """Mean of a number of the runs: ``training_speed``; of those with these seeds, if any are given."""
        chosen = [result for result in self.results if not seeds or result.seed in seeds]
        return statistics.fmean(float(getattr(result, name)) for result in chosen)


class OutputStatistics:
    """The translations of all runs of one direction, as statistics for tests.

    Args:
        metric: BLEU, with the tokenizer of the target language.
        statistics: Of every sentence, ``[N, K]``, by system and seed.
    """

    def __init__(self, metric: Metric, statistics: Mapping[tuple[str, int], Floats]) -> None:
        self._metric, self._statistics = metric, statistics

    @classmethod
    def of(
        cls,
        metric: Metric,
        references: References,
        translations: Mapping[tuple[str, int], Sequence[str]],
    ) -> OutputStatistics:
        """Of translations by system and seed, and one or several references, line by line.

        Raises:
            DataError: They differ in length.
        """
        return cls(metric, {key: metric.statistics(lines, references) for key, lines in translations.items()})

    @classmethod
    def together(cls, texts: Sequence[OutputStatistics]) -> OutputStatistics:
        """Several texts as one, of the runs that have translated all of them."""
        first, *others = texts
        shared = [key for key in first._statistics if all(key in text._statistics for text in others)]
        return cls(
            first._metric, {key: np.concatenate([text._statistics[key] for text in texts]) for key in shared}
        )

    def __contains__(self, result: RunResult) -> bool:
        """Whether a run has translated the text."""
        return (result.system, result.seed) in self._statistics

    def score(self, result: RunResult) -> float:
        """BLEU of a run that has translated the text."""
        return self._metric.score_of(self._statistics[result.system, result.seed], 1).value

    def compare(self, baseline: str, system: str, samples: int) -> Comparison | None:
        """Paired bootstrap over sentences and over runs, of the seeds that both have.

        A sentence is drawn with the outputs of all runs, so seeds do not count as more sentences; and runs
        are drawn too, so one seed that failed does not make a system worse for sure. None where the two
        share no seed.
        """
        seeds = [seed for name, seed in self._statistics if name == system]
        shared = [seed for seed in seeds if (baseline, seed) in self._statistics]
        if not shared:
            return None
        first, second = (
            np.stack([self._statistics[name, seed] for seed in shared]) for name in (baseline, system)
        )
        return paired_bootstrap(self._metric, first, second, samples=samples)


def means(ranks: Sequence[RankedSystem], systems: Sequence[str], name: str) -> dict[str, float]:
    """The mean of a number of some systems over the seeds that all of them have.

    Of each over its own seeds where they share none; systems without a run are left out.
    """
    chosen = [ranked for ranked in ranks if ranked.system in systems]
    seeds = [{run.seed for run in ranked.results} for ranked in chosen]
    shared = set.intersection(*seeds) if seeds else set[int]()
    return {ranked.system: ranked.mean(name, shared) for ranked in chosen}


def corrected(ranks: Sequence[RankedSystem]) -> list[float | None]:
    """The two-sided p-value of each comparison, corrected for the number of them; None for the baseline."""
    tested = {place: ranked.comparison for place, ranked in enumerate(ranks) if ranked.comparison is not None}
    corrected_p = dict(zip(tested, holm([test.p_value for test in tested.values()]), strict=True))
    return [corrected_p.get(place) for place in range(len(ranks))]


def rank_systems(
    results: Sequence[RunResult], outputs: OutputStatistics, baseline: str, samples: int
) -> list[RankedSystem]:
    """The systems of one direction, the highest mean BLEU first."""
    by_system: dict[str, list[RunResult]] = {}
    for result in results:
        by_system.setdefault(result.system, []).append(result)
    ranked = [
        RankedSystem(
            system,
            tuple(system_results),
            None if system == baseline else outputs.compare(baseline, system, samples),
        )
        for system, system_results in by_system.items()
    ]
    return sorted(ranked, key=lambda standing: -standing.bleu.mean)
