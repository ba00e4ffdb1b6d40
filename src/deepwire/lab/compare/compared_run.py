"""Runs read from disk to stand side by side: where their settings differ, and their learning curves."""

from __future__ import annotations

import json
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deepwire.checkpoint.model_files import digest
from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import STATE, VOCABULARY, parameter_count, read_config, read_metadata
from deepwire.errors import ModelError
from deepwire.evaluation.texts import RESOLVED_CONFIG
from deepwire.io.regular_files import read_json, read_regular
from deepwire.lab.report.finding import Axis, Figure, LineChart, ModelSource, Series
from deepwire.lab.subject.model_and_text import model_source, run_of
from deepwire.training.logging.metrics_log import read_records

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
        settings = json.loads(read_regular(path))
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


_HOUR = 3600.0


def learning_curves(runs: Sequence[ComparedRun], names: Sequence[str]) -> Iterator[Figure]:
    """Training loss, then validation by updates and by time; pictures without a point are left out.

    Args:
        runs: At least one.
        names: What legends call them.
    """
    nats = Axis(label="negative log-likelihood", unit="nats/subword")
    updates = Axis(label="updates")
    yield from _lines("training", "Training loss", updates, nats, _training(runs, names, "nll"))
    yield from _lines("validation", "Validation loss", updates, nats, _validation(runs, names, "nll"))
    yield from _lines(
        "validation-by-time",
        "Validation loss by training time",
        Axis(label="training time", unit="hours"),
        nats,
        _validation(runs, names, "nll", by_time=True),
    )
    yield from _lines(
        "validation-bleu",
        "Validation BLEU",
        updates,
        Axis(label="BLEU", unit="%"),
        _validation(runs, names, "bleu"),
    )


def _lines(name: str, title: str, x: Axis, y: Axis, series: Sequence[Series]) -> Iterator[Figure]:
    drawn = tuple(curve for curve in series if curve.y)
    if drawn:
        yield LineChart(name=name, title=title, x=x, y=y, series=drawn)


def _training(runs: Sequence[ComparedRun], names: Sequence[str], key: str) -> list[Series]:
    return [
        _series(
            name, [(entry["update"], entry[key]) for entry in run.train if key in entry and "update" in entry]
        )
        for run, name in zip(runs, names, strict=True)
    ]


def _validation(
    runs: Sequence[ComparedRun], names: Sequence[str], key: str, *, by_time: bool = False
) -> list[Series]:
    curves = []
    for run, name in zip(runs, names, strict=True):
        points = [(entry["update"], entry[key]) for entry in run.valid if key in entry and "update" in entry]
        if by_time:
            points = _by_hours(points, run.train)
        curves.append(_series(name, points))
    return curves


def _by_hours(
    points: Sequence[tuple[float, float]], train: Sequence[Mapping[str, float]]
) -> list[tuple[float, float]]:
    """Points by hours in place of updates: between two records of training the hours grow evenly."""
    known = sorted(
        {entry["update"]: entry["seconds"] / _HOUR for entry in train if "seconds" in entry}.items()
    )
    if not known:
        return []
    updates, hours = zip(*known, strict=True)
    return [
        (float(np.interp(update, updates, hours)), value)
        for update, value in points
        if updates[0] <= update <= updates[-1]
    ]


def _series(name: str, points: Sequence[tuple[float, float]]) -> Series:
    ordered = sorted(dict(points).items())
    return Series(name=name, x=tuple(x for x, _ in ordered), y=tuple(y for _, y in ordered))


_TYPE = ".type"

Settings = Mapping[str, str]
"""Of one run the values, as JSON text, by their dotted names."""


@dataclass(frozen=True)
class DifferingPart:
    """A part of runs that is not of one type in all of them, such as a connection: one of its types.

    Attributes:
        name: Of the part: ``model.decoder.connection``.
        type: Its type in some runs.
        settings: What else is set there: ``hidden glu, share gates``; settings without a value are left out.
        runs: Which runs these are, counted from 0.
    """

    name: str
    type: str
    settings: str
    runs: tuple[int, ...]


def differing(settings: Sequence[Settings]) -> dict[str, list[str | None]]:
    """The settings that are not the same in all runs: name, and for each run its value.

    A part that has another type in another run is one row with the types; ``differing_parts`` has the rest.
    """
    parts = _parts(settings)
    rows: dict[str, list[str | None]] = {}
    for name in _different(settings):
        part = _part_of(name, parts)
        if part is None:
            rows[name] = [_plain(values.get(name)) for values in settings]
        else:
            rows[part] = [_plain(values.get(part + _TYPE, values.get(part))) for values in settings]
    return rows


def differing_parts(settings: Sequence[Settings]) -> Iterator[DifferingPart]:
    """The parts that have another type in another run, once for each way in which they are set."""
    for name in _parts(settings):
        ways: dict[tuple[str, str], list[int]] = {}
        for place, values in enumerate(settings):
            if name + _TYPE in values:
                ways.setdefault((str(_plain(values[name + _TYPE])), _described(name, values)), []).append(
                    place
                )
        for (kind, text), places in ways.items():
            if text:
                yield DifferingPart(name, kind, text, tuple(places))


def _different(settings: Sequence[Settings]) -> list[str]:
    names = sorted({name for values in settings for name in values})
    return [name for name in names if len({values.get(name) for values in settings}) > 1]


def _parts(settings: Sequence[Settings]) -> list[str]:
    return [name.removesuffix(_TYPE) for name in _different(settings) if name.endswith(_TYPE)]


def _part_of(name: str, parts: Sequence[str]) -> str | None:
    return next((part for part in parts if name == part or name.startswith(f"{part}.")), None)


def _described(part: str, settings: Settings) -> str:
    return ", ".join(
        f"{name.removeprefix(f'{part}.')} {_plain(value)}"
        for name, value in settings.items()
        if name.startswith(f"{part}.") and name != part + _TYPE and value != "null"
    )


def _plain(text: str | None) -> str | None:
    return None if text is None else text.strip('"')
