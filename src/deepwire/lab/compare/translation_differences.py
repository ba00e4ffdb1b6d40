"""Translations of one test set by several models: scores, paired tests, and where they differ most."""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from deepwire.data.languages import Direction
from deepwire.decoding.model_loading import load
from deepwire.errors import LogFn
from deepwire.evaluation.comparison import PairedTest, ScoreReport, compare
from deepwire.evaluation.metric import Floats
from deepwire.evaluation.metric_choice import LanguageMetrics, language_of, make_metric
from deepwire.evaluation.significance import Comparison
from deepwire.evaluation.texts import Text, selected_targets
from deepwire.lab.report.finding import Cell, Table
from deepwire.lab.source_length import LengthUnit, text_lengths, unit_of
from deepwire.lab.subject.model_and_text import ParallelText

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
