"""Carry out a study: trials, then runs from budget to budget, each measured where it stands."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from contextlib import closing, contextmanager

import torch

from deepwire.errors import DeepwireError, LogFn
from deepwire.lab.study.measurement import has_mean, measured, trial_loss
from deepwire.lab.study.plan import ALL, OWN, Plan
from deepwire.lab.study.processes import Failure, require_own_folder, stoppable, train_runs
from deepwire.lab.study.runs import Study, StudyRun
from deepwire.lab.study.store import RunRecord, StudyStore
from deepwire.training.state import cut_short


def taken_alternatives(plan: Plan, store: StudyStore) -> dict[str, str]:
    """The alternative with the lowest loss, by system: where all its trials were made, and one succeeded."""
    taken = {}
    for system in dict.fromkeys(system for system, _ in plan.trials()):
        losses = {}
        for name in plan.alternatives_of(system):
            record = store.read(f"{plan.trial_part(system)}.{system}+{name}")
            settings = plan.trial_settings(system, name)
            if record is None or record.settings[: len(settings)] != settings:
                break
            losses[name] = math.inf if record.loss is None else record.loss
        else:
            best = min(losses, key=losses.__getitem__)
            if losses[best] < math.inf:
                taken[system] = best
    others = {name: entry.tuned_as for name, entry in plan.systems.items()}
    return taken | {name: taken[other] for name, other in others.items() if other in taken}


class StudyRunner:
    """The runs of a study, `at_once` of them at a time; what is done is kept and not done again."""

    def __init__(self, study: Study, store: StudyStore, tell: LogFn, at_once: int = 1) -> None:
        self._study, self._store, self._tell, self._at_once = study, store, tell, at_once
        self._active: dict[str, StudyRun] = {}
        self._tried: set[tuple[str, str]] = set()

    def run(
        self, systems: Collection[str] = (), directions: Collection[str] = (), *, retry: bool = False
    ) -> None:
        """Train and measure what is missing; the next run follows one that failed.

        Args:
            systems, directions: Only these; all without any. A model of all directions is taken as a whole.
            retry: Try what failed before once more.

        Raises:
            UsageError: A run is in use by another process, or was begun with other settings.
            Stopped: A signal asked to stop; what is done is kept.
        """
        wanted = [name for name in self._study.plan.systems if not systems or name in systems]
        self._warn_of_short_runs(wanted)
        for _ in self._left(wanted, directions, retry=retry):
            pass  # text that is missing and folders of other runs are found now, not hours later

        def next_run() -> StudyRun | None:
            for run in self._left(wanted, directions, retry=retry):
                if run.name not in self._active:
                    self._active[run.name] = run
                    self._tried.add((run.name, run.budget))
                    self._tell(f"{_label(run)}: training in {run.folder}")
                    return run
            return None

        with (
            stoppable() as stop,
            _fewer_threads(self._at_once),
            closing(train_runs(next_run, at_once=self._at_once, stop=stop)) as ended,
        ):
            for run, failure in ended:
                self._finish(run, failure)
                del self._active[run.name]

    def _left(
        self, systems: Collection[str], directions: Collection[str], *, retry: bool
    ) -> Iterator[StudyRun]:
        """Everything that can begin now, in its order: trials first, then budget by budget, seed by seed."""
        plan = self._study.plan
        tuned = {plan.systems[name].tuned_as or name for name in systems}
        waits = set[str]()
        for system, alternative in plan.trials():
            if system in tuned:
                trial = self._study.trial(system, alternative)
                record = self._record(trial)
                if record.loss is None and not (record.failed and not self._may_retry(trial, retry=retry)):
                    waits.add(system)
                    yield trial
        taken = taken_alternatives(plan, self._store)
        for stop in plan.stops:
            for seed in plan.seeds:
                for system in systems:
                    if (plan.systems[system].tuned_as or system) in waits:
                        continue
                    for part in plan.parts(system):
                        if directions and part not in (ALL, *directions):
                            continue
                        run = self._study.run(system, part, seed, taken.get(system, OWN), stop)
                        if self._is_left(run, retry=retry):
                            yield run

    def _is_left(self, run: StudyRun, *, retry: bool) -> bool:
        record = self._record(run)
        before = self._study.plan.stops[: self._study.plan.stops.index(run.budget)]
        if run.budget in record.standings or any(stop not in record.standings for stop in before):
            return False
        if run.budget in record.failed and not self._may_retry(run, retry=retry):
            return False
        require_own_folder(run)
        if run.name not in self._active and has_mean(run, self._study.plan.average):
            self._finish(run, None)  # its result is gone, or was measured elsewhere
            return False
        return True

    def _may_retry(self, run: StudyRun, *, retry: bool) -> bool:
        return retry and (run.name, run.budget) not in self._tried

    def _record(self, run: StudyRun) -> RunRecord:
        """The record of a run with its present settings and text; a fresh one where it had others.

        Raises:
            DataError: Its text is missing, or its record is damaged.
        """
        kept, fresh = self._store.read(run.name), self._study.fresh(run)
        made = ("base", "settings", "text", "seed")
        if kept is None or any(getattr(kept, name) != getattr(fresh, name) for name in made):
            return fresh
        return kept

    def _finish(self, run: StudyRun, failure: Failure | None) -> None:
        """Measure a run that has ended; a failure is kept."""
        record, label = self._record(run), _label(run)
        if failure is None:
            try:
                if run.budget:
                    record = measured(self._study, run, record, self._tell)
                    tests = record.standings[run.budget].tests
                    said = ", ".join(f"{name} BLEU {test.bleu:.2f}" for name, test in tests.items())
                else:
                    loss = trial_loss(run)
                    record = record.model_copy(update={"loss": loss, "failed": {}})
                    said = f"validation loss {loss:.3f}"
            except DeepwireError as error:
                failure = Failure(error.exit_code, f"trained, but not measured: {error}")
        if failure is not None:
            # What is kept goes to other machines.
            message = failure.message.replace(str(run.folder), run.name)
            record = record.model_copy(update={"failed": {**record.failed, run.budget: message}})
            said = f"FAILED with exit code {failure.exit_code}: {failure.message}"
        self._store.write(record)
        self._tell(f"{label}: {said}")

    def _warn_of_short_runs(self, systems: Collection[str]) -> None:
        """Name systems that learn next to nothing; their own runs are quiet."""
        plan = self._study.plan
        names_by_warning: dict[str, list[str]] = {}
        for system in systems:
            run = self._study.run(system, plan.parts(system)[0], plan.seeds[0], OWN, plan.stops[-1])
            if warning := cut_short(run.loaded.config.training):
                names_by_warning.setdefault(warning, []).append(system)
        for warning, names in names_by_warning.items():
            self._tell(f"warning: {', '.join(names)}: {warning}")


def _label(run: StudyRun) -> str:
    return f"{run.name} to update {run.budget}" if run.updates else run.name


@contextmanager
def _fewer_threads(at_once: int) -> Iterator[None]:
    """Measure with a share of the cores: the others train."""
    before = torch.get_num_threads()
    torch.set_num_threads(max(1, before // at_once))
    try:
        yield
    finally:
        torch.set_num_threads(before)
