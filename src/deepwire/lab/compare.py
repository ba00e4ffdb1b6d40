"""Any number of runs side by side: settings, learning curves, size, speed, scores, examples."""

from __future__ import annotations

import json
import math
import os
import shlex
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from deepwire.checkpoint.model_files import digest
from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import STATE, VOCABULARY, parameter_count, read_config, read_metadata
from deepwire.data.languages import Direction
from deepwire.decoding.language_model import TextScore, text_scorer
from deepwire.decoding.model_loading import load, load_models, translator_of
from deepwire.errors import LogFn, ModelError, UsageError
from deepwire.evaluation.comparison import (
    PairedTest,
    ScoreReport,
    compare,
    few_sentences,
    paired_comparison,
    precisions,
)
from deepwire.evaluation.metric import Floats, Metric
from deepwire.evaluation.metric_choice import LanguageMetrics, language_of, make_metric
from deepwire.evaluation.significance import Comparison, bounds
from deepwire.evaluation.texts import RESOLVED_CONFIG, Text, selected_targets, target_language
from deepwire.io.regular_files import read_json, read_regular
from deepwire.lab.finding import (
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
from deepwire.lab.source_length import LengthUnit, text_lengths, unit_of
from deepwire.lab.subject import (
    DocumentText,
    ParallelText,
    model_source,
    read_documents,
    read_pairs,
    refuse_source,
    run_of,
    text_of_model,
)
from deepwire.training.log import read_records


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
    entries = [] if run is None else [_numbers(entry) for entry in read_records(run.metrics)]
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


METRICS = ("bleu", "chrf")


@dataclass(frozen=True)
class RunTranslation:
    """The translation of the test set by a model: lines, seconds without loading, and length in `unit`s."""

    text: Text
    seconds: float
    length: int
    unit: LengthUnit


def translate_all(
    models: Sequence[str],
    names: Sequence[str],
    pairs: ParallelText,
    device: str,
    precision: str,
    direction: Direction | None,
    tell: LogFn,
) -> list[RunTranslation]:
    """Translate the test set with each model, one after the other.

    Raises:
        ModelError, UsageError, ResourceError: A model cannot be loaded, or does not have the direction.
    """
    targets = selected_targets(models, direction)
    translated, unit = [], unit_of(pairs.reference.lines)
    for model, name, to in zip(models, names, targets, strict=True):
        translator = load(model, device, precision, warn=tell)
        begun = time.perf_counter()
        lines = translator.translate(pairs.source.lines, to=to or None)
        seconds = time.perf_counter() - begun
        tell(f"{name}: {len(lines):,} lines in {seconds:.1f} s")
        text = Text(name, lines, precision=translator.precision)
        translated.append(RunTranslation(text, seconds, sum(text_lengths(lines, unit)), unit))
    return translated


def score_all(
    translations: Sequence[RunTranslation], pairs: ParallelText, test: PairedTest | None, language: str = ""
) -> tuple[ScoreReport, list[str]]:
    """BLEU, with the tokenizer of the language, and chrF; each tested against the first.

    Without a `language` it is what the name of the reference says.

    Returns:
        The scores, and why a metric counts in a way that the reader may not expect, one line each.

    Raises:
        UsageError: The test is unknown.
    """
    metrics = LanguageMetrics(METRICS)
    chosen = metrics.of(language or language_of(pairs.reference))
    paired = test if len(translations) > 1 else None
    texts = [translation.text for translation in translations]
    return compare(texts, pairs.reference.references, chosen, paired), metrics.notes


def tested_cells(test: Comparison | None) -> list[Cell]:
    """Difference, its 95 % interval and p-value; empty cells without a test."""
    if test is None:
        return [None] * 4
    interval = test.difference_interval
    low, high = (interval.low, interval.high) if interval else (None, None)
    return [test.difference, low, high, test.p_value]


def score_table(report: ScoreReport) -> Table:
    """Scores with the difference to the first model, its 95 % interval and p-value."""
    columns = ["model"]
    for score in report.systems[0].scores:
        columns += [f"{score.name} .2", f"{score.name} difference .2", "from .2", "to .2", "p .4"]
    rows = []
    for system in report.systems:
        cells: list[Cell] = [system.name]
        for place, score in enumerate(system.scores):
            cells += [score.value, *tested_cells(system.comparisons[place] if system.comparisons else None)]
        rows.append(cells)
    return Table(title="Scores", columns=columns, rows=rows)


def most_different(values: Floats, count: int) -> list[int]:
    """The columns of `values` `[models, N]` that differ most; none in which all models have one value."""
    spread = values.max(axis=0) - values.min(axis=0)
    return [int(place) for place in np.argsort(-spread, kind="stable")[:count] if spread[place] > 0]


def example_table(translations: Sequence[RunTranslation], pairs: ParallelText, count: int) -> Table:
    """The sentences whose chrF differs most between two models, with all translations.

    A sentence on which all models agree to the letter is never an example.
    """
    metric = make_metric("chrf")
    statistics = [
        metric.statistics(translation.text.lines, pairs.reference.answers) for translation in translations
    ]
    scores = np.stack([metric.sentence_values(each) for each in statistics])
    rows: list[tuple[int, str, float | None, str]] = []
    for place in most_different(scores, count):
        rows.append((place + 1, "source", None, pairs.source.lines[place]))
        rows += [(place + 1, "reference", None, lines[place]) for lines in pairs.reference.answers]
        for number, translation in enumerate(translations):
            text, score = translation.text, float(scores[number, place])
            rows.append((place + 1, text.name, score, text.lines[place]))
    columns = ["line", "from", "chrF2 .1", "text"]
    return Table(title="Sentences whose translations differ most", columns=columns, rows=rows)


_SHOWN = 80


@dataclass(frozen=True)
class ModelPerplexity:
    """The scores of the documents of a text with a model.

    `comparison` is in bits per byte with the first model, which has none itself.
    """

    name: str
    each: Sequence[TextScore]
    comparison: Comparison | None = None
    precision: str = ""

    @property
    def score(self) -> TextScore:
        """The score of all documents."""
        return sum(self.each, TextScore())

    @property
    def counts(self) -> Floats:
        """Log-probability in nats and bytes of each document, `[N, 2]`."""
        return np.array([[score.log_probability, score.bytes] for score in self.each], dtype=np.float64)


class BitsPerByte(Metric):
    """Bits per byte of documents, each with the statistics log-probability (in nats) and bytes."""

    name = "bits per byte"
    width = 2
    higher_is_better = False

    def values(self, totals: Floats) -> Floats:
        """Turn summed statistics `[..., 2]` into bits per byte `[...]`."""
        bits: Floats = -totals[..., 0] / totals[..., 1] / math.log(2)
        return bits

    def sentence_values(self, statistics: Floats) -> Floats:
        """Bits per byte of each document, `[N]`."""
        return self.values(statistics)

    def signature(self, references: int) -> str:
        """No setting changes it."""
        del references
        return "documents:alone"

    def _count(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
        del hypotheses, references
        raise UsageError("bits per byte are those of a language model, not of two texts")


def language_models(models: Sequence[str]) -> bool:
    """Whether all of several models are language models, and not all of them translate.

    Raises:
        ModelError: Some are, and others translate; or there is no such model.
        UsageError: The documents of some have one line, those of others several.
    """
    texts = {name: text_of_model(name) for name in models}
    if all(text is None for text in texts.values()):
        return False
    if None in texts.values():
        first = next(name for name, text in texts.items() if text is not None)
        other = next(name for name, text in texts.items() if text is None)
        raise ModelError(
            f"{first}: is a language model, and {other} translates", "compare models of one task"
        )
    if len(set(texts.values())) > 1:
        units = ", ".join(f"{name} {unit}" for name, unit in texts.items())
        raise UsageError(
            f"data.text.unit differs ({units}): no text has the same documents for all",
            "compare models of one unit, or add --no-translation",
        )
    return True


def read_by_all(
    models: Sequence[str],
    names: Sequence[str],
    text: DocumentText,
    device: str,
    precision: str,
    paired: PairedTest,
    tell: LogFn,
) -> list[ModelPerplexity]:
    """Score each document with each model, and test each model against the first in bits per byte.

    Each document is read on its own, in windows of the block of training. `names` are for tables; device and
    precision are those of ``deepwire perplexity``.

    Raises:
        ModelError, UsageError, ResourceError: A model cannot be loaded, or there is no such device.
    """
    read = list[ModelPerplexity]()
    for model, name in zip(models, names, strict=True):
        loaded = load_models([model], device, precision, {})
        assert loaded.text is not None, "the models were looked at before"
        scorer = text_scorer(translator_of(loaded, warn=tell), loaded.text)
        perplexity = ModelPerplexity(name, list(scorer.scores(text.documents)), precision=loaded.precision)
        tell(f"{name}: {len(perplexity.each):,} documents, {perplexity.score.tokens:,} tokens")
        if read:
            (test,) = paired_comparison([BitsPerByte()], [read[0].counts], [perplexity.counts], paired)
            perplexity = replace(perplexity, comparison=test)
        read.append(perplexity)
    return read


def perplexity_table(read: Sequence[ModelPerplexity]) -> Table:
    """Perplexities, and bits per byte with the difference to the first model, its interval and p-value."""
    columns = ["model", "tokens", "perplexity [per token] .2", "perplexity [per word] .1"]
    columns += ["perplexity [per byte] .4", "bits per byte .4", "difference .4", "from .4", "to .4", "p .4"]
    rows = []
    for model in read:
        score = model.score
        perplexities = score.perplexity, score.word_perplexity, score.byte_perplexity
        tested = tested_cells(model.comparison)
        rows.append((model.name, score.tokens, *perplexities, score.bits_per_byte, *tested))
    return Table(title="Perplexity", columns=columns, rows=rows)


def perplexity_chart(read: Sequence[ModelPerplexity]) -> Figure:
    """Bits per byte of each model."""
    low, high = bounds([model.comparison for model in read if model.comparison is not None])
    values = [model.score.bits_per_byte for model in read]
    return BarChart(
        name="scores",
        caption="With the 95 % interval of each, where the test gives one.",
        title="Bits per byte",
        x="model",
        y="cross-entropy [bits/byte]",
        categories=[model.name for model in read],
        series=[Series(name="bits per byte", y=values, low=low, high=high)],
    )


def perplexity_notes(read: Sequence[ModelPerplexity], paired: PairedTest) -> Iterator[str]:
    """How to read the numbers, and what is odd about the tests."""
    yield from (f"{model.name}: read in {model.precision}" for model in read if model.precision)
    yield "Lower is better. Per token it depends on the vocabulary; per word and per byte it does not."
    yield from few_sentences(paired, len(read[0].each), "documents")


def document_table(read: Sequence[ModelPerplexity], text: DocumentText, count: int) -> Table:
    """The documents whose bits per byte differ most between two models; equal ones are left out."""
    values = np.stack([BitsPerByte().sentence_values(model.counts) for model in read])
    return Table(
        title="Documents whose bits per byte differ most",
        columns=["document", *(Column(name=model.name, digits=3) for model in read), "begins"],
        rows=[
            (place + 1, *values[:, place].tolist(), text.documents[place][0][:_SHOWN])
            for place in most_different(values, count)
        ],
    )
