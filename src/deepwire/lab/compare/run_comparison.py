"""Any number of runs side by side: settings, learning curves, size, speed, scores, examples."""

from __future__ import annotations

import os
import shlex
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from deepwire.data.languages import Direction
from deepwire.errors import Tell, UsageError
from deepwire.evaluation.comparison import PairedTest, ScoreReport, precisions
from deepwire.evaluation.significance import bounds
from deepwire.evaluation.texts import target_language
from deepwire.lab.compare.compared_run import (
    ComparedRun,
    differing,
    differing_parts,
    learning_curves,
    read_run,
)
from deepwire.lab.compare.perplexity_comparison import (
    document_table,
    language_models,
    perplexity_chart,
    perplexity_notes,
    perplexity_table,
    read_by_all,
)
from deepwire.lab.compare.translation_differences import (
    DecodingPlace,
    RunTranslation,
    example_table,
    score_all,
    score_table,
    translate_all,
    verdicts,
    waiting,
)
from deepwire.lab.report.finding import (
    Axis,
    BarChart,
    Cell,
    Column,
    Figure,
    Finding,
    Series,
    Table,
    provenance,
)
from deepwire.lab.subject.document_text import read_documents, refuse_source
from deepwire.lab.subject.model_and_text import ParallelText, read_pairs

_IGNORED = ("run", "recipe.", "data.prepared")
_HOUR = 3600.0
_ALL_THE_SAME = "All translations of all models are the same."
_MEASURED = (
    "Settings, sizes and learning curves are what the runs recorded; training speed is their median. Tokens, "
    "hours and validation perplexity are those of the model's own update; curves and speed are of whole runs."
)


@dataclass(frozen=True)
class ComparisonRequest:
    """What to compare, and how.

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

    def pairs(self) -> ParallelText:
        """The test set."""
        return read_pairs(self.models[0], self.source, self.reference, self.sentences, self.direction)


def compare_runs(request: ComparisonRequest, tell: Tell) -> Finding:
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
        tables=(
            _overview(runs, names),
            _speeds(runs, names, results.translations),
            *results.tables,
            *settings,
            *results.examples,
        ),
        figures=(*results.figures, *learning_curves(runs, names)),
        notes=(
            *results.notes,
            *_notes(runs, names),
            *([] if settings else ["All settings are the same."]),
            *results.same,
        ),
        provenance=provenance([run.source for run in runs], results.read),
    )


@dataclass(frozen=True)
class _Results:
    """What the models made of a text: parts of a finding, all empty where they read none.

    Attributes:
        measured: How, behind what is said of the runs.
        tables, figures, notes: Scores and tests.
        examples: A table of sentences or documents, or none.
        same: A note where there is no example to show.
        read: The text, for the provenance.
        translations: Those of which speeds are shown.
    """

    measured: str = ""
    tables: Sequence[Table] = ()
    figures: Sequence[Figure] = ()
    notes: Sequence[str] = ()
    examples: Sequence[Table] = ()
    same: Sequence[str] = ()
    read: Sequence[str] = ()
    translations: Sequence[RunTranslation] = ()


def _translations(request: ComparisonRequest, names: Sequence[str], tell: Tell) -> _Results:
    """The test set translated by each model."""
    pairs = request.pairs()
    where = DecodingPlace(request.device, request.precision, request.direction)
    translations = translate_all(request.models, names, pairs, where, tell)
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
            *verdicts(report),
            *waiting(translations),
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


def _perplexities(request: ComparisonRequest, names: Sequence[str], tell: Tell) -> _Results:
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
    different = tuple((key, *values) for key, values in differing(settings).items())
    if different:
        yield Table(
            title="Settings that differ",
            columns=(Column(name="setting"), *(Column(name=name) for name in names)),
            rows=different,
        )
    rows = tuple(
        (part.name, part.type, ", ".join(names[place] for place in part.runs), part.settings)
        for part in differing_parts(settings)
    )
    if rows:
        heads = ("part", "type", "in", "settings")
        yield Table(
            title="Settings of the parts that differ",
            columns=tuple(Column(name=head) for head in heads),
            rows=rows,
        )


def _overview(runs: Sequence[ComparedRun], names: Sequence[str]) -> Table:
    columns = (
        Column(name="model"),
        Column(name="parameters"),
        Column(name="update"),
        Column(name="tokens seen", unit="millions", digits=2),
        Column(name="training", unit="hours", digits=3),
        Column(name="validation perplexity", digits=3),
    )
    rows = tuple(
        (
            name,
            run.parameters,
            run.source.update,
            _scaled(run.reached.get("target_tokens"), 1e6),
            _scaled(run.reached.get("seconds"), _HOUR),
            run.reached.get("perplexity"),
        )
        for run, name in zip(runs, names, strict=True)
    )
    return Table(title="Overview", columns=columns, rows=rows)


def _speeds(
    runs: Sequence[ComparedRun], names: Sequence[str], translations: Sequence[RunTranslation]
) -> Table:
    columns = [Column(name="model"), Column(name="training", unit="target tokens/s", digits=0)]
    if translations:
        columns += [
            Column(name="translation", unit="sentences/s", digits=1),
            Column(name="translation", unit=f"{translations[0].unit}/s", digits=0),
        ]
    rows = []
    for place, (run, name) in enumerate(zip(runs, names, strict=True)):
        cells: list[Cell] = [name, run.typical("tokens_per_second")]
        if translations:
            translation = translations[place]
            cells += [
                len(translation.text.lines) / translation.seconds,
                translation.length / translation.seconds,
            ]
        rows.append(tuple(cells))
    return Table(title="Speed", columns=tuple(columns), rows=tuple(rows))


def _scores(report: ScoreReport) -> Figure:
    names = [score.name for score in report.systems[0].scores]
    return BarChart(
        name="scores",
        title="Scores",
        caption="With the 95 % interval of each score, where the test gives one.",
        x=Axis(label="model"),
        y=Axis(label="score", unit="%"),
        categories=tuple(system.name for system in report.systems),
        series=tuple(
            Series(
                name=name,
                y=tuple(system.scores[place].value for system in report.systems),
                low=low,
                high=high,
            )
            for place, name in enumerate(names)
            for low, high in [bounds([system.comparisons[place] for system in report.systems[1:]])]
        ),
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
