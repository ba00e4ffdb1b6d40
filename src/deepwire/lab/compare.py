"""Any number of runs side by side: settings, learning curves, size, speed, scores with tests, examples."""

from __future__ import annotations

import json
import math
import statistics
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from deepwire.checkpoint.model_files import digest
from deepwire.checkpoint.model_path import find_model
from deepwire.checkpoint.store import STATE, VOCABULARY, parameter_count, read_config, read_metadata
from deepwire.config.counts import counted
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
from deepwire.evaluation.texts import Text, selected_targets, target_language
from deepwire.io.regular_files import read_json
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
from deepwire.lab.subject import (
    ParallelText,
    model_source,
    read_documents,
    read_pairs,
    refuse_source,
    run_of,
    text_of_model,
)
from deepwire.training.log import read_records

METRICS = ("bleu", "chrf")
_HOUR = 3600.0
_IGNORED = ("run", "recipe.", "data.prepared")
_MEASURED = (
    "Settings, sizes and learning curves are what the runs recorded; training speed is their median. Tokens, "
    "hours and validation perplexity are those of the model's own update; curves and speed are of whole runs."
)
_DIFFERENCES = (
    "Differences are to {first}, tested by {test}; p is two-sided and not corrected for the number of models."
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
    paired: PairedTest
    source: Path | None = None
    reference: Path | None = None
    sentences: int | None = None
    direction: Direction | None = None
    examples: int = 10
    translate: bool = True
    device: str = "auto"
    precision: str = "auto"


@dataclass(frozen=True)
class _Results:
    """The results of the models on a text: parts of a finding, all empty where they read none.

    `speeds` are in sentences a second; `read` is the text, for the provenance.
    """

    measured: str = ""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()
    read: Sequence[str] = ()
    speeds: Sequence[float] = ()


def compare_runs(request: ComparisonRequest, tell: LogFn) -> Finding:
    """Compare runs; `tell` receives progress and warnings, one line each.

    Raises:
        UsageError: There are fewer than two runs, or there is no test set or no such device.
        ModelError, DataError: A run, model or text is missing or damaged.
    """
    request.paired.check(len(request.models))
    runs = [read_run(name) for name in request.models]
    last_parts = [Path(name).name for name in request.models]
    names = last_parts if len(set(last_parts)) == len(runs) else request.models
    if not request.translate:
        results = _Results()
    elif _language_models(request.models):
        results = _perplexities(request, names, tell)
    else:
        results = _translations(request, names, tell)
    notes = list(results.notes)
    if len({run.vocabulary for run in runs}) > 1:
        notes.append(
            "The runs have different vocabularies: their losses and perplexities cannot be compared."
        )
    settings = differing([run.settings for run in runs])
    columns = ["setting", *(Column(name=name) for name in names)]
    rows = [(key, *values) for key, values in settings.items()]
    return Finding(
        analysis="compare",
        title=f"{len(runs)} runs side by side: {', '.join(names)}",
        measured=f"{_MEASURED}{results.measured}",
        tables=[
            _overview(runs, names, results.speeds),
            Table(title="Settings that differ", columns=columns, rows=rows),
            *results.tables,
        ],
        figures=[*results.figures, *learning_curves(runs, names)],
        notes=notes,
        provenance=provenance([run.source for run in runs], results.read),
    )


@dataclass(frozen=True)
class ComparedRun:
    """A run, or a model without one.

    Attributes:
        source: The model it stands for.
        settings: Every setting by its dotted name, as JSON text; of the model section only without a run.
        train: What training logged, in the order of updates.
        valid: What validations logged.
        parameters: Numbers in the model, shared ones once.
        vocabulary: Digests of the files of its vocabularies.
        reached: What holds for the model, not for the end of its run: ``target_tokens`` and ``seconds`` of
            training, ``perplexity`` on the validation set; without those that nobody recorded.
    """

    source: ModelSource
    settings: Mapping[str, str]
    train: Sequence[Mapping[str, float]]
    valid: Sequence[Mapping[str, float]]
    parameters: int
    vocabulary: tuple[str, ...]
    reached: Mapping[str, float]


def read_run(name: str) -> ComparedRun:
    """Read a run.

    Raises:
        ModelError: There is no such run or model, or its files are damaged.
        DataError: What training logged is damaged.
    """
    source, run, folder = model_source(name), run_of(name), find_model(name)
    entries = [] if run is None else read_records(run.metrics)
    train, valid = (
        [_numbers(entry) for entry in entries if entry.get("kind") == kind] for kind in ("train", "valid")
    )
    settings: object = {"model": read_config(folder).get("model")}
    if run is not None and run.resolved_config.exists():
        settings = read_json(run.resolved_config)
    return ComparedRun(
        source=source,
        settings=flat(settings),
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
        scores = state.get("scores")
        return _numbers(state) | (_numbers(scores) if isinstance(scores, dict) else {})
    metadata = read_metadata(folder)
    validated = [] if "average_of" in metadata else valid  # nobody has scored an average
    logged = [entry for entry in (*train, *validated) if entry.get("update") == metadata.get("update")]
    return {name: value for entry in logged for name, value in entry.items()}


def _numbers(entry: Mapping[str, object]) -> dict[str, float]:
    return {
        name: float(value)
        for name, value in entry.items()
        if isinstance(value, int | float) and not isinstance(value, bool)
    }


def flat(settings: object, name: str = "") -> dict[str, str]:
    """Nested settings as dotted names with JSON values; lists that hold mappings are numbered."""
    if isinstance(settings, dict) and settings:
        parts = [(f"{name}.{key}" if name else str(key), value) for key, value in settings.items()]
    elif isinstance(settings, list) and any(isinstance(item, dict) for item in settings):
        parts = [(f"{name}.{number}", value) for number, value in enumerate(settings)]
    else:
        return {name: json.dumps(settings, ensure_ascii=False)}
    return {key: text for part, value in parts for key, text in flat(value, part).items()}


def differing(settings: Sequence[Mapping[str, str]]) -> dict[str, list[str | None]]:
    """The settings that are not the same in all runs: the value in each, None where a run has none."""
    names = sorted({name for values in settings for name in values if not name.startswith(_IGNORED)})
    rows = {name: [values.get(name) for values in settings] for name in names}
    return {
        name: [None if value is None else value.strip('"') for value in row]
        for name, row in rows.items()
        if len(set(row)) > 1
    }


def _overview(runs: Sequence[ComparedRun], names: Sequence[str], speeds: Sequence[float]) -> Table:
    columns = ["model", "parameters", "update", "tokens seen [millions] .2", "training [hours] .3"]
    columns += ["validation perplexity .3", "training [target tokens/s] .0"]
    rows: list[tuple[Cell, ...]] = []
    for name, run in zip(names, runs, strict=True):
        tokens, seconds = run.reached.get("target_tokens"), run.reached.get("seconds")
        speed = [entry["tokens_per_second"] for entry in run.train if "tokens_per_second" in entry]
        rows.append(
            (
                name,
                run.parameters,
                run.source.update,
                None if tokens is None else tokens / 1e6,
                None if seconds is None else seconds / _HOUR,
                run.reached.get("perplexity"),
                statistics.median(speed) if speed else None,
            )
        )
    if speeds:
        columns += ["translation [sentences/s] .1"]
        rows = [(*row, speed) for row, speed in zip(rows, speeds, strict=True)]
    return Table(title="Overview", columns=columns, rows=rows)


def learning_curves(runs: Sequence[ComparedRun], names: Sequence[str]) -> Iterator[Figure]:
    """Training loss, validation loss and validation BLEU; figures without a point are left out."""
    nats = "negative log-likelihood [nats/subword]"
    charts = (
        ("training", "Training loss", nats, "train", "nll"),
        ("validation", "Validation loss", nats, "valid", "nll"),
        ("validation-bleu", "Validation BLEU", "BLEU [%]", "valid", "bleu"),
    )
    for name, title, y, log, key in charts:
        curves = []
        for run_name, run in zip(names, runs, strict=True):
            logged = [entry for entry in getattr(run, log) if key in entry and "update" in entry]
            if points := dict(sorted((entry["update"], entry[key]) for entry in logged)):
                curves.append(Series(name=run_name, x=list(points), y=list(points.values())))
        if curves:
            yield LineChart(name=name, title=title, x="updates", y=y, series=curves)


def _translations(request: ComparisonRequest, names: Sequence[str], tell: LogFn) -> _Results:
    models, direction = request.models, request.direction
    pairs = read_pairs(models[0], request.source, request.reference, request.sentences, direction)
    targets = selected_targets(models, direction)
    texts, speeds = list[Text](), list[float]()
    for model, name, to in zip(models, names, targets, strict=True):
        translator = load(model, request.device, request.precision, warn=tell)
        begun = time.perf_counter()
        lines = translator.translate(pairs.source.lines, to=to or None)
        speeds.append(len(lines) / (time.perf_counter() - begun))
        tell(f"{name}: {counted(len(lines), 'line')}, {speeds[-1]:.1f} a second")
        texts.append(Text(name, lines, precision=translator.precision))
    metrics = LanguageMetrics(METRICS)
    chosen = metrics.of(target_language(models[0], direction) or language_of(pairs.reference))
    report = compare(texts, pairs.reference.references, chosen, request.paired)
    examples = example_table(texts, pairs, request.examples)
    return _Results(
        measured=" Scores are of the test set, translated now by one model after the other with the decoding "
        "settings of each; translation speed is of that pass, on a machine that may have had other work. "
        + _DIFFERENCES.format(first=names[0], test=request.paired.test),
        tables=[_score_table(report), *([examples] if examples.rows else [])],
        figures=[_scores(report)],
        notes=[
            *(f"{score.name}|{score.signature}" for score in report.systems[0].scores),
            *precisions(report),
            *metrics.notes,
            *report.warnings,
        ],
        read=[pairs.description],
        speeds=speeds,
    )


def _tested_cells(test: Comparison | None) -> list[Cell]:
    """Difference, its 95 % interval and p-value; empty cells without a test."""
    if test is None:
        return [None] * 4
    interval = test.difference_interval
    low, high = (interval.low, interval.high) if interval else (None, None)
    return [test.difference, low, high, test.p_value]


def _score_table(report: ScoreReport) -> Table:
    """Scores with the difference to the first model, its 95 % interval and p-value."""
    columns = ["model"]
    for score in report.systems[0].scores:
        columns += [f"{score.name} .2", f"{score.name} difference .2", "from .2", "to .2", "p .4"]
    rows = []
    for system in report.systems:
        cells: list[Cell] = [system.name]
        for place, score in enumerate(system.scores):
            cells += [score.value, *_tested_cells(system.comparisons[place] if system.comparisons else None)]
        rows.append(cells)
    return Table(title="Scores", columns=columns, rows=rows)


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


def example_table(texts: Sequence[Text], pairs: ParallelText, count: int) -> Table:
    """The sentences whose chrF differs most between two models, with all translations.

    A sentence on which all models have one score is never an example.
    """
    metric = make_metric("chrf")
    values = [metric.statistics(text.lines, pairs.reference.answers) for text in texts]
    scores = np.stack([metric.sentence_values(each) for each in values])
    spread = scores.max(axis=0) - scores.min(axis=0)
    rows: list[tuple[int, str, float | None, str]] = []
    for place in map(int, np.argsort(-spread, kind="stable")[:count]):
        if spread[place] > 0:
            rows.append((place + 1, "source", None, pairs.source.lines[place]))
            rows += [(place + 1, "reference", None, lines[place]) for lines in pairs.reference.answers]
            rows += [
                (place + 1, text.name, float(score), text.lines[place])
                for text, score in zip(texts, scores[:, place], strict=True)
            ]
    columns = ["line", "from", "chrF2 .1", "text"]
    return Table(title="Sentences whose translations differ most", columns=columns, rows=rows)


class BitsPerByte(Metric):
    """Bits per byte of documents, each with the statistics log-probability (in nats) and bytes."""

    name = "bits per byte"
    width = 2
    higher_is_better = False

    def values(self, totals: Floats) -> Floats:
        """Turn summed statistics `[..., 2]` into bits per byte `[...]`."""
        bits: Floats = -totals[..., 0] / totals[..., 1] / math.log(2)
        return bits

    def signature(self, references: int) -> str:
        """No setting changes it."""
        del references
        return "documents:alone"

    def _count(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
        raise NotImplementedError  # texts are scored by language models


def _language_models(models: Sequence[str]) -> bool:
    """Whether all of several models are language models; an error where one text cannot be for all."""
    units = {name: text_of_model(name) for name in models}
    if all(unit is None for unit in units.values()):
        return False
    if None in units.values():
        raise ModelError("some are language models, and others translate", "compare models of one task")
    if len(set(units.values())) > 1:
        told = ", ".join(f"{name} {unit}" for name, unit in units.items())
        raise UsageError(f"data.text.unit differs ({told}): no text has the same documents for all")
    return True


def _perplexities(request: ComparisonRequest, names: Sequence[str], tell: LogFn) -> _Results:
    """The text read by each language model, each document on its own, in windows of the block of training."""
    refuse_source(request.source, request.direction)
    description, documents = read_documents(request.models[0], request.reference, request.sentences)
    rows, tests, counts, notes = list[list[Cell]](), list[Comparison](), list[Floats](), list[str]()
    for model, name in zip(request.models, names, strict=True):
        loaded = load_models([model], request.device, request.precision, {})
        assert loaded.text is not None, "the models were looked at before"
        scorer = text_scorer(translator_of(loaded, warn=tell), loaded.text)
        each = list(scorer.scores(documents))
        whole = sum(each, TextScore())
        tell(f"{name}: {counted(len(each), 'document')}, {counted(whole.tokens, 'token')}")
        notes.append(f"{name}: read in {loaded.precision}")
        counts.append(np.array([[score.log_probability, score.bytes] for score in each], dtype=np.float64))
        test = None
        if rows:
            (test,) = paired_comparison([BitsPerByte()], [counts[0]], [counts[-1]], request.paired)
            tests.append(test)
        perplexities = whole.perplexity, whole.word_perplexity, whole.byte_perplexity
        rows.append([name, whole.tokens, *perplexities, whole.bits_per_byte, *_tested_cells(test)])
    columns = ["model", "tokens", "perplexity [per token] .2", "perplexity [per word] .1"]
    columns += ["perplexity [per byte] .4", "bits per byte .4", "difference .4", "from .4", "to .4", "p .4"]
    low, high = bounds(tests)
    bars = Series(name="bits per byte", y=[row[5] for row in rows], low=low, high=high)
    return _Results(
        measured=" Perplexities are of the text, read now by one model after the other, each document on its "
        "own, in windows of the block of training. Words are what stands between spaces, bytes those of the "
        "file. Lower is better. Per token it depends on the vocabulary; per word and per byte it does not. "
        + _DIFFERENCES.format(first=names[0], test=request.paired.test),
        tables=[Table(title="Perplexity", columns=columns, rows=rows)],
        figures=[
            BarChart(
                name="scores",
                title="Bits per byte",
                caption="With the 95 % interval of each, where the test gives one.",
                x="model",
                y="cross-entropy [bits/byte]",
                categories=names,
                series=[bars],
            )
        ],
        notes=[*notes, *few_sentences(request.paired, len(counts[0]), "documents")],
        read=[description],
    )
