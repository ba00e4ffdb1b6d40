"""Systems of many directions side by side: averages, and pairs of systems compared in every direction."""

from __future__ import annotations

import statistics
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from deepwire.data.languages import Direction
from deepwire.errors import DataError
from deepwire.evaluation.comparison import PairedTest
from deepwire.evaluation.metric_choice import LanguageMetrics
from deepwire.evaluation.multilingual.directed_texts import texts_of
from deepwire.evaluation.multilingual.direction_names import Group
from deepwire.evaluation.multilingual.direction_table import (
    DirectionAverage,
    DirectionFacts,
    DirectionsReport,
    DirectionTable,
    DirectionTableSettings,
    samples_for,
)
from deepwire.evaluation.texts import Text
from deepwire.lab.experiments.results.experiment_runner import ExperimentRunner, GatheredResults
from deepwire.lab.experiments.results.planned_runs import RunPlan
from deepwire.lab.experiments.results.results_plan import ComparisonPlan
from deepwire.lab.experiments.results.run_measurement import RunResult

METRICS = ("bleu", "chrf")


@dataclass(frozen=True)
class ComparedPair:
    """Two systems in the directions in which both are measured.

    Attributes:
        plan: Which two.
        title: What they show.
        report: Scores and tests of every direction, and averages.
        missing: Directions of the plan in which one of the two is not measured.
    """

    plan: ComparisonPlan
    title: str
    report: DirectionsReport
    missing: tuple[str, ...]

    @property
    def average(self) -> DirectionAverage:
        """Over all directions that were compared."""
        return DirectionAverage("all", tuple(row for block in self.report.blocks for row in block.rows))


class SystemComparison:
    """What was measured of a plan, by system and direction.

    Args:
        runner: The plan and its folder.
        gathered: What there is of it.
    """

    def __init__(self, runner: ExperimentRunner, gathered: GatheredResults) -> None:
        self.runner, self.gathered = runner, gathered
        self.plan = runner.loaded.plan
        self.metrics = LanguageMetrics(METRICS)
        self._results: dict[tuple[str, str], list[RunResult]] = {}
        for result in gathered.results:
            self._results.setdefault((result.system, result.direction), []).append(result)
        self._compared: dict[tuple[str, str], ComparedPair | None] = {}

    def of(self, system: str, direction: str | None = None) -> list[RunResult]:
        """What was measured of a system: all of it, or one direction; each with every seed."""
        chosen = self.plan.directions if direction is None else (direction,)
        return [result for name in chosen for result in self._results.get((system, name), ())]

    def systems(self) -> list[str]:
        """Those of which something was measured, as the plan has them."""
        return [name for name in self.plan.systems if self.of(name)]

    def directions(self, source: str | None = None, target: str | None = None) -> list[str]:
        """The directions of the plan; those out of a language, or into one."""
        return [
            name
            for name in self.plan.directions
            if source in (None, Direction.parse(name).source)
            and target in (None, Direction.parse(name).target)
        ]

    def mean(
        self, system: str, directions: Sequence[str], number: Callable[[RunResult], float]
    ) -> float | None:
        """Mean over directions of the means over seeds; None unless every direction was measured."""
        by_direction = [self.of(system, direction) for direction in directions]
        if not all(by_direction) or not by_direction:
            return None
        return statistics.fmean(statistics.fmean(map(number, results)) for results in by_direction)

    def models(self, system: str) -> list[RunResult]:
        """One result of each model of a system with the first seed that was measured: what models have."""
        results = self.of(system)
        if not results:
            return []
        first_seed = [result for result in results if result.seed == results[0].seed]
        return first_seed[:1] if self.plan.systems[system].one_model else first_seed

    def comparisons(self) -> list[ComparedPair]:
        """The comparisons of the plan for which there is anything."""
        pairs = [self.compare(pair) for pair in self.plan.pairs]
        return [pair for pair in pairs if pair is not None]

    def against_baseline(self, system: str) -> ComparedPair | None:
        """A system and the baseline of the plan."""
        if system == self.plan.baseline:
            return None
        return self.compare(ComparisonPlan(system=system, baseline=self.plan.baseline))

    def compare(self, pair: ComparisonPlan) -> ComparedPair | None:
        """Two systems in every direction; None where they have none in common.

        Raises:
            DataError: A translation or test set is gone, or the two have different test sets.
        """
        key = (pair.system, pair.baseline)
        if key not in self._compared:
            self._compared[key] = self._compare(pair)
        compared = self._compared[key]
        return (
            None if compared is None else ComparedPair(pair, pair.heading, compared.report, compared.missing)
        )

    def _compare(self, pair: ComparisonPlan) -> ComparedPair | None:
        shared = {direction: self._shared(pair, direction) for direction in self.plan.directions}
        done = [direction for direction, seeds in shared.items() if seeds]
        if not done:
            return None
        samples = max(self.plan.samples, 2 * samples_for(len(done)))
        groups = [Group(name, frozenset(languages)) for name, languages in self.plan.groups.items()]
        paired = PairedTest("bootstrap", samples=samples)
        table = DirectionTable(DirectionTableSettings(self.metrics.of, self.plan.centre, groups, paired))
        for direction in done:
            reference = self._reference(pair, direction)
            ours, theirs = (
                [self._output(system, direction, seed) for seed in shared[direction]]
                for system in (pair.system, pair.baseline)
            )
            table.add_outputs(DirectionFacts(Direction.parse(direction)), reference, ours, theirs)
        missing = tuple(direction for direction in self.plan.directions if direction not in done)
        run = self._run(pair.system, done[0])
        test = texts_of(run.loaded.config.data, "test", run.name)
        report = table.report(pair.system, pair.baseline, test.name, self.metrics.notes)
        return ComparedPair(pair, pair.heading, report, missing)

    def _shared(self, pair: ComparisonPlan, direction: str) -> list[int]:
        """Seeds with which both were measured in a direction."""
        theirs = {result.seed for result in self.of(pair.baseline, direction)}
        return [result.seed for result in self.of(pair.system, direction) if result.seed in theirs]

    def _reference(self, pair: ComparisonPlan, direction: str) -> Text:
        first, second = (
            self.runner.test_set(self._run(name, direction), direction).reference
            for name in (pair.system, pair.baseline)
        )
        if first.answers != second.answers:
            raise DataError(
                f"{direction}: {pair.system} and {pair.baseline} were scored on different test sets",
                "give all systems of the plan one data.test",
            )
        return first

    def _output(self, system: str, direction: str, seed: int) -> Text:
        run = self._run(system, direction, seed)
        return Text(run.label(direction), self.runner.lines(run, direction))

    def _run(self, system: str, direction: str, seed: int | None = None) -> RunPlan:
        """The run of a result: with a seed, or with the first that was measured."""
        wanted = self.of(system, direction)[0].seed if seed is None else seed
        return next(
            run
            for run in self.runner.loaded.runs
            if run.system == system and direction in run.directions and run.seed == wanted
        )
