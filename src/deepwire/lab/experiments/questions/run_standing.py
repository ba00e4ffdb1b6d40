"""A run measured where it stands: its learning curve, and the test set by the mean of its checkpoints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path

import numpy as np

from deepwire.checkpoint.model_path import average_models
from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.checkpoint.store import parameter_count
from deepwire.config.section import changeable_keys
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.errors import ModelError, Tell
from deepwire.io.regular_files import read_json
from deepwire.lab.experiments.questions.question_plan import Goal
from deepwire.lab.experiments.questions.question_results import (
    LearningCurve,
    QuestionResult,
    RunStanding,
    ScoredTest,
    pack,
)
from deepwire.lab.experiments.results.planned_runs import RunPlan
from deepwire.lab.experiments.results.run_measurement import (
    metric_of,
    pairs_of,
    scorer_of,
    trained_with,
)
from deepwire.lab.subject.scorer import Scorer
from deepwire.runfile import completed
from deepwire.training.device import describe
from deepwire.training.logging.metrics_log import number_of, read_records
from deepwire.training.run.spec import changed_settings

NOT_IN_TRANSLATIONS = frozenset(changeable_keys(DecodingConfig, "decoding"))
"""Settings of decoding that change no translation; their defaults differ between versions of deepwire."""

_ALL_TEXT = ("BLEU", "text digest")


def measured(
    before: QuestionResult,
    run: RunPlan,
    goal: Goal,
    updates: int,
    average: int,
    warn: Tell,
) -> QuestionResult:
    """What is known of a run, with its standing at a goal that it has just reached.

    Args:
        before: What is known so far.
        run: The run, trained as far as the goal asks.
        goal: Which one.
        updates: Where the goal is: the run has made so many, or stood still before.
        average: Checkpoints whose mean translates.
        warn: Receives warnings, one line each.

    Raises:
        ModelError: The run is past the goal, or has no sound checkpoints.
        DataError: Its log or the test set is damaged or missing.
    """
    directory = RunDirectory(run.folder)
    folder, sources = _mean_at(directory, run, updates, average)
    log = [record for record in read_records(directory.metrics) if number_of(record, "update") <= sources[-1]]
    curve = _curve(log)
    best = min(((nll, when) for when, nll in zip(curve.updates, curve.nll, strict=True) if nll is not None))
    trained = [record for record in log if record.get("kind") == "train"]
    tests, settings = {}, dict[str, str]()
    for direction in run.directions:
        scorer = scorer_of(run, direction, pairs_of(run, direction), warn, folder=folder)
        tests[direction] = _test(scorer, run, direction)
        settings = {k: v for k, v in scorer.settings.items() if k not in _ALL_TEXT}
        settings["processor"] = str(describe(scorer.loaded.device)["device"])
    standing = RunStanding(
        updates=sources[-1],
        target_tokens=int(number_of(trained[-1], "target_tokens")),
        seconds=number_of(trained[-1], "seconds"),
        nll=curve.nll[-1],
        best_nll=best[0],
        best_update=best[1],
        stood_still=sources[-1] < updates,
        averaged=sources,
        settings=settings,
        tests=tests,
    )
    return before.model_copy(
        update={
            "parameters": parameter_count(folder),
            "trained_with": trained_with(directory),
            "date": datetime.now(UTC).isoformat(timespec="seconds"),
            "curve": curve,
            "standings": {**before.standings, goal: standing},
            "failed": {other: why for other, why in before.failed.items() if other != goal},
        }
    )


def has_mean(run: RunPlan, updates: int, average: int) -> bool:
    """Whether a run has been at an update and keeps the mean of its checkpoints there, wherever it is now.

    Raises:
        ModelError: What it has stored is damaged.
    """
    directory = RunDirectory(run.folder)
    if not _mean_folder(directory, updates, average).exists() or not directory.resolved_config.exists():
        return False
    changed = changed_settings(directory.resolved_config, run.loaded.resolved, completed)
    return changed.keys() <= {"run", "data.prepared", "training.max_updates", *NOT_IN_TRANSLATIONS}


def _mean_folder(directory: RunDirectory, updates: int, average: int) -> Path:
    return directory.averages / f"{updates}-{average}"


def _mean_at(
    directory: RunDirectory, run: RunPlan, updates: int, average: int
) -> tuple[Path, tuple[int, ...]]:
    """The mean of the last regular checkpoints, made while they are there and kept; and their updates.

    Checkpoints that a signal asked for are left out: an interrupted run has the same mean as another.
    """
    target = _mean_folder(directory, updates, average)
    every = run.loaded.config.training.checkpoint_interval
    if not target.exists():
        there = {each.update: each.path for each in directory.checkpoints() if each.update % every == 0}
        last = max(there, default=0)
        _check_place(directory, last, updates)
        chosen = sorted(there)[-average:]
        if chosen != list(range(last - every * (len(chosen) - 1), last + 1, every)) or (
            len(chosen) < min(average, last // every)
        ):
            raise ModelError(
                f"{directory.path}: has regular checkpoints at {sorted(there)}, not the last {average}",
                f"set training.checkpoint.keep_last to more than {average}",
            )
        average_models([there[update] for update in chosen], target)
    names = read_json(target / "config.json").get("metadata")
    folders = names.get("average_of") if isinstance(names, dict) else None
    if not isinstance(folders, list):
        raise ModelError(f"{target}: does not say what it is the mean of", "remove it")
    return target, tuple(int(str(name).rpartition("-")[2]) for name in folders)


def _check_place(directory: RunDirectory, last: int, updates: int) -> None:
    """See that a run is at the goal, not past it.

    Raises:
        ModelError: It is past it, and its checkpoints there are gone; or it has not come so far.
    """
    if last > updates:
        raise ModelError(
            f"{directory.path}: has made {last} updates, and its checkpoints at {updates} are gone",
            "move the run away, and it will be trained again",
        )
    reason = read_json(directory.done).get("reason", "") if directory.done.exists() else ""
    if last < updates and "early_stopping" not in str(reason):
        raise ModelError(f"{directory.path}: has made {last} updates of {updates}")


def _curve(log: Sequence[Mapping[str, object]]) -> LearningCurve:
    valid = [record for record in log if record.get("kind") == "valid"]
    if not valid:
        raise ModelError("metrics.jsonl: holds no validation")
    return LearningCurve(
        updates=tuple(int(number_of(record, "update")) for record in valid),
        nll=tuple(_finite(record.get("nll")) for record in valid),
        bleu=tuple(_finite(record.get("bleu")) for record in valid),
    )


def _finite(value: object) -> float | None:
    return float(value) if isinstance(value, int | float) and np.isfinite(value) else None


def _test(scorer: Scorer, run: RunPlan, direction: str) -> ScoredTest:
    done = scorer.translate(scorer.model)
    answers = scorer.pairs.reference.answers
    statistics = scorer.metric.statistics(done.lines, answers)
    settings = scorer.settings
    return ScoredTest(
        bleu=scorer.score(done.lines),
        chrf=metric_of("chrf", run, direction).score(done.lines, answers).value,
        signature=settings["BLEU"],
        text=settings["text digest"],
        sentences=len(done.lines),
        statistics=pack(statistics),
        seconds=done.seconds,
    )
