"""Carry out a study: trials, then runs from budget to budget, each measured where it stands."""

from __future__ import annotations

import math
import statistics
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import cast

import numpy as np

from deepwire import __version__
from deepwire.checkpoint.model_path import average_models
from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.checkpoint.store import parameter_count, read_metadata
from deepwire.errors import DeepwireError, DivergedError, LogFn, ModelError
from deepwire.evaluation.texts import SearchSettings
from deepwire.io.atomic import disk_errors, write_text
from deepwire.io.regular_files import read_json
from deepwire.lab.study.plan import ALL, OWN, Plan, Study, StudyRun
from deepwire.lab.study.processes import Failure, require_own_folder, stoppable, train_runs
from deepwire.lab.study.store import LearningCurve, RunRecord, ScoredTest, Standing, StudyStore, pack
from deepwire.lab.subject import Scorer, TimedTranslation
from deepwire.training.device import describe
from deepwire.training.log import number_of, read_records


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
        self._retry = False

    def run(
        self, systems: Collection[str] = (), directions: Collection[str] = (), *, retry: bool = False
    ) -> None:
        """Train and measure what is missing; the next run follows one that failed.

        Systems and directions are those given, or all without any; a model of all directions is taken as a
        whole. With `retry`, what failed before is tried once more.

        Raises:
            UsageError: A run is in use by another process, or was begun with other settings.
            Stopped: A signal asked to stop; what is done is kept.
        """
        wanted = [name for name in self._study.plan.systems if not systems or name in systems]
        self._retry = retry
        for _ in self._left(wanted, directions):
            pass  # text that is missing and folders of other runs are found now, not hours later

        def next_run() -> StudyRun | None:
            for run in self._left(wanted, directions):
                if run.name not in self._active:
                    self._active[run.name] = run
                    self._tried.add((run.name, run.budget))
                    self._tell(f"{_label(run)}: training in {run.folder}")
                    return run
            return None

        with (
            stoppable() as stop,
            closing(train_runs(next_run, at_once=self._at_once, stop=stop)) as ended,
        ):
            for run, failure in ended:
                self._finish(run, failure)
                del self._active[run.name]

    def _left(self, systems: Collection[str], directions: Collection[str]) -> Iterator[StudyRun]:
        """Everything that can begin now, in its order: trials first, then budget by budget, seed by seed."""
        plan = self._study.plan
        tuned = {plan.systems[name].tuned_as or name for name in systems}
        waits = set[str]()
        for system, alternative in plan.trials():
            if system in tuned:
                trial = self._study.trial(system, alternative)
                record = self._record(trial)
                if record.loss is None and not (record.failed and not self._may_retry(trial)):
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
                        if self._is_left(run):
                            yield run

    def _is_left(self, run: StudyRun) -> bool:
        record = self._record(run)
        before = self._study.plan.stops[: self._study.plan.stops.index(run.budget)]
        if run.budget in record.standings or any(stop not in record.standings for stop in before):
            return False
        if run.budget in record.failed and not self._may_retry(run):
            return False
        require_own_folder(run)
        average = self._study.plan.average
        kept = average is not None and _mean_folder(run, average).exists()
        if kept and run.name not in self._active:
            self._finish(run, None)  # its result is gone, or was measured elsewhere
            return False
        return True

    def _may_retry(self, run: StudyRun) -> bool:
        return self._retry and (run.name, run.budget) not in self._tried

    def _record(self, run: StudyRun) -> RunRecord:
        """The record of a run with its present settings and text; a fresh one where it had others."""
        kept, fresh = self._store.read(run.name), self._study.fresh(run)
        made = ("base", "settings", "text", "seed")
        if kept is None or any(getattr(kept, name) != getattr(fresh, name) for name in made):
            return fresh
        return kept

    def _finish(self, run: StudyRun, failure: Failure | None) -> None:
        record, label = self._record(run), _label(run)
        if failure is None:
            try:
                if run.budget:
                    record = _measured(self._study, run, record, self._tell)
                    tests = record.standings[run.budget].tests
                    said = ", ".join(f"{name} BLEU {test.bleu:.2f}" for name, test in tests.items())
                else:
                    curve = _curve(read_records(RunDirectory(run.folder).metrics))
                    losses = [nll for nll in curve.nll if nll is not None]
                    if not losses:
                        raise DivergedError("no finite validation loss")
                    loss = min(losses)
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


def _label(run: StudyRun) -> str:
    return f"{run.name} to update {run.budget}" if run.updates else run.name


_OF_TEXT = ("BLEU", "text digest")


def _measured(study: Study, run: StudyRun, before: RunRecord, warn: LogFn) -> RunRecord:
    """The record of a run with its standing at the budget that it has just reached."""
    directory = RunDirectory(run.folder)
    folder, averaged = run.folder, tuple[int, ...]()
    log = read_records(directory.metrics)
    if study.plan.average is not None:
        folder, averaged = _mean(directory, run, study.plan.average)
        log = [record for record in log if number_of(record, "update") <= averaged[-1]]
    curve = _curve(log)
    best = min(
        ((nll, update) for update, nll in zip(curve.updates, curve.nll, strict=True) if nll is not None),
        default=(None, None),
    )
    trained = [record for record in log if record.get("kind") == "train"]
    if not trained:
        raise ModelError(f"{directory.metrics}: holds no update")
    updates = averaged[-1] if averaged else int(number_of(trained[-1], "update"))
    tests, scorer = _tests(study, run, folder, warn)
    # The checkpoint is gone where the mean was made long ago, and is measured again.
    last = [
        scorer.score(done.lines)
        for checkpoint in directory.checkpoints()
        if checkpoint.update in averaged[-1:]
        for _, _, scorer, done in _translated(study, run, checkpoint.path, warn)
    ]
    settings = {name: value for name, value in scorer.settings.items() if name not in _OF_TEXT}
    standing = Standing(
        updates=updates,
        target_tokens=int(number_of(trained[-1], "target_tokens")),
        seconds=number_of(trained[-1], "seconds"),
        nll=curve.nll[-1] if curve.nll else None,
        best_nll=best[0],
        best_update=best[1],
        stood_still=run.updates is not None and updates < run.updates,
        averaged=averaged,
        last=statistics.fmean(last) if last else None,
        settings=settings | {"processor": str(describe(scorer.loaded.device)["device"])},
        tests=tests,
    )
    return before.model_copy(
        update={
            "parameters": parameter_count(scorer.loaded.models[0].folder),
            "trained_with": _trained_with(directory),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "curve": curve,
            "standings": {**before.standings, run.budget: standing},
            "failed": {stop: why for stop, why in before.failed.items() if stop != run.budget},
        }
    )


def _mean_folder(run: StudyRun, average: int) -> Path:
    return RunDirectory(run.folder).averages / f"{run.updates or run.budget}-{average}"


def _mean(directory: RunDirectory, run: StudyRun, average: int) -> tuple[Path, tuple[int, ...]]:
    """The mean of the last regular checkpoints, made while they are there and kept; and their updates.

    Checkpoints that a signal asked for are left out: an interrupted run has the same mean as another.
    """
    target = _mean_folder(run, average)
    every = run.loaded.config.training.checkpoint_interval
    if not target.exists():
        there = {each.update: each.path for each in directory.checkpoints() if each.update % every == 0}
        last = max(there, default=0)
        reason = read_json(directory.done).get("reason", "") if directory.done.exists() else ""
        early = "early_stopping" in str(reason)
        chosen = sorted(there)[-average:]
        whole = list(range(last - every * (len(chosen) - 1), last + 1, every))
        ended = run.updates in (None, last) or (last < (run.updates or 0) and early)
        if not ended or chosen != whole or len(chosen) < min(average, last // every):
            raise ModelError(
                f"{directory.path}: has regular checkpoints at {sorted(there)}, not the last {average} of "
                f"{run.budget}",
                "move the run away, and it will be trained again",
            )
        average_models([there[update] for update in chosen], target)
    names = cast("list[str]", read_metadata(target)["average_of"])
    return target, tuple(int(name.rpartition("-")[2]) for name in names)


def _curve(log: Sequence[Mapping[str, object]]) -> LearningCurve:
    valid = [record for record in log if record.get("kind") == "valid"]
    losses = [record.get("nll") for record in valid]
    return LearningCurve(
        updates=tuple(int(number_of(record, "update")) for record in valid),
        nll=tuple(
            float(loss) if isinstance(loss, int | float) and np.isfinite(loss) else None for loss in losses
        ),
    )


def _tests(study: Study, run: StudyRun, folder: Path, warn: LogFn) -> tuple[dict[str, ScoredTest], Scorer]:
    """Every test set translated; the translations are written to ``translations/``."""
    tests = {}
    for direction, name, scorer, done in _translated(study, run, folder, warn):
        answers = scorer.pairs.reference.answers
        tests[name] = ScoredTest(
            bleu=scorer.score(done.lines),
            chrf=run.metric("chrf", direction).score(done.lines, answers).value,
            signature=scorer.settings["BLEU"],
            text=scorer.settings["text digest"],
            sentences=len(done.lines),
            statistics=pack(scorer.metric.statistics(done.lines, answers)),
            seconds=done.seconds,
        )
        path = study.folder / "translations" / f"{run.name}.{run.budget}.{name.replace(' ', '.')}.txt"
        with disk_errors(path):
            path.parent.mkdir(parents=True, exist_ok=True)
        write_text(path, "".join(f"{line}\n" for line in done.lines))
    return tests, scorer


def _translated(
    study: Study, run: StudyRun, folder: Path, warn: LogFn
) -> Iterator[tuple[str, str, Scorer, TimedTranslation]]:
    several = run.loaded.config.data.languages is not None
    search = SearchSettings({}, precision="fp32")  # one format, whatever machine translates
    for direction in run.directions:
        to = direction.partition("-")[2] if several else ""
        for name, pairs in study.tests(run, direction).items():
            scorer = Scorer(str(folder), pairs, search, warn, to=to, metric=run.metric("bleu", direction))
            yield direction, name, scorer, scorer.translate(scorer.model)


def _trained_with(run: RunDirectory) -> dict[str, str]:
    """Where a run was trained, as it wrote down; deepwire's version is the present one."""
    stored, found = read_json(run.environment), {"deepwire": __version__}
    for part, names in (("environment", ("torch", "device", "threads")), ("numerics", ("precision",))):
        facts = stored.get(part)
        if isinstance(facts, dict):
            found |= {name: str(facts[name]) for name in names if name in facts}
    return found
