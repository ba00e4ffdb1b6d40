"""Runs read from disk to stand side by side: settings, what training logged, the model they stand for."""

from __future__ import annotations

import json
import statistics
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from deepwire.analysis.report.finding import ModelSource
from deepwire.analysis.subject.model_and_text import model_source, run_of
from deepwire.analysis.subject.run_records import read_records
from deepwire.checkpoint.model_files import digest
from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import STATE, VOCABULARY, parameter_count, read_config, read_metadata
from deepwire.errors import ModelError
from deepwire.evaluation.model_translations import RESOLVED_CONFIG
from deepwire.io.regular_files import read_json

METRICS = "metrics.jsonl"


@dataclass(frozen=True)
class ComparedRun:
    """A run, or a model without one.

    Attributes:
        name: As the user named it.
        source: The model it stands for.
        settings: Every setting by its dotted name, as JSON text; of the model section only without a run.
        train: What training logged, in the order of updates.
        valid: What validations logged.
        parameters: Numbers in the model, shared ones once.
        vocabulary: Digests of the files of its vocabularies.
        reached: What holds for the model, not for the end of its run: ``target_tokens`` and ``seconds`` of
            training, ``perplexity`` on the validation set; without those that nobody recorded.
    """

    name: str
    source: ModelSource
    settings: Mapping[str, str]
    train: Sequence[Mapping[str, float]]
    valid: Sequence[Mapping[str, float]]
    parameters: int
    vocabulary: tuple[str, ...]
    reached: Mapping[str, float]

    def typical(self, key: str) -> float | None:
        """The median of something that training measures again and again, such as ``tokens_per_second``."""
        values = [entry[key] for entry in self.train if key in entry]
        return statistics.median(values) if values else None


def read_run(name: str) -> ComparedRun:
    """Read a run.

    Raises:
        ModelError: There is no such run or model, or its files are damaged.
        DataError: What training logged is damaged.
    """
    source, run = model_source(name), run_of(name)
    entries = [] if run is None else [_numbers(entry) for entry in read_records(run.path / METRICS)]
    train, valid = ([entry for kind, entry in entries if kind == wanted] for wanted in ("train", "valid"))
    folder = find_model(name)
    return ComparedRun(
        name=name,
        source=source,
        settings=flat(_settings(run.path, folder) if run else {"model": read_config(folder).get("model")}),
        train=train,
        valid=valid,
        parameters=parameter_count(folder),
        vocabulary=tuple(digest(path) for path in sorted((folder / VOCABULARY).glob("*")) if path.is_file()),
        reached=_reached(folder, train, valid),
    )


def _reached(
    folder: Path, train: Sequence[Mapping[str, float]], valid: Sequence[Mapping[str, float]]
) -> dict[str, float]:
    """What a checkpoint says of its own progress; of a model without that, what was logged at its update."""
    if (folder / STATE).exists():
        state = read_json(folder / STATE)
        _, progress = _numbers(state)
        scores = state.get("scores")
        return progress | (_numbers(scores)[1] if isinstance(scores, dict) else {})
    metadata = read_metadata(folder)
    validated = [] if "average_of" in metadata else valid  # nobody has scored an average
    logged = [entry for entry in (*train, *validated) if entry.get("update") == metadata.get("update")]
    return {name: value for entry in logged for name, value in entry.items()}


def flat(settings: object, name: str = "") -> dict[str, str]:
    """Nested settings as dotted names with JSON values; lists that hold mappings are numbered."""
    if isinstance(settings, dict) and settings:
        parts = [(f"{name}.{key}" if name else str(key), value) for key, value in settings.items()]
    elif isinstance(settings, list) and any(isinstance(item, dict) for item in settings):
        parts = [(f"{name}.{number}", value) for number, value in enumerate(settings)]
    else:
        return {name: json.dumps(settings, ensure_ascii=False)}
    return {key: text for part, value in parts for key, text in flat(value, part).items()}


def _settings(run: Path, model: Path) -> dict[str, object]:
    path = run / RESOLVED_CONFIG
    try:
        settings = json.loads(path.read_bytes())
    except FileNotFoundError:
        return {"model": read_config(model).get("model")}
    except (OSError, ValueError, RecursionError) as error:
        raise ModelError(f"{path}: cannot be read: {error}") from None
    if not isinstance(settings, dict):
        raise ModelError(f"{path} is damaged: it does not hold the settings of a run")
    return settings


def _numbers(entry: Mapping[str, object]) -> tuple[str, dict[str, float]]:
    values = {
        name: float(value)
        for name, value in entry.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }
    return str(entry.get("kind")), values
