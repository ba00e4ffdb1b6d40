"""The runs that a plan of questions makes: to the common update, and on to the plateau."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path

from deepwire.data.prepare.prepared import text_digest
from deepwire.errors import Tell, UsageError
from deepwire.lab.experiments.questions.question_plan import (
    Goal,
    PartPlan,
    QuestionsPlan,
    read_questions,
)
from deepwire.lab.experiments.questions.question_results import TriedSettings
from deepwire.lab.experiments.results.planned_runs import LoadedPlan, RunPlan, Trial, load_plan
from deepwire.lab.experiments.results.results_plan import SearchPlan
from deepwire.lab.experiments.results.settings_search import SettingsSearch
from deepwire.runfile import load_run_file


@dataclass(frozen=True)
class Step:
    """One run of the queue and how far it goes.

    Attributes:
        question: Which one it is for first; the same run may serve others.
        part, system, seed, goal: What is trained.
        entry: Number of its entry in the queue, whose trials come before all its runs.
    """

    question: str
    part: str
    system: str
    seed: int
    goal: Goal
    entry: int

    def __str__(self) -> str:
        where = "the plateau" if self.goal == "plateau" else "the common update"
        return f"{self.question} {self.system} seed {self.seed} to {where}"


class QuestionPart:
    """A part with its runs.

    Args:
        name: As the plan of questions calls it.
        plan: Of the part.
        loaded: Its plan of results.
        tell: Receives progress messages, one line each.
    """

    def __init__(self, name: str, plan: PartPlan, loaded: LoadedPlan, tell: Tell) -> None:
        self.name, self.plan, self._undecided = name, plan, loaded
        self.search = SettingsSearch(loaded, loaded.folder, tell)
        self._decided: tuple[dict[str, str], LoadedPlan] = ({}, loaded)
        self._shorter: dict[tuple[str, ...], RunPlan] = {}
        self._digests: dict[str, str] = {}

    @property
    def systems(self) -> Sequence[str]:
        """The systems of its plan."""
        return tuple(self._undecided.plan.systems)

    @cached_property
    def seeds(self) -> frozenset[int]:
        """The seeds of its plan."""
        return frozenset(self._undecided.plan.seeds)

    def base(self, system: str) -> str:
        """What a system starts from, as its plan writes it."""
        plan = self._undecided.plan
        return plan.systems[system].base or plan.base

    def loaded(self) -> LoadedPlan:
        """Its plan with what the trials have taken so far."""
        taken = self.search.taken()
        if taken != self._decided[0]:
            self._decided = taken, self._undecided.decided(taken)
        return self._decided[1]

    def trials_left(self, system: str, *, retry: bool) -> list[Trial]:
        """Trials that come before a system's runs."""
        return self.search.left([system], retry=retry)

    def tried(self) -> list[TriedSettings]:
        """Every trial of its plan, with what came out of it so far.

        Raises:
            DataError: Text is missing or cannot be read.
        """
        plan = self._undecided.plan
        search = () if plan.search is None else _of_search(plan.search)
        return [
            TriedSettings(
                **record,
                base=self.base(trial.run.system),
                made_with=(
                    *plan.run_settings(trial.run.system, trial.run.part, trial.names[0]),
                    *search,
                ),
                text=self.text_of(trial.run),
            )
            for trial, record in zip(self.search.trials, self.search.record(), strict=True)
        ]

    def adopt(self, kept: Sequence[TriedSettings]) -> None:
        """Take over trials that were made on another machine, and not on this one.

        Args:
            kept: What is kept of them. Those of other settings or of another text are left alone.

        Raises:
            DataError: Text is missing or cannot be read.
        """
        losses = {(each.base, each.made_with, each.text): each.loss for each in kept}
        if not losses:
            return
        for trial, now in zip(self.search.trials, self.tried(), strict=True):
            loss = losses.get((now.base, now.made_with, now.text))
            if loss is not None and self.search.outcome(trial) is None:
                self.search.adopt(trial, loss)

    def runs(self, system: str, seed: int, goal: Goal) -> list[RunPlan]:
        """The runs of a system with a seed: one, or one for each direction."""
        chosen = [run for run in self.loaded().runs if (run.system, run.seed) == (system, seed)]
        if goal == "plateau":
            return [replace(run, goes_on=True) for run in chosen]
        return [self._until(run) for run in chosen]

    def _until(self, run: RunPlan) -> RunPlan:
        """A run that ends at the common update."""
        overrides = (*run.overrides, f"training.max_updates={self.plan.equal_updates}")
        if overrides not in self._shorter:
            self._shorter[overrides] = replace(
                run, overrides=overrides, loaded=load_run_file(run.base, overrides)
            )
        return self._shorter[overrides]

    def text_of(self, run: RunPlan) -> str:
        """Digest of all text that a run reads, wherever it lies.

        Raises:
            DataError: A file is missing or cannot be read.
        """
        data = run.loaded.config.data
        name = data.model_dump_json()
        if name not in self._digests:
            self._digests[name] = text_digest(data)
        return self._digests[name]

    def goal_update(self, run: RunPlan, goal: Goal) -> int:
        """The update that a goal ends at: the common one, or the most that a run makes."""
        limit = run.loaded.config.training.max_updates
        return self.plan.equal_updates if goal == "equal" or limit is None else limit

    def check(self) -> None:
        """See that its runs can be compared at the common update and go on from there.

        Raises:
            UsageError: One of them cannot.
        """
        for run in self._undecided.runs:
            problem = _problem(run, self.plan)
            if problem:
                raise UsageError(f"part {self.name}: system {run.system}: {problem[0]}", problem[1])


@dataclass(frozen=True)
class LoadedQuestions:
    """A checked plan of questions.

    Attributes:
        plan: What the file says.
        path: The file.
        parts: By name.
        steps: What is trained, in this order; nothing twice.
    """

    plan: QuestionsPlan
    path: Path
    parts: dict[str, QuestionPart]
    steps: tuple[Step, ...]


def load_questions(
    path: Path, folder: Path, overrides: Sequence[str] = (), tell: Tell = lambda _: None
) -> LoadedQuestions:
    """Read a plan of questions and check every run file that it makes, before anything is trained.

    Args:
        path: The plan.
        folder: Where everything is written; each part has a folder in it.
        overrides: Changes to the plan: ``text=FOLDER``.
        tell: Receives progress messages of the trials, one line each.

    Raises:
        UsageError: The plan, that of a part, or one of its run files is wrong.
    """
    plan = read_questions(path, tuple(overrides))
    parts = {name: _load_part(name, part, plan.text, folder, tell) for name, part in plan.parts.items()}
    for name, question in plan.questions.items():
        for system in question.systems:
            if system not in parts[question.part].systems:
                raise UsageError(
                    f"{path}: questions.{name}.systems: part {question.part} has no system {system!r}",
                    f"it has {', '.join(parts[question.part].systems)}",
                )
    return LoadedQuestions(plan, path, parts, tuple(_steps(path, plan, parts)))


def _load_part(name: str, part: PartPlan, text: Path | None, folder: Path, tell: Tell) -> QuestionPart:
    settings = [*part.settings, *([] if text is None else [f"text={text.absolute()}"])]
    loaded = QuestionPart(name, part, load_plan(part.plan, folder / name, settings), tell)
    loaded.check()
    return loaded


def _steps(path: Path, plan: QuestionsPlan, parts: dict[str, QuestionPart]) -> list[Step]:
    steps = []
    for number, entry in enumerate(plan.queue):
        question = plan.questions[entry.question]
        part = parts[question.part]
        unknown = [seed for seed in entry.seeds if seed not in part.seeds]
        if unknown:
            raise UsageError(
                f"{path}: queue: {entry.question}: part {part.name} has no seed {unknown[0]}",
                f"its seeds are {', '.join(map(str, sorted(part.seeds)))}",
            )
        for seed in entry.seeds:
            for system in entry.systems or question.systems:
                goals: tuple[Goal, ...] = ("equal", "plateau") if entry.until == "plateau" else ("equal",)
                steps += [Step(entry.question, question.part, system, seed, goal, number) for goal in goals]
    seen: set[tuple[str, str, int, str]] = set()
    first = []
    for step in steps:  # one run may serve several questions
        key = (step.part, step.system, step.seed, step.goal)
        if key not in seen:
            seen.add(key)
            first.append(step)
    return first


def _problem(run: RunPlan, part: PartPlan) -> tuple[str, str] | None:
    """Why a run cannot be compared at the common update and go on; and what to do."""
    training, data = run.loaded.config.training, run.loaded.config.data
    if data.valid is None:
        return "has no data.valid", "runs are followed by their validation loss"
    limit, equal = training.max_updates, part.equal_updates
    if limit is None or training.stop_after is not None:
        return "training.max_updates has to be its only limit", "leave out training.stop_after"
    if limit < equal:
        return f"training.max_updates={limit} is below equal_updates={equal}", "raise it"
    if limit > equal and not part.plateau:
        return f"training.max_updates={limit} is above equal_updates={equal}", "leave out plateau: false"
    if part.plateau and training.schedule.follows_length:
        return (
            f"schedule {training.schedule.type} ends where the run ends, so it cannot go on to its plateau",
            "set training.schedule.updates, or take noam, inverse_sqrt or constant",
        )
    if training.early_stopping is None:
        return "has no training.early_stopping", "it says when a run stands still: set its patience"
    every = training.checkpoint_interval
    for name, updates in (
        ("equal_updates", equal),
        ("training.max_updates", limit),
        ("training.validation.every", training.validation.every),
    ):
        if updates % every:
            return f"{name}={updates} is no multiple of training.checkpoint.every={every}", "make it one"
    if training.checkpoint.keep_last <= part.average:
        return (
            f"training.checkpoint.keep_last={training.checkpoint.keep_last} is too few for average="
            f"{part.average}",
            "keep one or two more: a signal writes one, too",
        )
    return None


def _of_search(search: SearchPlan) -> tuple[str, ...]:
    """What trials have of their search; its usual seed and warm-up are not named, as in older records."""
    seed = () if search.seed == SearchPlan.model_fields["seed"].default else (f"seed={search.seed}",)
    shortened = ("shorten_warmup=true",) if search.shorten_warmup else ()
    return (str(search.max_updates), *search.settings, *seed, *shortened)
