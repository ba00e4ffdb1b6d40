"""What runs say about the papers' claims: at the common update, and where each system stands still."""

from __future__ import annotations

import math
import statistics
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum

import numpy as np

from deepwire.errors import DataError
from deepwire.evaluation.metric import Floats, Metric
from deepwire.evaluation.metric_choice import LanguageMetrics
from deepwire.evaluation.significance import Interval, interval, resampled_scores
from deepwire.lab.experiments.questions.question_plan import GOALS, ClaimPlan, Goal
from deepwire.lab.experiments.questions.question_results import QuestionResult, RunStanding, unpack

SIGNIFICANT = 0.05
NOT_LEARNED = 0.25
"""A system whose BLEU is below this share of the best of its question has not learned to translate."""
_ROUNDING = 1e-9
_SEED_OF_SEEDS = 1


class ClaimOutcome(StrEnum):
    """What was found of a claim; each claim is counted once."""

    HOLDS = "as the paper says"
    REVERSED = "the other way round"
    OPEN = "no clear difference"
    NOT_LEARNED = "one of the two has not learned to translate"
    FAILED = "a run failed"
    MISSING = "not yet measured"


@dataclass(frozen=True)
class SystemResults:
    """The runs of a system, with every seed.

    Attributes:
        system: As the plan calls it.
        runs: One for each seed; where a system has a model for each direction, those with a seed together.
    """

    system: str
    runs: Mapping[int, tuple[QuestionResult, ...]]

    def standings(self, goal: Goal) -> dict[int, tuple[RunStanding, ...]]:
        """What has reached a goal, by seed: all models with it, or nothing."""
        return {
            seed: tuple(run.standings[goal] for run in runs)
            for seed, runs in self.runs.items()
            if runs and all(goal in run.standings for run in runs)
        }

    def failures(self, goal: Goal) -> list[str]:
        """Why runs did not reach a goal."""
        return [run.failed[goal] for runs in self.runs.values() for run in runs if goal in run.failed]

    def bleu(self, goal: Goal) -> list[float]:
        """Mean BLEU over directions, for each seed that has reached a goal."""
        return [
            statistics.fmean(test.bleu for standing in standings for test in standing.tests.values())
            for standings in self.standings(goal).values()
        ]


@dataclass(frozen=True)
class SeedDeviation:
    """How far the seeds of one system lie apart in BLEU, by all systems with several seeds together.

    Attributes:
        sd: Pooled standard deviation, BLEU.
        degrees: Of freedom: seeds less systems.
    """

    sd: float
    degrees: int

    def draws(self, seeds: tuple[int, int], samples: int) -> Floats:
        """What the choice of seeds adds to a difference of means: ``[samples]`` of Student's t, in BLEU.

        Args:
            seeds: How many each of the two systems has.
            samples: Number of draws.
        """
        error = self.sd * math.sqrt(sum(1 / number for number in seeds))
        draws: Floats = np.random.default_rng(_SEED_OF_SEEDS).standard_t(self.degrees, samples) * error
        return draws


def seed_deviation(scores: Iterable[Sequence[float]]) -> SeedDeviation | None:
    """Pool the variances of systems.

    Args:
        scores: BLEU of the seeds of each system; those with a single seed say nothing.

    Returns:
        None where no system has several seeds.
    """
    several = [of_system for of_system in scores if len(of_system) > 1]
    degrees = sum(len(of_system) - 1 for of_system in several)
    if not degrees:
        return None
    squares = sum(statistics.variance(of_system) * (len(of_system) - 1) for of_system in several)
    return SeedDeviation(math.sqrt(squares / degrees), degrees)


@dataclass(frozen=True)
class GoalVerdict:
    """A claim at one of the goals.

    Attributes:
        outcome: What was found.
        bleu: Means of the better and of the other system, as the paper has them; None before both are there.
        difference: Between them, over all seeds of each.
        bounds: 95 % of it; see `paired_difference`.
        p_value: Two-sided.
        seeds: How many the better and the other system have; (0, 0) before both have one.
        still: Whether all these runs stood still before their limit.
    """

    outcome: ClaimOutcome
    bleu: tuple[float, float] | None = None
    difference: float | None = None
    bounds: Interval | None = None
    p_value: float | None = None
    seeds: tuple[int, int] = (0, 0)
    still: bool = False


@dataclass(frozen=True)
class ClaimVerdict:
    """A claim at both goals; the plateau decides where it was reached.

    Attributes:
        claim: The paper's.
        equal, plateau: What was found at each.
    """

    claim: ClaimPlan
    equal: GoalVerdict
    plateau: GoalVerdict

    @property
    def decisive(self) -> GoalVerdict:
        """That of the plateau, or where it is missing, of the common update."""
        undecided = self.plateau.outcome in (ClaimOutcome.MISSING, ClaimOutcome.FAILED)
        return self.equal if undecided else self.plateau

    @property
    def outcome(self) -> ClaimOutcome:
        """What decides."""
        return self.decisive.outcome


def judge_claim(
    claim: ClaimPlan,
    systems: Mapping[str, SystemResults],
    samples: int,
    deviations: Mapping[Goal, SeedDeviation | None],
) -> ClaimVerdict:
    """Hold a claim against the runs of a question.

    Args:
        claim: What the paper says.
        systems: Those of the question, by name.
        samples: Resamples of the significance tests.
        deviations: Of seeds at each goal: in the midst of training they lie further apart than at its end.

    Raises:
        DataError: The two were scored on different texts.
    """
    equal, plateau = (_judge(claim, systems, goal, samples, deviations[goal]) for goal in GOALS)
    return ClaimVerdict(claim, equal, plateau)


def has_learned(system: SystemResults, systems: Mapping[str, SystemResults], goal: Goal) -> bool:
    """Whether a system has learned to translate, beside the best of the question."""
    best = max((max(other.bleu(goal), default=0.0) for other in systems.values()), default=0.0)
    scores = system.bleu(goal)
    return bool(scores) and statistics.fmean(scores) >= NOT_LEARNED * best


def _judge(
    claim: ClaimPlan,
    systems: Mapping[str, SystemResults],
    goal: Goal,
    samples: int,
    deviation: SeedDeviation | None,
) -> GoalVerdict:
    pair = systems[claim.better], systems[claim.than]
    if any(each.failures(goal) and not each.bleu(goal) for each in pair):
        return GoalVerdict(ClaimOutcome.FAILED)
    compared = difference_between(*pair, goal, samples, deviation)
    if compared is None:
        return GoalVerdict(ClaimOutcome.MISSING)
    difference, bounds, p_value = compared
    bleu, others = (each.bleu(goal) for each in pair)
    if not all(has_learned(each, systems, goal) for each in pair):
        outcome = ClaimOutcome.NOT_LEARNED
    elif p_value >= SIGNIFICANT:
        outcome = ClaimOutcome.OPEN
    else:
        outcome = ClaimOutcome.HOLDS if difference > 0 else ClaimOutcome.REVERSED
    still = all(
        standing.stood_still
        for each in pair
        for of_seed in each.standings(goal).values()
        for standing in of_seed
    )
    means = statistics.fmean(bleu), statistics.fmean(others)
    return GoalVerdict(outcome, means, difference, bounds, p_value, (len(bleu), len(others)), still)


def difference_between(
    better: SystemResults, than: SystemResults, goal: Goal, samples: int, deviation: SeedDeviation | None
) -> tuple[float, Interval, float] | None:
    """How far one system's BLEU lies above another's, 95 % of it, and the p-value; see `paired_difference`.

    None where one of them has no seed at the goal.
    """
    own, others = (list(each.standings(goal).values()) for each in (better, than))
    return paired_difference(others, own, samples, deviation) if own and others else None


def paired_difference(
    baseline: Sequence[Sequence[RunStanding]],
    system: Sequence[Sequence[RunStanding]],
    samples: int,
    deviation: SeedDeviation | None,
) -> tuple[float, Interval, float]:
    """How far a system's BLEU lies above a baseline's, 95 % of it, and the two-sided p-value.

    Sentences are resampled as `paired_bootstrap` does, those of several directions each by itself, and the
    mean over directions is compared. What other seeds would give is added to each resample by the deviation
    of seeds: to draw from two or three runs says too little of it, and from a single one nothing.

    Args:
        baseline, system: Models by seed; one of the two may have more.
        samples: Number of resamples.
        deviation: Of seeds; None counts the sentences alone.

    Raises:
        DataError: The two were scored on different texts, or statistics are damaged.
    """
    metric = LanguageMetrics(("bleu",)).of("en")[0]  # made of the same sums, whatever the tokenizer was
    first, second = ([_statistics(standings, metric) for standings in runs] for runs in (baseline, system))
    directions = list(first[0])
    if any(list(run) != directions for run in (*first, *second)):
        raise DataError(
            "the systems of a comparison were scored on different texts",
            "measure all of them on one text: move the results of the others away",
        )
    drawn, observed = [], []
    for number, direction in enumerate(directions):
        both = [np.sum([run[direction] for run in runs], axis=0) for runs in (first, second)]
        scores = resampled_scores(metric, (both[0], both[1]), samples=samples, seed=number)
        drawn.append(scores[1] - scores[0])
        bleu = [float(metric.values(each.sum(axis=0))) for each in both]
        observed.append(bleu[1] - bleu[0])
    differences, difference = np.mean(drawn, axis=0), statistics.fmean(observed)
    if deviation is not None:
        differences = differences + deviation.draws((len(baseline), len(system)), samples)
    against = int(np.sum(differences * np.sign(difference) <= _ROUNDING))
    return difference, interval(differences), min(1.0, 2 * (against + 1) / (samples + 1))


def _statistics(standings: Sequence[RunStanding], metric: Metric) -> dict[tuple[str, str], Floats]:
    """Of every direction and its text."""
    rows_of = {}
    for standing in standings:
        for direction, test in standing.tests.items():
            rows = unpack(test.statistics)
            if rows.shape != (test.sentences, metric.width):
                raise DataError(f"statistics of {direction} have the shape {rows.shape}")
            rows_of[direction, test.text] = rows
    return rows_of
