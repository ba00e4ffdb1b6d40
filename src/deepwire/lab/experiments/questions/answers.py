"""What there is for every question: the runs of its systems, and the verdicts on its claims."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from deepwire.config.settings_reader import read_settings
from deepwire.lab.experiments.questions.question_plan import GOALS, Goal, QuestionPlan, QuestionsPlan
from deepwire.lab.experiments.questions.question_results import (
    QuestionResult,
    ResultFolder,
    TriedSettings,
)
from deepwire.lab.experiments.questions.question_verdicts import (
    ClaimVerdict,
    SeedDeviation,
    SystemResults,
    has_learned,
    judge_claim,
    seed_deviation,
)
from deepwire.lab.experiments.results.results_plan import ALL, Plan
from deepwire.runfile import locate

_FEWEST_DEGREES = 3


@dataclass(frozen=True)
class PartResults:
    """What is kept of a part.

    Attributes:
        plan: Its plan of results.
        equal_updates: Where its runs are compared.
        plateau: Whether they go on from there.
        systems: What was measured with the plan's present settings, by system.
        trials: All that were made.
        outdated: Runs that were made with other settings than the plan has now, and their systems.
    """

    plan: Plan
    equal_updates: int
    plateau: bool
    systems: Mapping[str, SystemResults]
    trials: tuple[TriedSettings, ...]
    outdated: Mapping[str, str]


@dataclass(frozen=True)
class AnsweredQuestion:
    """A question with what is known.

    Attributes:
        name, plan: The question.
        part: What is kept of its part.
        verdicts: On its claims, in their order.
        samples: Resamples of the significance tests.
        deviations: Of seeds at each goal: of its part, or where few systems of it have several, of all parts.
    """

    name: str
    plan: QuestionPlan
    part: PartResults
    verdicts: tuple[ClaimVerdict, ...]
    samples: int
    deviations: Mapping[Goal, SeedDeviation | None]

    @property
    def systems(self) -> dict[str, SystemResults]:
        """Its systems, in its order."""
        return {name: self.part.systems[name] for name in self.plan.systems}


def answer_questions(plan: QuestionsPlan, results: Path) -> list[AnsweredQuestion]:
    """Answer all questions by what is kept; no text and no run is read.

    Args:
        plan: The questions.
        results: Where the results of the parts are.

    Raises:
        UsageError: The plan of a part is wrong.
        DataError: A result is damaged.
    """
    parts = {name: _part_results(plan, name, results / name) for name in plan.parts}
    deviations = _deviations(parts)
    answered = []
    for name, question in plan.questions.items():
        part, of_part = parts[question.part], deviations[question.part]
        systems = {system: part.systems[system] for system in question.systems}
        verdicts = tuple(judge_claim(claim, systems, plan.samples, of_part) for claim in question.claims)
        answered.append(AnsweredQuestion(name, question, part, verdicts, plan.samples, of_part))
    return answered


def _deviations(parts: Mapping[str, PartResults]) -> dict[str, dict[Goal, SeedDeviation | None]]:
    """Of the seeds of each part, at each goal; where that are few, of all there are."""
    scores = {
        (name, goal): [
            system.bleu(goal) for system in part.systems.values() if has_learned(system, part.systems, goal)
        ]
        for name, part in parts.items()
        for goal in GOALS
    }
    of_all = seed_deviation(each for of_part in scores.values() for each in of_part)
    own = {key: seed_deviation(of_part) for key, of_part in scores.items()}
    return {
        name: {
            goal: mine if (mine := own[name, goal]) and mine.degrees >= _FEWEST_DEGREES else of_all
            for goal in GOALS
        }
        for name in parts
    }


def _part_results(questions: QuestionsPlan, name: str, folder: Path) -> PartResults:
    part = questions.parts[name]
    plan = read_settings(Plan, str(part.plan), part.settings, locate=locate).section
    result_folder = ResultFolder(folder)
    kept = {
        result.name: result.where_compared(part.equal_updates, part.average) for result in result_folder.all()
    }
    trials = tuple(result_folder.trials())
    taken = {trial.system: trial.alternatives for trial in trials if trial.taken}
    systems, current = {}, set[str]()
    for system, entry in plan.systems.items():
        parts = (ALL,) if entry.one_model else tuple(plan.directions)
        runs = {}
        for seed in plan.seeds:
            names = {place: f"{place}.{system}.{seed}" for place in parts}
            chosen = taken.get(entry.tuned_as or system)
            results = [
                kept[run] for place, run in names.items() if _is_current(plan, kept.get(run), place, chosen)
            ]
            current |= {result.name for result in results}
            if len(results) == len(parts):
                runs[seed] = tuple(results)
        systems[system] = SystemResults(system, runs)
    outdated = {run: result.system for run, result in kept.items() if run not in current}
    return PartResults(plan, part.equal_updates, part.plateau, systems, trials, outdated)


def _is_current(plan: Plan, result: QuestionResult | None, part: str, taken: tuple[str, ...] | None) -> bool:
    """Whether a run was made with what the plan says now, and the alternative that the trials took.

    Seeds of different alternatives are no seeds of one system. While trials are being made none is taken, and
    a run of any alternative counts.
    """
    if result is None or result.system not in plan.systems:
        return False
    if result.alternative not in plan.alternatives_of(result.system):
        return False
    if taken is not None and result.alternative not in taken:
        return False
    base = plan.systems[result.system].base or plan.base
    return (result.base, result.settings) == (
        base,
        plan.run_settings(result.system, part, result.alternative),
    )
