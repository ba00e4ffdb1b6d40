"""Carry out a plan of questions: trials, then runs to each goal, in the order of the queue."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from itertools import groupby
from pathlib import Path

import torch

from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.errors import DeepwireError, Tell
from deepwire.io.atomic import write_json
from deepwire.lab.experiments.questions.question_results import QuestionResult, ResultFolder
from deepwire.lab.experiments.questions.question_runs import LoadedQuestions, QuestionPart, Step
from deepwire.lab.experiments.questions.run_standing import NOT_IN_TRANSLATIONS, has_mean, measured
from deepwire.lab.experiments.results.planned_runs import RunPlan, Trial
from deepwire.lab.experiments.results.run_processes import Failure, stoppable, train_runs
from deepwire.runfile import completed
from deepwire.training.run.spec import CHANGEABLE, require_same_settings

PROGRESS = "progress.json"


@dataclass(frozen=True)
class _Job:
    """A run that is being trained: a trial, or a step of the queue."""

    step: Step
    run: RunPlan
    trial: Trial | None = None

    def __str__(self) -> str:
        if self.trial is None:
            return str(self.step)
        return f"{self.step.question} trial of {self.run.system}: {self.trial.names[0]}"


class QuestionRunner:
    """The queue of a plan in one folder; everything that is done is kept and not done again.

    Args:
        loaded: The plan.
        folder: Each part has its runs in a folder of its own; ``progress.json`` is written here.
        results: Where the small results are kept, a folder for each part.
        tell: Receives progress messages, one line each.
        at_once: How many runs are trained at a time.
    """

    def __init__(
        self, loaded: LoadedQuestions, folder: Path, results: Path, tell: Tell, at_once: int = 1
    ) -> None:
        self.loaded, self.folder, self._tell, self._at_once = loaded, folder, tell, at_once
        self.kept = {name: ResultFolder(results / name) for name in loaded.parts}
        self._active: dict[Path, _Job] = {}

    def run_queue(
        self,
        only: Collection[str] = (),
        *,
        retry: bool = False,
        after: Callable[[], None] | None = None,
    ) -> None:
        """Train and measure what is missing.

        Args:
            only: These questions; all without any.
            retry: Try what failed before once more, once.
            after: Called after each run that was measured.

        Raises:
            UsageError: A run is in use by another process, or was begun with other settings.
            Stopped: A signal asked to stop; what is done is kept.
        """
        steps = [
            step
            for step in self.loaded.steps
            if not only or step.question in only or self._serves(step, only)
        ]
        for name in dict.fromkeys(step.part for step in steps):
            self.loaded.parts[name].adopt(self.kept[name].trials())
        self._check_folders(steps)
        self._measure_again(steps)
        retried: set[Path] = set()
        with stoppable() as stop, _one_thread():

            def next_run() -> RunPlan | None:
                job = self._next_job(steps, retry=retry, retried=retried)
                return None if job is None else self._begin(job)

            with closing(train_runs(next_run, at_once=self._at_once, stop=stop)) as ended:
                self._write_progress(steps)
                for run, failure in ended:
                    job = self._active.pop(run.folder)
                    self._end(job, failure)
                    self._write_progress(steps)
                    if after is not None and job.trial is None:
                        after()
        self._write_progress(steps)

    def _check_folders(self, steps: list[Step]) -> None:
        """See at once, not hours later, that runs that were begun are those of the plan.

        Raises:
            UsageError: One was begun with other settings.
        """
        for job in self._runs(steps):
            stored = RunDirectory(job.run.folder).resolved_config
            if stored.exists():
                require_same_settings(
                    stored, job.run.loaded.resolved, completed, CHANGEABLE | NOT_IN_TRANSLATIONS
                )

    def _measure_again(self, steps: list[Step]) -> None:
        """Measure runs whose results are gone, at a common update that they have passed since."""
        for job in self._runs([step for step in steps if step.goal == "equal"]):
            plan = self.loaded.parts[job.step.part].plan
            if has_mean(job.run, plan.equal_updates, plan.average):
                self._tell(f"{job}: measuring {job.run.folder} again")
                self._end(job, None)

    def _serves(self, step: Step, only: Collection[str]) -> bool:
        """Whether a step that stands in the queue for one question is about another as well."""
        questions = (self.loaded.plan.questions[name] for name in only)
        return any(step.part == each.part and step.system in each.systems for each in questions)

    def _next_job(self, steps: list[Step], *, retry: bool, retried: set[Path]) -> _Job | None:
        """The first of the queue that can begin now; None where all is done, or waits for what is trained."""
        for _, entry in groupby(steps, key=lambda step: step.entry):
            entry_steps = list(entry)
            for job in (*self._trials(entry_steps, retry=retry), *self._runs(entry_steps)):
                if job.run.folder in self._active:
                    continue
                if self._failed_before(job) and (not retry or job.run.folder in retried):
                    continue
                retried.add(job.run.folder)
                return job
        return None

    def _trials(self, steps: list[Step], *, retry: bool) -> Iterator[_Job]:
        """What has to be tried before these runs."""
        for step in steps:
            for trial in self.loaded.parts[step.part].trials_left(step.system, retry=retry):
                yield _Job(step, trial.run, trial)

    def _runs(self, steps: list[Step]) -> Iterator[_Job]:
        """The runs of these that are not done and wait for nothing."""
        for step in steps:
            if not self.loaded.parts[step.part].trials_left(step.system, retry=False):
                yield from self._runs_of(step)

    def _runs_of(self, step: Step) -> Iterator[_Job]:
        part = self.loaded.parts[step.part]
        for run in part.runs(step.system, step.seed, step.goal):
            result = self.result(part, run)
            if step.goal in result.standings:
                continue
            if step.goal == "plateau" and "equal" not in result.standings:
                continue  # it comes before in the queue, and has failed or is being trained
            yield _Job(step, run)

    def _failed_before(self, job: _Job) -> bool:
        part = self.loaded.parts[job.step.part]
        if job.trial is not None:
            return isinstance(part.search.outcome(job.trial), Failure)
        return job.step.goal in self.result(part, job.run).failed

    def _begin(self, job: _Job) -> RunPlan:
        self._active[job.run.folder] = job
        self._tell(f"{job}: training in {job.run.folder}")
        return job.run

    def _end(self, job: _Job, failure: Failure | None) -> None:
        part = self.loaded.parts[job.step.part]
        if failure is not None:  # what is kept goes to other machines
            failure = replace(failure, message=failure.message.replace(str(job.run.folder), job.run.name))
        if job.trial is not None:
            part.search.finish(job.trial, failure, str(job))
            self.kept[part.name].write_trials(part.tried())
            return
        result, goal = self.result(part, job.run), job.step.goal
        if failure is None:
            try:
                updates = part.goal_update(job.run, goal)
                result = measured(result, job.run, goal, updates, part.plan.average, self._tell)
            except DeepwireError as error:
                failure = Failure(error.exit_code, f"trained, but not measured: {error}")
        if failure is not None:
            result = result.model_copy(update={"failed": {**result.failed, goal: failure.message}})
            self._tell(f"{job}: FAILED with exit code {failure.exit_code}: {failure.message}")
        else:
            standing = result.standings[goal]
            scores = ", ".join(f"{name} BLEU {test.bleu:.2f}" for name, test in standing.tests.items())
            self._tell(
                f"{job}: {standing.updates} updates, validation nll {standing.nll or 0:.3f}, {scores}, "
                f"{standing.seconds / 3600:.2f} h of training"
            )
        self.kept[part.name].write(result)

    def result(self, part: QuestionPart, run: RunPlan) -> QuestionResult:
        """What is known of a run with its present settings and text; nothing yet, where it had others.

        Raises:
            DataError: Its text is missing, or its result is damaged.
        """
        kept = self.kept[part.name].read(run.name)
        fresh = QuestionResult(
            name=run.name,
            system=run.system,
            seed=run.seed,
            alternative=run.alternative,
            base=part.base(run.system),
            settings=run.settings,
            text=part.text_of(run),
        )
        made = ("base", "settings", "text")
        if kept is None or any(getattr(kept, name) != getattr(fresh, name) for name in made):
            return fresh
        return kept.where_compared(part.plan.equal_updates, part.plan.average)

    def _write_progress(self, steps: list[Step]) -> None:
        """What is done, under way and waiting, for whoever looks while it runs."""
        lines = []
        for step in steps:
            part = self.loaded.parts[step.part]
            lines.append({"step": str(step), "state": self._state(part, step)})
        states = [line["state"] for line in lines]
        self.folder.mkdir(parents=True, exist_ok=True)
        record = {
            "written": datetime.now(UTC).isoformat(timespec="seconds"),
            "done": sum(state == "done" for state in states),
            "of": len(states),
            "under way": [f"{job} in {job.run.folder}" for job in self._active.values()],
            "steps": lines,
        }
        write_json(self.folder / PROGRESS, record)

    def _state(self, part: QuestionPart, step: Step) -> str:
        if any(job.step == step for job in self._active.values()):
            return "under way"
        left = part.trials_left(step.system, retry=False)
        if left:
            return f"waits for {len(left)} trials"
        results = [self.result(part, run) for run in part.runs(step.system, step.seed, step.goal)]
        if all(step.goal in result.standings for result in results):
            return "done"
        failures = [why for result in results for goal, why in result.failed.items() if goal == step.goal]
        return f"failed: {failures[0]}" if failures else "waits"


@contextmanager
def _one_thread() -> Iterator[None]:
    """The other cores train."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
