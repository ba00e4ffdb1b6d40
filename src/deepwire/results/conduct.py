"""Carry out a plan: train what is missing, measure what is not measured, and gather what there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from deepwire.analysis.measured import Measured
from deepwire.analysis.models import Pairs
from deepwire.errors import DeepwireError
from deepwire.evaluation.texts import read_text
from deepwire.results.measuring import RunResult, measure_run, pairs_of
from deepwire.results.plan import LoadedPlan, RunPlan
from deepwire.results.training import Failure, stoppable, train_run
from deepwire.runfile import completed

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Gathered:
    """What there is of a plan.

    Attributes:
        results: What was measured: runs, and where a model has several directions, each of them.
        failures: Runs that could not be trained or measured, with the reason.
        missing: Runs that have not been tried yet, each with the directions that are not measured.
    """

    results: tuple[RunResult, ...]
    failures: tuple[tuple[RunPlan, Failure], ...]
    missing: tuple[tuple[RunPlan, tuple[str, ...]], ...]

    def waiting(self, direction: str | None = None) -> list[str]:
        """What has not been done yet, by name: in one direction, or all of it."""
        names = []
        for run, directions in self.missing:
            if direction is not None:
                names += [run.label(direction)] if direction in directions else []
            elif directions == run.directions:
                names.append(run.name)
            else:
                names += [run.label(one) for one in directions]
        return names


class Conductor:
    """The runs of a plan in one folder; everything that is done is kept and not done again.

    Args:
        loaded: The plan.
        folder: ``runs/``, ``measured/``, ``translations/`` and the pages are made in it.
        tell: Hears how far it is, line by line.
    """

    def __init__(self, loaded: LoadedPlan, folder: Path, tell: Tell) -> None:
        self.loaded, self.folder, self._tell = loaded, folder, tell

    def carry_out(
        self,
        systems: Sequence[str] = (),
        directions: Sequence[str] = (),
        *,
        retry: bool = False,
        after: Callable[[], None] | None = None,
    ) -> None:
        """Train and measure, run by run; what failed is noted, and the next one follows.

        Args:
            systems, directions: Only these; all without any. A model of all directions is trained as a whole,
                and measured in these.
            retry: Try runs that failed before once more.
            after: Called after each run that was trained or measured.

        Raises:
            UsageError: A run is in use by another process, or was begun with other settings.
            Stopped: A signal asked to stop; what is done is kept.
        """
        wanted = [
            (run, [one for one in run.directions if not directions or one in directions])
            for run in self.loaded.runs
            if not systems or run.system in systems
        ]
        wanted = [(run, chosen) for run, chosen in wanted if chosen]
        with stoppable():
            for number, (run, chosen) in enumerate(wanted, 1):
                label = f"[{number}/{len(wanted)}] {run.part} {run.system} seed {run.seed}"
                left = [direction for direction in chosen if self.result(run, direction) is None]
                if not left:
                    continue
                before = self.failure(run)
                if before is not None and not retry:
                    self._tell(f"{label}: failed before ({before.message}); --retry tries again")
                    continue
                self._tell(f"{label}: training in {run.folder}")
                self._one(run, left, label)
                if after is not None:
                    after()

    def _one(self, run: RunPlan, directions: Sequence[str], label: str) -> None:
        failure = train_run(run)
        if failure is None:
            try:
                for direction in directions:
                    self._measure(run, direction, label)
            except DeepwireError as error:
                failure = Failure(error.exit_code, f"trained, but not measured: {error}")
            else:
                return
        self._keep("failed", run.name, run, {"exit_code": failure.exit_code, "message": failure.message})
        self._tell(f"{label}: FAILED with exit code {failure.exit_code}: {failure.message}")

    def _measure(self, run: RunPlan, direction: str, label: str) -> None:
        rounds = self.loaded.plan.rounds
        result = measure_run(run, direction, self.translation(run, direction), rounds, self._tell)
        self._keep("measured", run.label(direction), run, result.model_dump(mode="json"))
        where = "" if direction == run.part else f"{direction} "
        self._tell(
            f"{label}: {where}BLEU {result.bleu:.2f}, {result.training_seconds / 60:.1f} min of training"
        )

    def gather(self) -> Gathered:
        """What has been done so far."""
        results, failures, missing = list[RunResult](), [], []
        for run in self.loaded.runs:
            found = {direction: self.result(run, direction) for direction in run.directions}
            results += [result for result in found.values() if result is not None]
            left = tuple(direction for direction, result in found.items() if result is None)
            if not left:
                continue
            failure = self.failure(run)
            if failure is not None:
                failures.append((run, failure))
            else:
                missing.append((run, left))
        return Gathered(tuple(results), tuple(failures), tuple(missing))

    def result(self, run: RunPlan, direction: str) -> RunResult | None:
        """What was measured of a run with its present settings, in one of its directions."""
        record = self._kept("measured", run.label(direction), run)
        try:
            return None if record is None else RunResult.model_validate(record)
        except ValidationError:
            return None

    def failure(self, run: RunPlan) -> Failure | None:
        """Why a run failed with its present settings; None where it did not."""
        match self._kept("failed", run.name, run):
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

    def test_set(self, run: RunPlan, direction: str) -> Pairs:
        """The test set of a run that has been trained.

        Raises:
            DataError: It is missing or damaged.
        """
        return pairs_of(run, direction)

    def translation(self, run: RunPlan, direction: str) -> Path:
        """Where the translation of the test set is."""
        return self.folder / "translations" / f"{run.label(direction)}.txt"

    def _kept(self, kind: str, name: str, run: RunPlan) -> dict[str, object] | None:
        """What was kept of a run, if its settings were those of the plan now."""
        record = self._records(kind).get(name)
        if record is None:
            return None
        settings, found = record.get("settings"), record.get("found")
        if not isinstance(settings, dict) or not isinstance(found, dict):
            return None
        return found if _same(settings, run.loaded.resolved) else None

    def _keep(self, kind: str, name: str, run: RunPlan, found: Mapping[str, object]) -> None:
        settings = dict(run.loaded.resolved)
        self._records(kind).put(name, {"settings": settings, "found": dict(found)})

    def _records(self, kind: str) -> Measured:
        return Measured(self.folder / kind, {})


def _same(before: Mapping[str, object], now: Mapping[str, object]) -> bool:
    """Whether two run files train the same; settings that an earlier version did not have are defaults."""
    return _decisive(before) == _decisive(now) or _decisive(completed(before)) == _decisive(now)


def _decisive(resolved: Mapping[str, object]) -> dict[str, object]:
    """A run file without what does not change a run: where it and the prepared text are kept, notes."""
    kept = {name: value for name, value in resolved.items() if name not in ("recipe", "run")}
    data = kept.get("data")
    if isinstance(data, dict):
        kept["data"] = {name: value for name, value in data.items() if name != "prepared"}
    return kept
