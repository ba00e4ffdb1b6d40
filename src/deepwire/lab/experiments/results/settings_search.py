"""The search for the settings of each system: short trials, of which the lowest validation loss decides.

All systems sharing one learning rate would be unfair to some. Trials see the validation set only, never the
test set, and all of them are in the report.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Generator, Iterator, Sequence
from contextlib import closing
from pathlib import Path

from deepwire.errors import DeepwireError, DivergedError, Tell
from deepwire.lab.experiments.results.planned_runs import LoadedPlan, RunPlan, Trial
from deepwire.lab.experiments.results.result_store import ResultStore
from deepwire.lab.experiments.results.run_measurement import validation_losses
from deepwire.lab.experiments.results.run_processes import Failure, NextRun, in_turn
from deepwire.lab.report.finding import Finding, provenance
from deepwire.lab.report.tables_and_figures import Column, Table

Train = Callable[[NextRun], Generator[tuple[RunPlan, Failure | None], None, None]]


class SettingsSearch:
    """The trials of a plan in one folder; what was tried is kept and not tried again.

    Args:
        loaded: The plan.
        folder: ``search/`` and ``tried/`` are made in it.
        tell: Receives progress messages, one line each.
    """

    def __init__(self, loaded: LoadedPlan, folder: Path, tell: Tell) -> None:
        self.plan, self.trials = loaded.plan, loaded.trials
        self._kept, self._tell = ResultStore(folder / "tried"), tell

    def run_trials(
        self,
        train: Train,
        systems: Sequence[str] = (),
        *,
        retry: bool = False,
        after: Callable[[], None] | None = None,
    ) -> None:
        """Make the trials that have not been made.

        Args:
            train: Trains runs, and gives back each that has ended; see `train_runs`.
            systems: Only of these; of all without any.
            retry: Make trials that failed before once more.
            after: Called after each trial.

        Raises:
            UsageError: A run is in use by another process, or was begun with other settings.
            Stopped: A signal asked to stop.
        """
        wanted = self._trials_of(systems)
        labels = {}
        for number, trial in enumerate(wanted, 1):
            run = trial.run
            labels[run.folder] = f"[trial {number}/{len(wanted)}] {run.part} {run.system} {trial.names[0]}"
        left = {trial.run.folder: trial for trial in self.left(systems, retry=retry)}

        def begun() -> Iterator[RunPlan]:
            for folder, trial in left.items():
                self._tell(f"{labels[folder]}: training in {folder}")
                yield trial.run

        with closing(train(in_turn(begun()))) as ended:
            for run, failure in ended:
                self.finish(left[run.folder], failure, labels[run.folder])
                if after is not None:
                    after()

    def left(self, systems: Sequence[str] = (), *, retry: bool = False) -> list[Trial]:
        """Trials that have not been made; of some systems, and those that they are tuned as, or of all."""
        return [trial for trial in self._trials_of(systems) if self._is_left(trial, retry=retry)]

    def _trials_of(self, systems: Sequence[str]) -> list[Trial]:
        wanted = {self.plan.systems[name].tuned_as or name for name in systems}
        return [trial for trial in self.trials if not systems or trial.run.system in wanted]

    def _is_left(self, trial: Trial, *, retry: bool) -> bool:
        before = self.outcome(trial)
        return before is None or (retry and isinstance(before, Failure))

    def finish(self, trial: Trial, failure: Failure | None, label: str) -> None:
        """Keep what came out of a trial that has ended."""
        outcome = _outcome(trial) if failure is None else failure
        if isinstance(outcome, Failure):
            self._put(trial, {"exit_code": outcome.exit_code, "message": outcome.message})
            self._tell(f"{label}: FAILED with exit code {outcome.exit_code}: {outcome.message}")
        else:
            self.adopt(trial, outcome)
            self._tell(f"{label}: validation loss {outcome:.3f}")

    def adopt(self, trial: Trial, loss: float) -> None:
        """Keep the lowest validation loss of a trial, wherever it was made."""
        self._put(trial, {"loss": loss})

    def outcome(self, trial: Trial) -> float | Failure | None:
        """The lowest validation loss of a trial, or why it failed; None before it was made."""
        match self._kept.get(trial.name, trial.run.loaded):
            case {"loss": float(loss)}:
                return loss
            case {"exit_code": int(code), "message": str(message)}:
                return Failure(code, message)
            case _:
                return None

    def taken(self) -> dict[str, str]:
        """The alternative with the lowest loss by system, the first of equal ones: where all trials were
        made, and one did not fail."""
        taken = {}
        for system in dict.fromkeys(trial.run.system for trial in self.trials):
            system_trials = [trial for trial in self.trials if trial.run.system == system]
            outcomes = [self.outcome(trial) for trial in system_trials]
            losses = [outcome if isinstance(outcome, float) else math.inf for outcome in outcomes]
            if None not in outcomes and min(losses) < math.inf:
                taken[system] = system_trials[losses.index(min(losses))].names[0]
        others = {name: entry.tuned_as for name, entry in self.plan.systems.items()}
        return taken | {name: taken[other] for name, other in others.items() if other in taken}

    def record(self) -> list[dict[str, object]]:
        """Every trial as plain values."""
        taken = self.taken()
        return [
            {
                "system": trial.run.system,
                "alternatives": list(trial.names),
                "settings": list(trial.settings),
                "loss": outcome if isinstance(outcome, float) else None,
                "failed": outcome.message if isinstance(outcome, Failure) else None,
                "taken": trial.names[0] == taken.get(trial.run.system),
            }
            for trial, outcome in ((trial, self.outcome(trial)) for trial in self.trials)
        ]

    def findings(self) -> Iterator[Finding]:
        """All trials on one page; nothing of a plan without a search."""
        search = self.plan.search
        if search is None or not self.trials:
            return
        warmup = (
            "was shortened in proportion"
            if search.shorten_warmup
            else "was that of the whole run where it fits"
        )
        yield Finding(
            analysis="search",
            title=f"{self.plan.title}: the search for settings",
            measured=(
                "Each system was tried with its own settings and with each alternative, in "
                f"{search.max_updates} updates with seed {search.seed} ({self._where()}); the warm-up of the "
                f"schedule {warmup}. What had the lowest validation loss (negative "
                "log-likelihood a target token) is trained for the table. The test set plays no part. Short "
                "trials may favour what learns fast at first."
            ),
            tables=(self._table(),),
            provenance=provenance(),
        )

    def _where(self) -> str:
        return ", ".join(dict.fromkeys(trial.run.part for trial in self.trials))

    def _table(self) -> Table:
        columns = (
            Column(name="system"),
            Column(name="alternative"),
            Column(name="settings"),
            Column(name="schedule of the trial"),
            Column(name="validation loss", unit="nats/token", digits=3),
            Column(name="outcome"),
        )
        taken = self.taken()
        rows = []
        for trial in self.trials:
            system, outcome = trial.run.system, self.outcome(trial)
            loss, remark = outcome if isinstance(outcome, float) else None, ""
            if outcome is None:
                remark = "not tried yet"
            elif isinstance(outcome, Failure):
                remark = f"failed: {outcome.message}"
            elif trial.names[0] == taken.get(system):
                remark = "taken"
            names, settings = ", ".join(trial.names), " ".join(trial.settings)
            rows.append((system, names, settings, _schedule(trial), loss, remark))
        return Table(title="All trials", columns=columns, rows=tuple(rows))

    def _put(self, trial: Trial, record: dict[str, object]) -> None:
        self._kept.put(trial.name, trial.run.loaded, record)


def _schedule(trial: Trial) -> str:
    """The learning rate of a trial: ``cosine, peak 0.005, warmup 75``."""
    schedule = trial.run.loaded.config.training.schedule
    constants = schedule.model_dump(include={"peak", "scale", "warmup"})
    return ", ".join([schedule.type, *(f"{name} {value:g}" for name, value in constants.items())])


def _outcome(trial: Trial) -> float | Failure:
    """The lowest validation loss of a trial that was trained."""
    try:
        losses = validation_losses(trial.run)
    except DeepwireError as error:
        return Failure(error.exit_code, f"trained, but not measured: {error}")
    return min(losses) if losses else Failure(DivergedError.exit_code, "no finite validation loss")
