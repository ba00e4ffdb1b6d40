"""What is measured of one trained run: quality, size, and the speed of training and decoding."""

from __future__ import annotations

import statistics
from collections import Counter
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import torch
from pydantic import Field

from deepwire import __version__
from deepwire.checkpoint.run_directory import RunDirectory
from deepwire.checkpoint.store import parameter_count
from deepwire.data.languages import Direction
from deepwire.errors import ModelError, Tell
from deepwire.evaluation.metric import Metric
from deepwire.evaluation.metric_choice import LanguageMetrics
from deepwire.evaluation.multilingual.directed_texts import texts_of
from deepwire.evaluation.texts import SearchSettings, read_test_set
from deepwire.io.atomic import disk_errors, write_text
from deepwire.io.regular_files import read_json
from deepwire.lab.experiments.results.planned_runs import RunPlan
from deepwire.lab.report.tables_and_figures import ReportRecord
from deepwire.lab.subject.model_and_text import ParallelText
from deepwire.lab.subject.scorer import WARM_UP, Scorer
from deepwire.training.device import describe
from deepwire.training.logging.metrics_log import number_of, read_records

_OF_TEXT = {"BLEU", "text digest"}
"""Settings that differ from direction to direction."""


class RunResult(ReportRecord):
    """One run, measured in one direction.

    Attributes:
        direction, system, seed: Which run, and which direction of it.
        bleu, chrf: On the test set, of the best checkpoint.
        parameters: Of the model.
        updates, target_tokens: Trained for.
        training_seconds: Time in training, as the run counted it.
        training_speed: Median target tokens a second over the lines of its log.
        decoding_speed: Sentences a second, the fastest round, without loading.
        decoding_alone: Whether nothing of the plan was trained while decoding was timed.
        valid_loss: Negative log-likelihood a token on the validation set at the end, nats; None without one.
            The loss, and all that training counted, is of all directions where the model has several.
        memory: Bytes in use at most, as training logged it.
        model: Digest of the checkpoint.
        settings: Decoding settings, device, precision, signature of BLEU.
        trained_with: Versions, processor, threads and number format of the training; empty where an earlier
            version measured.
        date: When it was measured, UTC, ISO 8601; empty likewise.
        at_once: How many runs were trained at a time.
    """

    direction: str
    system: str
    seed: int
    bleu: float
    chrf: float
    parameters: int
    updates: int
    target_tokens: int
    training_seconds: float
    training_speed: float
    decoding_speed: float
    valid_loss: float | None
    memory: int
    model: str
    settings: dict[str, str]
    trained_with: dict[str, str] = Field(default_factory=dict)
    date: str = ""
    at_once: int = 1
    decoding_alone: bool = False


def pace(results: Sequence[RunResult]) -> str:
    """How the machine was shared when runs were trained and timed, in words."""
    most = max((result.at_once for result in results), default=1)
    if most == 1:
        return "one run after the other"
    alone = all(result.decoding_alone for result in results)
    return f"up to {most} runs at a time, decoding {'alone' if alone else 'beside runs in training'}"


def conditions(results: Sequence[RunResult]) -> list[str]:
    """Sentences that say with what and when runs were trained and measured, and where they differ."""
    models = {
        (result.model, result.system, result.seed): result for result in results
    }.values()  # many directions or one
    kinds = Counter(
        ", ".join(f"{name} {value}" for name, value in result.trained_with.items()) for result in models
    )
    earlier = kinds.pop("", 0)
    said = [f"Trained with {kind}: {_runs(count)}." for kind, count in kinds.most_common()]
    if earlier:
        said.append(f"Measured by an earlier version, which did not write down with what: {_runs(earlier)}.")
    days = sorted(result.date[:10] for result in results if result.date)
    if days:
        said.append(f"Measured {days[0] if days[0] == days[-1] else f'from {days[0]} to {days[-1]}'}.")
    for name in sorted({name for result in results for name in result.settings} - _OF_TEXT):
        values = {result.settings.get(name, "none") for result in results}
        if len(values) > 1:
            said.append(f"Not measured alike: {name} is {' or '.join(sorted(values))}.")
    return said


def _runs(count: int) -> str:
    return f"{count} run{'s' if count > 1 else ''}"


def pairs_of(run: RunPlan, direction: str) -> ParallelText:
    """The test set of a run in one of its directions, where the plan says now that it lies.

    Raises:
        DataError: It is missing or damaged.
    """
    data = run.loaded.config.data
    if data.languages is None and data.test is not None:
        return ParallelText(*read_test_set(data.test[0], data))
    return ParallelText(*texts_of(data, "test", run.name).read(Direction.parse(direction)))


def metric_of(name: str, run: RunPlan, direction: str) -> Metric:
    """A metric, with the tokenizer of the language that a run translates into."""
    return LanguageMetrics((name,)).of(run.target(direction))[0]


def measure_run(
    run: RunPlan, direction: str, translations: Path, rounds: int, at_once: int, warn: Tell
) -> RunResult:
    """Translate, score and time a trained run in one direction; its translation is written to `translations`.

    Args:
        run, direction: What to measure.
        translations: Where the translation is written.
        rounds: How often the test set is translated.
        at_once: How many runs the plan trains at a time.
        warn: Receives warnings, one line each.

    Raises:
        ModelError: It has no sound checkpoint, or its log holds nothing.
        DataError: The test set is missing or damaged, or the run's log is.
    """
    scorer = _warm_scorer(run, direction, warn)
    done = [scorer.translate(scorer.model) for _ in range(rounds)]
    lines = done[0].lines
    log = read_records(RunDirectory(run.folder).metrics)
    trained = [record for record in log if record.get("kind") == "train"]
    valid = [record for record in log if record.get("kind") == "valid"]
    if not trained:
        raise ModelError(f"{run.folder}: its metrics.jsonl holds no update")
    # The first update is logged by itself, and includes all that happens once.
    speeds = [number_of(record, "tokens_per_second") for record in trained[1:] or trained]
    keep_lines(translations, lines)
    return RunResult(
        direction=direction,
        system=run.system,
        seed=run.seed,
        bleu=scorer.score(lines),
        chrf=metric_of("chrf", run, direction).score(lines, scorer.pairs.reference.answers).value,
        parameters=parameter_count(scorer.loaded.models[0].folder),
        updates=int(number_of(trained[-1], "update")),
        target_tokens=int(number_of(trained[-1], "target_tokens")),
        training_seconds=number_of(trained[-1], "seconds"),
        training_speed=statistics.median(speeds),
        decoding_speed=len(lines) / min(each.seconds for each in done),
        valid_loss=number_of(valid[-1], "nll") if valid else None,
        memory=int(max(number_of(record, "memory") for record in trained)),
        model=scorer.source.digest,
        settings=scorer.settings | _place_of(scorer),
        trained_with=trained_with(RunDirectory(run.folder)),
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        at_once=at_once,
        decoding_alone=at_once == 1,
    )


def trained_with(run: RunDirectory) -> dict[str, str]:
    """What a run wrote down about where it was trained, for people; deepwire's version is the present one."""
    stored = read_json(run.environment)
    there, precision_policy = stored.get("environment"), stored.get("numerics")
    environment = {"deepwire": __version__}
    if isinstance(there, dict):
        environment |= {name: str(there[name]) for name in ("torch", "device", "threads") if name in there}
    if isinstance(precision_policy, dict) and "precision" in precision_policy:
        environment["precision"] = str(precision_policy["precision"])
    return environment


def time_decoding(run: RunPlan, result: RunResult, warn: Tell) -> RunResult:
    """Translate the test set once more with the model that was measured, nothing beside it.

    Returns:
        The result with that speed, and where it was timed.

    Raises:
        ModelError: It is gone, or not sound.
        DataError: The test set is missing or damaged.
    """
    scorer = _warm_scorer(run, result.direction, warn, result.model)
    done = scorer.translate(scorer.model)
    return result.model_copy(
        update={
            "decoding_speed": len(done.lines) / done.seconds,
            "decoding_alone": True,
            "settings": result.settings | _place_of(scorer),
        }
    )


def _place_of(scorer: Scorer) -> dict[str, str]:
    """What decides the speed of decoding besides the settings of a model."""
    return {
        "processor": str(describe(scorer.loaded.device)["device"]),
        "threads of decoding": str(torch.get_num_threads()),
    }


def _warm_scorer(run: RunPlan, direction: str, warn: Tell, model: str | None = None) -> Scorer:
    """A trained run that has translated a few sentences."""
    scorer = scorer_of(run, direction, pairs_of(run, direction), warn, model)
    scorer.translate(scorer.model, scorer.pairs.source.lines[:WARM_UP])
    return scorer


def scorer_of(
    run: RunPlan,
    direction: str,
    pairs: ParallelText,
    warn: Tell,
    model: str | None = None,
    folder: Path | None = None,
) -> Scorer:
    """A trained run with a text in one of its directions.

    Args:
        run: The trained run.
        direction: One of its directions.
        pairs: The text to translate, and its reference.
        warn: Receives warnings, one line each.
        model: Digest of the checkpoint that it has to be.
        folder: A model made of the run, in place of its best checkpoint.

    Raises:
        ModelError: It has no sound checkpoint, or another one.
    """
    to = "" if run.loaded.config.data.languages is None else run.target(direction)
    metric = metric_of("bleu", run, direction)
    scorer = Scorer(str(folder or run.folder), pairs, SearchSettings({}), warn, to=to, metric=metric)
    if model is not None and scorer.source.digest != model:
        raise ModelError(f"{run.folder}: its best checkpoint is not the one that was measured")
    return scorer


def keep_lines(path: Path, lines: Sequence[str]) -> None:
    """Write a translation.

    Raises:
        ResourceError: It cannot be written.
    """
    with disk_errors(path):
        path.parent.mkdir(parents=True, exist_ok=True)
    write_text(path, "".join(f"{line}\n" for line in lines))


def validation_losses(run: RunPlan) -> list[float]:
    """Negative log-likelihood a target token of every validation of a run, nats; only finite ones.

    Raises:
        DataError: Its log is damaged.
    """
    log = read_records(RunDirectory(run.folder).metrics)
    losses = [record.get("nll") for record in log if record.get("kind") == "valid"]
    return [loss for loss in losses if isinstance(loss, float)]
