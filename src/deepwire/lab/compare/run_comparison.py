"""Any number of runs side by side: settings, learning curves, size, speed, scores, examples."""

from __future__ import annotations

import json
import os
import shlex
import statistics
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np

from deepwire.checkpoint.model_files import digest
from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import STATE, VOCABULARY, parameter_count, read_config, read_metadata
from deepwire.data.languages import Direction
from deepwire.errors import LogFn, ModelError, UsageError
from deepwire.evaluation.comparison import PairedTest, ScoreReport, precisions
from deepwire.evaluation.significance import bounds
from deepwire.evaluation.texts import RESOLVED_CONFIG, target_language
from deepwire.io.regular_files import read_json, read_regular
from deepwire.lab.compare.perplexity_comparison import (
    document_table,
    language_models,
    perplexity_chart,
    perplexity_notes,
    perplexity_table,
    read_by_all,
)
from deepwire.lab.compare.translation_differences import (
    RunTranslation,
    example_table,
    score_all,
    score_table,
    translate_all,
)
from deepwire.lab.report.finding import (
    BarChart,
    Cell,
    Column,
    Figure,
    Finding,
    LineChart,
    ModelSource,
    Series,
    Table,
    provenance,
)
from deepwire.lab.subject.document_text import read_documents, refuse_source
from deepwire.lab.subject.model_and_text import model_source, read_pairs, run_of
from deepwire.training.log import read_records

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
    """The progress that a checkpoint has recorded; of a model without it, that logged at its update."""
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
    """Training loss, then validation by updates and by time; pictures without a point are left out."""
    nats, hours = "negative log-likelihood [nats/subword]", "training time [hours]"
    losses = [_points(run.valid, "nll") for run in runs]
    by_time = [_by_hours(points, run.train) for run, points in zip(runs, losses, strict=True)]
    charts = (
        ("training", "Training loss", "updates", nats, [_points(run.train, "nll") for run in runs]),
        ("validation", "Validation loss", "updates", nats, losses),
        ("validation-by-time", "Validation loss by training time", hours, nats, by_time),
        (
            "validation-bleu",
            "Validation BLEU",
            "updates",
            "BLEU [%]",
            [_points(run.valid, "bleu") for run in runs],
        ),
    )
    for name, title, x, y, of_runs in charts:
        curves = [
            Series(name=run_name, x=list(points), y=list(points.values()))
            for run_name, points in zip(names, of_runs, strict=True)
            if points
        ]
        if curves:
            yield LineChart(name=name, title=title, x=x, y=y, series=curves)


def _points(log: Sequence[Mapping[str, float]], key: str) -> dict[float, float]:
    """Logged values by update."""
    points = {entry["update"]: entry[key] for entry in log if key in entry and "update" in entry}
    return dict(sorted(points.items()))


def _by_hours(points: Mapping[float, float], train: Sequence[Mapping[str, float]]) -> dict[float, float]:
    """Points by hours in place of updates: between two records of training the hours grow evenly."""
    known = {entry["update"]: entry["seconds"] / _HOUR for entry in train if "seconds" in entry}
    if not known:
        return {}
    updates, hours = zip(*sorted(known.items()), strict=True)
    return {
        float(np.interp(update, updates, hours)): value
        for update, value in points.items()
        if updates[0] <= update <= updates[-1]
    }


_TYPE = ".type"

Settings = Mapping[str, str]
"""The values of one run, as JSON text, by their dotted names."""


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
        part = next((part for part in parts if name == part or name.startswith(f"{part}.")), None)
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
                way = str(_plain(values[name + _TYPE])), _described(name, values)
                ways.setdefault(way, []).append(place)
        for (kind, text), places in ways.items():
            if text:
                yield DifferingPart(name, kind, text, tuple(places))


def _different(settings: Sequence[Settings]) -> list[str]:
    names = sorted({name for values in settings for name in values})
    return [name for name in names if len({values.get(name) for values in settings}) > 1]


def _parts(settings: Sequence[Settings]) -> list[str]:
    return [name.removesuffix(_TYPE) for name in _different(settings) if name.endswith(_TYPE)]


def _described(part: str, settings: Settings) -> str:
    return ", ".join(
        f"{name.removeprefix(f'{part}.')} {_plain(value)}"
        for name, value in settings.items()
        if name.startswith(f"{part}.") and name != part + _TYPE and value != "null"
    )


def _plain(text: str | None) -> str | None:
    return None if text is None else text.strip('"')


_IGNORED = ("run", "recipe.", "data.prepared")
_ALL_THE_SAME = "All translations of all models are the same."
_MEASURED = (
    "Settings, sizes and learning curves are what the runs recorded; training speed is their median. Tokens, "
    "hours and validation perplexity are those of the model's own update; curves and speed are of whole runs."
)


@dataclass(frozen=True)
class ComparisonRequest:
    """The models and the text of a comparison, and how to compare.

    Attributes:
        models: Runs or models; the first is the baseline.
        source, reference: A test set; that of the first run when None. Language models read
            `reference` alone.
        sentences: Only so many of its pairs, or documents, from the beginning.
        direction: Where the runs have several: which one.
        paired: The test of the scores against the first.
        examples: How many sentences to show.
        translate: Translate, or read, at all; False shows settings, curves and sizes only.
        device, precision: Where models translate.
    """

    models: Sequence[str]
    source: Path | None = None
    reference: Path | None = None
    sentences: int | None = None
    direction: Direction | None = None
    paired: PairedTest = field(default_factory=lambda: PairedTest("bootstrap"))
    examples: int = 10
    translate: bool = True
    device: str = "auto"
    precision: str = "auto"


def compare_runs(request: ComparisonRequest, tell: LogFn) -> Finding:
    """Compare runs.

    Args:
        request: What to compare.
        tell: Receives progress and warnings, one line each.

    Raises:
        UsageError: There are fewer than two runs, or there is no test set or no such device.
        ModelError, DataError: A run, model or text is missing or damaged.
    """
    if len(request.models) < 2:
        command = shlex.join(["deepwire", "analyze", "compare", *request.models, "OTHER"])
        raise UsageError("a comparison needs two or more runs", f"name another: {command}")
    request.paired.check(len(request.models))
    runs = [read_run(name) for name in request.models]
    names = short_names(request.models)
    if not request.translate:
        results = _Results()
    elif language_models(request.models):
        results = _perplexities(request, names, tell)
    else:
        results = _translations(request, names, tell)
    settings = list(_differences(runs, names))
    return Finding(
        analysis="compare",
        title=f"{len(runs)} runs side by side: {', '.join(names)}",
        measured=f"{_MEASURED}{results.measured}",
        tables=[
            _overview(runs, names),
            _speeds(runs, names, results.translations),
            *results.tables,
            *settings,
            *results.examples,
        ],
        figures=[*results.figures, *learning_curves(runs, names)],
        notes=[
            *results.notes,
            *_notes(runs, names),
            *([] if settings else ["All settings are the same."]),
            *results.same,
        ],
        provenance=provenance([run.source for run in runs], results.read),
    )


@dataclass(frozen=True)
class _Results:
    """Results of the models on a text: parts of a finding, all empty where they read none.

    `same` is a note where there is no example to show; `read` is the text, for the provenance.
    """

    measured: str = ""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()
    examples: Sequence[Table] = ()
    same: Sequence[str] = ()
    read: Sequence[str] = ()
    translations: Sequence[RunTranslation] = ()


def _translations(request: ComparisonRequest, names: Sequence[str], tell: LogFn) -> _Results:
    """The test set translated by each model."""
    pairs = read_pairs(
        request.models[0], request.source, request.reference, request.sentences, request.direction
    )
    translations = translate_all(
        request.models, names, pairs, request.device, request.precision, request.direction, tell
    )
    into = target_language(request.models[0], request.direction)
    report, counting = score_all(translations, pairs, request.paired, into)
    examples = example_table(translations, pairs, request.examples)
    return _Results(
        measured=" Scores are of the test set, translated now by one model after the other with the decoding "
        "settings of each; translation speed is of that pass, on a machine that may have had other work. "
        f"Differences are to {names[0]}, tested by {request.paired.test} on the same sentences; p is "
        "two-sided and not corrected for the number of models.",
        tables=[score_table(report)],
        figures=[_scores(report)],
        notes=[
            *(f"{score.name}|{score.signature}" for score in report.systems[0].scores),
            *precisions(report),
            *counting,
            *report.warnings,
        ],
        examples=[examples] if examples.rows else [],
        same=[] if examples.rows or not request.examples else [_ALL_THE_SAME],
        read=[pairs.description],
        translations=translations,
    )


def _perplexities(request: ComparisonRequest, names: Sequence[str], tell: LogFn) -> _Results:
    """The text read by each language model."""
    refuse_source(request.source, request.direction)
    text = read_documents(request.models[0], request.reference, request.sentences)
    read = read_by_all(request.models, names, text, request.device, request.precision, request.paired, tell)
    examples = document_table(read, text, request.examples)
    return _Results(
        measured=" Perplexities are of the text, read now by one model after the other, each document on its "
        "own, in windows of the block of training. Words are what stands between spaces, bytes those of the "
        f"file. Differences are to {names[0]}, tested by {request.paired.test} on the same documents; p is "
        "two-sided and not corrected for the number of models.",
        tables=[perplexity_table(read)],
        figures=[perplexity_chart(read)],
        notes=list(perplexity_notes(read, request.paired)),
        examples=[examples] if examples.rows else [],
        read=[text.description],
    )


def short_names(names: Sequence[str]) -> list[str]:
    """The names without the folders that all of them share, as long as they stay different."""
    parents = [str(Path(name).parent) for name in names]
    if len(set(parents)) == 1 and len({Path(name).name for name in names}) == len(set(names)):
        return _numbered([Path(name).name for name in names])
    common = os.path.commonpath([Path(name).absolute() for name in names])
    return _numbered([os.path.relpath(Path(name).absolute(), common) for name in names])


def _numbered(names: Sequence[str]) -> list[str]:
    """Equal names told apart by their place."""
    return [name if names.count(name) == 1 else f"{name} ({place})" for place, name in enumerate(names, 1)]


def _differences(runs: Sequence[ComparedRun], names: Sequence[str]) -> Iterator[Table]:
    """The settings that differ, one a row; empty where a run does not have the setting."""
    settings = [
        {key: value for key, value in run.settings.items() if not key.startswith(_IGNORED)} for run in runs
    ]
    if different := differing(settings):
        yield Table(
            title="Settings that differ",
            columns=["setting", *(Column(name=name) for name in names)],
            rows=[(key, *values) for key, values in different.items()],
        )
    rows = [
        (part.name, part.type, ", ".join(names[place] for place in part.runs), part.settings)
        for part in differing_parts(settings)
    ]
    if rows:
        columns = ["part", "type", "in", "settings"]
        yield Table(title="Settings of the parts that differ", columns=columns, rows=rows)


def _overview(runs: Sequence[ComparedRun], names: Sequence[str]) -> Table:
    columns = ["model", "parameters", "update", "tokens seen [millions] .2", "training [hours] .3"]
    return Table(
        title="Overview",
        columns=[*columns, "validation perplexity .3"],
        rows=[
            (
                name,
                run.parameters,
                run.source.update,
                _scaled(run.reached.get("target_tokens"), 1e6),
                _scaled(run.reached.get("seconds"), _HOUR),
                run.reached.get("perplexity"),
            )
            for run, name in zip(runs, names, strict=True)
        ],
    )


def _speeds(
    runs: Sequence[ComparedRun], names: Sequence[str], translations: Sequence[RunTranslation]
) -> Table:
    columns = ["model", "training [target tokens/s] .0"]
    rows: list[tuple[Cell, ...]] = [
        (name, run.typical("tokens_per_second")) for run, name in zip(runs, names, strict=True)
    ]
    if translations:
        columns += ["translation [sentences/s] .1", f"translation [{translations[0].unit}/s] .0"]
        rows = [
            (*row, len(each.text.lines) / each.seconds, each.length / each.seconds)
            for row, each in zip(rows, translations, strict=True)
        ]
    return Table(title="Speed", columns=columns, rows=rows)


def _scores(report: ScoreReport) -> Figure:
    series = []
    for place, score in enumerate(report.systems[0].scores):
        low, high = bounds([system.comparisons[place] for system in report.systems[1:]])
        values = [system.scores[place].value for system in report.systems]
        series.append(Series(name=score.name, y=values, low=low, high=high))
    return BarChart(
        name="scores",
        title="Scores",
        caption="With the 95 % interval of each score, where the test gives one.",
        x="model",
        y="score [%]",
        categories=[system.name for system in report.systems],
        series=series,
    )


def _notes(runs: Sequence[ComparedRun], names: Sequence[str]) -> list[str]:
    notes = []
    for key, noun in (("seed", "seeds"), ("training.max_updates", "training budgets (training.max_updates)")):
        if len({run.settings.get(key) for run in runs if key in run.settings}) > 1:
            notes.append(f"The runs have different {noun}.")
    if len({run.vocabulary for run in runs}) > 1:
        notes.append(
            "The runs have different vocabularies: losses and perplexities count other subwords, and can be "
            "compared between runs of one vocabulary only."
        )
    without = [name for run, name in zip(runs, names, strict=True) if not run.train]
    if without:
        notes.append(f"No record of training for {', '.join(without)}: no learning curve.")
    return notes


def _scaled(value: float | None, unit: float) -> float | None:
    return None if value is None else value / unit
