"""Carry out a plan: train what is missing, measure what is not measured, and gather what there is."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import NamedTuple

from pydantic import ValidationError

from deepwire.config.counts import few
from deepwire.errors import DeepwireError, ModelError, Tell, UsageError
from deepwire.evaluation.texts import read_text
from deepwire.lab.experiments.results.extra_test_sets import ExtraTestSets
from deepwire.lab.experiments.results.planned_runs import LoadedPlan, RunPlan
from deepwire.lab.experiments.results.result_store import ResultStore
from deepwire.lab.experiments.results.run_measurement import RunResult, measure_run, pairs_of, time_decoding
from deepwire.lab.experiments.results.run_processes import Failure, in_turn, stoppable, train_runs
from deepwire.lab.experiments.results.settings_search import SettingsSearch
from deepwire.lab.subject.model_and_text import ParallelText
from deepwire.training.run.stopping import cut_short


@dataclass(frozen=True)
class GatheredResults:
    """What there is of a plan.

    Attributes:
        results: What was measured: runs, and where a model has several directions, each of them.
        failures: Runs that could not be trained or measured, with the reason.
        missing: Runs that have not been tried yet, each with the directions that are not measured.
    """

    results: tuple[RunResult, ...]
    failures: tuple[tuple[RunPlan, Failure], ...]
    missing: tuple[tuple[RunPlan, tuple[str, ...]], ...]

    def waiting(self) -> list[str]:
        """What has not been done yet, by name: a run, or single directions of it."""
        return [f"{part}.{run.system}.{run.seed}" for run, parts in self._parts() for part in parts]

    def not_run(self, systems: Collection[str], direction: str | None = None) -> list[str]:
        """A sentence that says what has not been done yet, in one direction or in all; none if nothing is.

        Args:
            systems: Those of the plan: where all of them are left, they are not listed.
            direction: Only this one.
        """
        groups: dict[str, list[str]] = {}
        for run, parts in self._parts(direction):
            for part in parts:
                groups.setdefault(f"{part} seed {run.seed}", []).append(run.system)
        if not groups:
            return []
        named = [
            f"{group} ({'all systems' if len(names) == len(systems) else ', '.join(names)})"
            for group, names in groups.items()
        ]
        return [f"Not run yet: {'; '.join(named)}."]

    def _parts(self, direction: str | None = None) -> Iterator[tuple[RunPlan, Sequence[str]]]:
        """What is missing of each run: all of it under its own name, or directions."""
        for run, directions in self.missing:
            if direction is not None:
                yield run, [direction] if direction in directions else []
            else:
                yield run, [run.part] if directions == run.directions else directions


class _PendingRun(NamedTuple):
    """What is still to be done of a run."""

    run: RunPlan
    directions: Sequence[str]
    label: str


class ExperimentRunner:
    """The runs of a plan in one folder; everything that is done is kept and not done again.

    Args:
        loaded: The plan.
        folder: ``runs/``, ``measured/``, ``translations/`` and the pages are made in it.
        tell: Receives progress messages, one line each.
        at_once: How many runs are trained at a time.
    """

    def __init__(self, loaded: LoadedPlan, folder: Path, tell: Tell, at_once: int = 1) -> None:
        self.folder, self._undecided, self._tell, self._at_once = folder, loaded, tell, at_once
        self.search = SettingsSearch(loaded, folder, tell)
        self.loaded = loaded.decided(self.search.taken())
        self._measured, self._failed = ResultStore(folder / "measured"), ResultStore(folder / "failed")
        self.extra_tests = ExtraTestSets(loaded.more, folder, tell)

    def run_plan(
        self,
        systems: Sequence[str] = (),
        directions: Sequence[str] = (),
        *,
        retry: bool = False,
        after: Callable[[], None] | None = None,
    ) -> None:
        """Search for settings, then train and measure, run by run; the next one follows one that failed.

        What was measured while other runs were trained translates once more at the end, for its speed.

        Args:
            systems, directions: Only these; all without any. A model of all directions is trained as a whole,
                and measured in these. The search keeps to the systems only.
            retry: Try runs that failed before once more.
            after: Called after each trial, and after each run that was trained or measured.

        Raises:
            UsageError: A run is in use by another process, or was begun with other settings.
            Stopped: A signal asked to stop; what is done is kept.
        """
        with stoppable() as stop:
            train = partial(train_runs, at_once=self._at_once, stop=stop)
            self.search.run_trials(train, systems, retry=retry, after=after)
            self.loaded = self._undecided.decided(self.search.taken())
            self._translate_added_test_sets(self._selected_runs(systems, directions))
            left = self._pending(systems, directions, retry=retry)
            with closing(train(in_turn(self._announced(left)))) as ended:
                for run, failure in ended:
                    self._finish(run, failure, left[run.name])
                    if after is not None:
                        after()
            if self._time_decoding_alone(self._selected_runs(systems, directions)) and after is not None:
                after()

    def _pending(
        self, systems: Sequence[str], directions: Sequence[str], *, retry: bool
    ) -> dict[str, _PendingRun]:
        """What is to be trained or measured, by the names of runs."""
        wanted = self._selected_runs(systems, directions)
        self._warn([run for run, _ in wanted])
        pending: dict[str, _PendingRun] = {}
        for number, (run, chosen) in enumerate(wanted, 1):
            label = f"[{number}/{len(wanted)}] {run.part} {run.system} seed {run.seed}"
            left = [direction for direction in chosen if self.result(run, direction) is None]
            if not left:
                continue
            before = self.failure(run)
            if before is not None and not retry:
                self._tell(f"{label}: failed before ({before.message}); --retry tries again")
                continue
            pending[run.name] = _PendingRun(run, left, label)
        return pending

    def _selected_runs(
        self, systems: Sequence[str], directions: Sequence[str]
    ) -> list[tuple[RunPlan, list[str]]]:
        """Runs of these systems, each with its directions among these; all without any."""
        chosen_runs = [
            (run, [direction for direction in run.directions if not directions or direction in directions])
            for run in self.loaded.runs
            if not systems or run.system in systems
        ]
        return [(run, chosen) for run, chosen in chosen_runs if chosen]

    def _announced(self, left: Mapping[str, _PendingRun]) -> Iterator[RunPlan]:
        for entry in left.values():
            self._tell(f"{entry.label}: training in {entry.run.folder}")
            yield entry.run

    def _warn(self, runs: Sequence[RunPlan]) -> None:
        """Say which systems learn next to nothing; their own runs are quiet."""
        systems_of: dict[str, dict[str, None]] = {}
        for run in runs:
            if warning := cut_short(run.loaded.config.training):
                systems_of.setdefault(warning, {})[run.system] = None
        for warning, systems in systems_of.items():
            self._tell(f"warning: {', '.join(systems)}: {warning}")

    def _finish(self, run: RunPlan, failure: Failure | None, left: _PendingRun) -> None:
        """Measure a run that has ended; a failure is kept."""
        if failure is None:
            try:
                for direction in left.directions:
                    self._measure(run, direction, left.label)
            except DeepwireError as error:
                failure = Failure(error.exit_code, f"trained, but not measured: {error}")
            else:
                return
        why = {"exit_code": failure.exit_code, "message": failure.message}
        self._failed.put(run.name, run.loaded, why)
        self._tell(f"{left.label}: FAILED with exit code {failure.exit_code}: {failure.message}")

    def _measure(self, run: RunPlan, direction: str, label: str) -> None:
        rounds, translation = self.loaded.plan.rounds, self.translation(run, direction)
        result = measure_run(run, direction, translation, rounds, self._at_once, self._tell)
        self._keep(run, result)
        self.extra_tests.translate(run, result)
        where = "" if direction == run.part else f"{direction} "
        self._tell(
            f"{label}: {where}BLEU {result.bleu:.2f}, {result.training_seconds / 60:.1f} min of training"
        )

    def _keep(self, run: RunPlan, result: RunResult) -> None:
        self._measured.put(run.label(result.direction), run.loaded, result.model_dump(mode="json"))

    def _done(self, wanted: Sequence[tuple[RunPlan, list[str]]]) -> list[tuple[RunPlan, RunResult]]:
        """What has been measured of some runs and directions."""
        measured = [(run, self.result(run, direction)) for run, names in wanted for direction in names]
        return [(run, result) for run, result in measured if result is not None]

    def _translate_added_test_sets(self, wanted: Sequence[tuple[RunPlan, list[str]]]) -> None:
        """Translate test sets that the plan did not have yet when models were measured."""
        left = [(run, result) for run, result in self._done(wanted) if self.extra_tests.missing(run, result)]
        if left:
            self._tell(f"translating more test sets with {len(left)} models that were measured before")
        for run, result in left:
            try:
                self.extra_tests.translate(run, result)
            except ModelError as error:  # who deletes checkpoints keeps what was measured
                self._tell(f"{run.label(result.direction)}: more test sets are not translated: {error}")

    def _time_decoding_alone(self, wanted: Sequence[tuple[RunPlan, list[str]]]) -> bool:
        """Time the decoding of what was timed beside runs in training; False where there is nothing.

        By turns, so that a machine that slows down does so for all; the fastest round counts.
        """
        left = [(run, result) for run, result in self._done(wanted) if not result.decoding_alone]
        if not left:
            return False
        self._tell(f"timing the decoding of {len(left)} models, nothing beside it")
        timed: dict[str, tuple[RunPlan, RunResult]] = {}
        for _ in range(self.loaded.plan.rounds):
            for run, result in left:
                name = run.label(result.direction)
                try:
                    new = time_decoding(run, result, self._tell)
                except ModelError as error:
                    self._tell(f"{name}: its decoding is not timed again: {error}")
                    continue
                if name not in timed or new.decoding_speed > timed[name][1].decoding_speed:
                    timed[name] = run, new
        for run, result in timed.values():
            self._keep(run, result)
        return bool(timed)

    def gather(self) -> GatheredResults:
        """What has been done so far."""
        results, failures, missing = list[RunResult](), [], []
        for run in self.loaded.runs:
            measured = {direction: self.result(run, direction) for direction in run.directions}
            results += [result for result in measured.values() if result is not None]
            left = tuple(direction for direction, result in measured.items() if result is None)
            if not left:
                continue
            failure = self.failure(run)
            if failure is not None:
                failures.append((run, failure))
            else:
                missing.append((run, left))
        return GatheredResults(tuple(results), tuple(failures), tuple(missing))

    def result(self, run: RunPlan, direction: str) -> RunResult | None:
        """What was measured of a run with its present settings, in one of its directions."""
        record = self._measured.get(run.label(direction), run.loaded)
        try:
            return None if record is None else RunResult.model_validate(record)
        except ValidationError:
            return None

    def check_report(self) -> None:
        """See that pages of what there is show something, and name what was measured with other settings.

        Raises:
            UsageError: There are measurements in the folder, and none is of this plan.
        """
        labels = [(run, run.label(direction)) for run in self.loaded.runs for direction in run.directions]
        differences = {label: self._measured.difference(label, run.loaded) for run, label in labels}
        outdated = [f"{label}: {difference}" for label, difference in differences.items() if difference]
        kept = sorted(path.stem for path in self._measured.folder.glob("*.json"))
        if kept and not self.gather().results:
            why = outdated[0] if outdated else f"there are {few(kept)}"
            raise UsageError(
                f"{self.folder}: nothing that was measured there is of this plan: {why}",
                "set it back, or train the changed plan in another --folder",
            )
        for line in outdated:
            self._tell(f"not on the pages: {line}")

    def failure(self, run: RunPlan) -> Failure | None:
        """Why a run failed with its present settings; None where it did not."""
        match self._failed.get(run.name, run.loaded):
            case {"exit_code": int(code), "message": str(message)}:
                return Failure(code, message)
            case _:
                return None

    def lines(self, run: RunPlan, direction: str) -> list[str]:
        """The translation of the test set.

        Raises:
            DataError: It is missing or damaged.
        """
        return read_text(self.translation(run, direction)).lines

    def test_set(self, run: RunPlan, direction: str) -> ParallelText:
        """The test set of a run that has been trained.

        Raises:
            DataError: It is missing or damaged.
        """
        return pairs_of(run, direction)

    def translation(self, run: RunPlan, direction: str) -> Path:
        """Where the translation of the test set is."""
        return self.folder / "translations" / f"{run.label(direction)}.txt"
