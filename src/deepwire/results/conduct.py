"""Carry out a plan: train what is missing, measure what is not measured, and gather what there is."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from pydantic import ValidationError

from deepwire.analysis.measured import Measured
from deepwire.errors import DeepwireError
from deepwire.evaluation.texts import read_text
from deepwire.results.measuring import RunResult, measure_run, pairs_of
from deepwire.results.plan import LoadedPlan, RunPlan
from deepwire.results.training import Failure, train_run
from deepwire.runfile import completed

Tell = Callable[[str], None]


@dataclass(frozen=True)
class Gathered:
    """What there is of a plan.

    Attributes:
        results: Runs that were trained and measured.
        failures: Runs that could not be, with the reason.
        missing: Runs that have not been tried yet.
    """

    results: tuple[RunResult, ...]
    failures: tuple[tuple[RunPlan, Failure], ...]
    missing: tuple[RunPlan, ...]


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
            systems, directions: Only these; all without any.
            retry: Try runs that failed before once more.
            after: Called after each run that was trained or measured.

        Raises:
            UsageError: A run is in use by another process, or was begun with other settings.
            Stopped: A signal asked to stop.
        """
        wanted = [
            run
            for run in self.loaded.runs
            if (not systems or run.system in systems) and (not directions or run.direction in directions)
        ]
        for number, run in enumerate(wanted, 1):
            label = f"[{number}/{len(wanted)}] {run.direction} {run.system} seed {run.seed}"
            if self.result(run) is not None:
                continue
            before = self.failure(run)
            if before is not None and not retry:
                self._tell(f"{label}: failed before ({before.message}); --retry tries again")
                continue
            self._tell(f"{label}: training in {run.folder}")
            self._one(run, label)
            if after is not None:
                after()

    def _one(self, run: RunPlan, label: str) -> None:
        failure = train_run(run)
        if failure is None:
            try:
                rounds = self.loaded.plan.rounds
                result = measure_run(run, self.translation(run), rounds, self._tell)
            except DeepwireError as error:
                failure = Failure(error.exit_code, f"trained, but not measured: {error}")
            else:
                self._keep("measured", run, result.model_dump(mode="json"))
                self._tell(
                    f"{label}: BLEU {result.bleu:.2f}, {result.training_seconds / 60:.1f} min of training"
                )
                return
        self._keep("failed", run, {"exit_code": failure.exit_code, "message": failure.message})
        self._tell(f"{label}: FAILED with exit code {failure.exit_code}: {failure.message}")

    def gather(self) -> Gathered:
        """What has been done so far."""
        results, failures, missing = [], [], []
        for run in self.loaded.runs:
            result, failure = self.result(run), self.failure(run)
            if result is not None:
                results.append(result)
            elif failure is not None:
                failures.append((run, failure))
            else:
                missing.append(run)
        return Gathered(tuple(results), tuple(failures), tuple(missing))

    def result(self, run: RunPlan) -> RunResult | None:
        """What was measured of a run with its present settings."""
        record = self._kept("measured", run)
        try:
            return None if record is None else RunResult.model_validate(record)
        except ValidationError:
            return None

    def failure(self, run: RunPlan) -> Failure | None:
        """Why a run failed with its present settings; None where it did not."""
        match self._kept("failed", run):
            case {"exit_code": int(code), "message": str(message)}:
                return Failure(code, message)
            case _:
                return None

    def lines(self, run: RunPlan) -> list[str]:
        """The translation of the test set.

        Raises:
            DataError: It is missing or damaged.
        """
        return read_text(self.translation(run)).lines

    def references(self, run: RunPlan) -> list[str]:
        """The reference of the test set of a run that has been trained."""
        return pairs_of(run).reference.lines

    def translation(self, run: RunPlan) -> Path:
        """Where the translation of the test set is."""
        return self.folder / "translations" / f"{run.name}.txt"

    def _kept(self, kind: str, run: RunPlan) -> dict[str, object] | None:
        """What was kept of a run, if its settings were those of the plan now."""
        record = self._records(kind).get(run.name)
        if record is None:
            return None
        settings, found = record.get("settings"), record.get("found")
        if not isinstance(settings, dict) or not isinstance(found, dict):
            return None
        return found if _same(settings, run.loaded.resolved) else None

    def _keep(self, kind: str, run: RunPlan, found: Mapping[str, object]) -> None:
        settings = dict(run.loaded.resolved)
        self._records(kind).put(run.name, {"settings": settings, "found": dict(found)})

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
