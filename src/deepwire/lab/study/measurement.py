"""A trained run measured at a budget: learning curve, and its test sets by the best or a mean model."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from deepwire import __version__
from deepwire.checkpoint.model_path import average_models
from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.checkpoint.store import parameter_count
from deepwire.errors import DivergedError, LogFn, ModelError
from deepwire.evaluation.texts import SearchSettings
from deepwire.io.atomic import disk_errors, write_text
from deepwire.io.regular_files import read_json
from deepwire.lab.scorer import Scorer
from deepwire.lab.study.runs import Study, StudyRun
from deepwire.lab.study.store import LearningCurve, RunRecord, ScoredTest, Standing, pack
from deepwire.training.device import describe
from deepwire.training.log import number_of, read_records

_OF_TEXT = ("BLEU", "text digest")


def measured(study: Study, run: StudyRun, before: RunRecord, warn: LogFn) -> RunRecord:
    """The record of a run with its standing at the budget that it has just reached.

    Raises:
        ModelError: The run is past the budget, or has no sound checkpoints.
        DataError: Its log or a test set is damaged or missing.
    """
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


def trial_loss(run: StudyRun) -> float:
    """The lowest validation loss of a trial.

    Raises:
        DivergedError: It has none that is finite.
    """
    losses = [nll for nll in _curve(read_records(RunDirectory(run.folder).metrics)).nll if nll is not None]
    if not losses:
        raise DivergedError("no finite validation loss")
    return min(losses)


def has_mean(run: StudyRun, average: int | None) -> bool:
    """Whether a run has been at its budget before and keeps the mean of its checkpoints there."""
    return average is not None and _mean_folder(RunDirectory(run.folder), run, average).exists()


def _mean_folder(directory: RunDirectory, run: StudyRun, average: int) -> Path:
    return directory.averages / f"{run.updates or run.budget}-{average}"


def _mean(directory: RunDirectory, run: StudyRun, average: int) -> tuple[Path, tuple[int, ...]]:
    """The mean of the last regular checkpoints, made while they are there and kept; and their updates.

    Checkpoints that a signal asked for are left out: an interrupted run has the same mean as another.
    """
    target = _mean_folder(directory, run, average)
    every = run.loaded.config.training.checkpoint_interval
    if not target.exists():
        there = {each.update: each.path for each in directory.checkpoints() if each.update % every == 0}
        last = max(there, default=0)
        reason = read_json(directory.done).get("reason", "") if directory.done.exists() else ""
        early = "early_stopping" in str(reason)
        if run.updates is not None and last != run.updates and not (last < run.updates and early):
            raise ModelError(
                f"{directory.path}: has checkpoints up to update {last}, not {run.updates}",
                "move the run away, and it will be trained again",
            )
        chosen = sorted(there)[-average:]
        whole = list(range(last - every * (len(chosen) - 1), last + 1, every))
        if chosen != whole or len(chosen) < min(average, last // every):
            raise ModelError(
                f"{directory.path}: has regular checkpoints at {sorted(there)}, not the last {average}",
                f"set training.checkpoint.keep_last to more than {average}",
            )
        average_models([there[update] for update in chosen], target)
    metadata = read_json(target / "config.json").get("metadata")
    names = metadata.get("average_of") if isinstance(metadata, dict) else None
    if not isinstance(names, list):
        raise ModelError(f"{target}: does not say what it is the mean of", "remove it")
    return target, tuple(int(str(name).rpartition("-")[2]) for name in names)


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
    several = run.loaded.config.data.languages is not None
    for direction in run.directions:
        for name, pairs in study.tests(run, direction).items():
            metric, chrf = run.metric("bleu", direction), run.metric("chrf", direction)
            to = direction.partition("-")[2] if several else ""
            scorer = Scorer(str(folder), pairs, SearchSettings({}), warn, to=to, metric=metric)
            done = scorer.translate(scorer.model)
            answers = pairs.reference.answers
            tests[name] = ScoredTest(
                bleu=scorer.score(done.lines),
                chrf=chrf.score(done.lines, answers).value,
                signature=scorer.settings["BLEU"],
                text=scorer.settings["text digest"],
                sentences=len(done.lines),
                statistics=pack(metric.statistics(done.lines, answers)),
                seconds=done.seconds,
            )
            path = study.folder / "translations" / f"{run.name}.{run.budget}.{name.replace(' ', '.')}.txt"
            with disk_errors(path):
                path.parent.mkdir(parents=True, exist_ok=True)
            write_text(path, "".join(f"{line}\n" for line in done.lines))
    return tests, scorer


def _trained_with(run: RunDirectory) -> dict[str, str]:
    """Where a run was trained, as it wrote down; deepwire's version is the present one."""
    stored = read_json(run.environment)
    there, numerics = stored.get("environment"), stored.get("numerics")
    found = {"deepwire": __version__}
    if isinstance(there, dict):
        found |= {name: str(there[name]) for name in ("torch", "device", "threads") if name in there}
    if isinstance(numerics, dict) and "precision" in numerics:
        found["precision"] = str(numerics["precision"])
    return found
