"""Scores of translations and models from Python, and tests of their differences."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from os import PathLike, fspath
from pathlib import Path
from typing import TypeAlias

from deepwire.data.languages import Direction
from deepwire.decoding.translator import Translator
from deepwire.errors import ModelError, UsageError
from deepwire.evaluation import model_translations
from deepwire.evaluation.comparison import PairedTest, ScoreReport
from deepwire.evaluation.comparison import compare as compare_texts
from deepwire.evaluation.metric import Score, check_line_counts
from deepwire.evaluation.model_translations import SearchSettings, target_language
from deepwire.evaluation.multilingual.directed_texts import texts_of_run
from deepwire.evaluation.multilingual.parse_direction import parse_direction
from deepwire.evaluation.significance import DEFAULT_SEED
from deepwire.evaluation.texts import Text, read_text
from deepwire.evaluation.tokenizers import LanguageMetrics, language_of
from deepwire.model.decoder_state import DecoderState

Lines: TypeAlias = str | PathLike[str] | Sequence[str]
"""A text: the path of a file, or a list of its lines."""
System: TypeAlias = Lines | Translator[DecoderState]
"""What is scored: a text, a model that was loaded, or the name of one (a run directory, `RUN@avg5`)."""


@dataclass(frozen=True)
class EvaluationSettings:
    """How models translate, and how texts are scored.

    Attributes:
        metrics: The metrics, in the tokenization of each language.
        language: The language of the references; empty where nobody named it.
        direction: Such as ``de-en``, for models of several directions.
        search: How models that are given by name translate.
    """

    metrics: LanguageMetrics
    language: str
    direction: Direction | None
    search: SearchSettings


def evaluate(
    system: System,
    reference: Lines | tuple[Lines, ...] | None = None,
    *,
    source: Lines | None = None,
    metrics: str | Sequence[str] = "bleu",
    tokenize: str | None = None,
    language: str = "",
    direction: str | None = None,
    decoding: Mapping[str, object] | None = None,
    device: str = "auto",
    precision: str = "auto",
) -> dict[str, Score]:
    """Score translations, or a model that translates `source`: each metric with its value and signature.

    Args:
        system: What is scored; a name that is no file is that of a model.
        reference: The correct translation; a tuple holds several. Default: that of the test set of the run.
        source: What a model translates; default: the test set of the run, ``data.test``.
        metrics: bleu, chrf, chrf++, ter, multi-bleu.
        tokenize: Tokenizer of BLEU; default: that of the target language, see docs/evaluation.md.
        language: The language of the references, such as ``ja``. Default: that of `direction` or of the
            model, else what the ending of the reference's file name says.
        direction: Such as ``de-en``, for models of several directions.
        decoding: Decoding settings that replace the model's own: ``{"beam": 8}``.
        device, precision: As in `deepwire.load`.

    Raises:
        UsageError: A setting is wrong, or there is no reference.
        DataError: A text cannot be read, or the numbers of lines differ.
        ModelError: There is no such model, or it is damaged.
    """
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    settings = _settings(names, tokenize, language, direction, decoding, device, precision)
    (result,) = _scored({_name(system, 1): system}, reference, source, settings, None).systems
    return dict(zip(names, result.scores, strict=True))


def compare(
    systems: Mapping[str, System] | Sequence[System],
    reference: Lines | tuple[Lines, ...] | None = None,
    *,
    source: Lines | None = None,
    test: str = "bootstrap",
    baseline: int = 0,
    samples: int | None = None,
    seed: int = DEFAULT_SEED,
    metrics: str | Sequence[str] = "bleu",
    tokenize: str | None = None,
    language: str = "",
    direction: str | None = None,
    decoding: Mapping[str, object] | None = None,
    device: str = "auto",
    precision: str = "auto",
) -> ScoreReport:
    """Score systems on one text and test the difference of each to the baseline.

    Args:
        systems: At least two, by name if they are to have one; each as in `evaluate`.
        reference, source, metrics, tokenize, language, direction: As in `evaluate`.
        decoding, device, precision: As in `evaluate`.
        test: ``bootstrap`` (Koehn 2004) or ``randomization`` (Riezler and Maxwell 2005).
        baseline: Position of the system that the others are compared with.
        samples: Resamples (default 1000) or shuffles (default 10000).
        seed: Of the random numbers of the test.

    Raises:
        UsageError, DataError, ModelError: As in `evaluate`.
    """
    if not isinstance(systems, Mapping):
        systems = {_name(system, number): system for number, system in enumerate(systems, 1)}
    if not 0 <= baseline < max(1, len(systems)):
        raise UsageError(f"baseline: there is no system {baseline}; they count from 0")
    paired = PairedTest(test, baseline, samples, seed)
    paired.check(len(systems))
    names = [metrics] if isinstance(metrics, str) else list(metrics)
    settings = _settings(names, tokenize, language, direction, decoding, device, precision)
    return _scored(systems, reference, source, settings, paired)


def _settings(
    metrics: Sequence[str],
    tokenize: str | None,
    language: str,
    direction: str | None,
    decoding: Mapping[str, object] | None,
    device: str,
    precision: str,
) -> EvaluationSettings:
    way = None if direction is None else parse_direction(direction)
    search = SearchSettings(decoding or {}, device, precision, direction=way)
    scoring = LanguageMetrics(metrics, {} if tokenize is None else {"": tokenize})
    into = language or ("" if way is None else way.target)
    scoring.of(into)  # an unknown one is named before anything is read
    return EvaluationSettings(scoring, into, way, search)


def _name(system: System, number: int) -> str:
    return fspath(system) if isinstance(system, str | PathLike) else f"system {number}"


def _scored(
    systems: Mapping[str, System],
    reference: Lines | tuple[Lines, ...] | None,
    source: Lines | None,
    settings: EvaluationSettings,
    paired: PairedTest | None,
) -> ScoreReport:
    texts: dict[str, Text] = {}
    models: dict[str, str | Translator[DecoderState]] = {}
    for name, system in systems.items():
        if isinstance(system, Translator):
            models[name] = system
        elif isinstance(system, str | PathLike) and not Path(system).is_file():
            models[name] = _model_name(fspath(system), settings.direction)
        else:
            texts[name] = Text(name, _text(system, name).lines)
    references = [] if reference is None else [_text(*each) for each in _named_references(reference)]
    if models:
        text, answer = _source(models, source, settings)
        references = references or ([] if answer is None else list(answer.references))
        check_line_counts([(each.name, each.lines) for each in (text, *texts.values(), *references)])
    if not references:
        raise UsageError("there is no reference", "give reference=")
    for name, model in models.items():
        texts[name] = Text(name, _translated(model, text, settings))
    metrics = settings.metrics.of(settings.language or _target(models) or language_of(references[0]))
    report = compare_texts([texts[name] for name in systems], references, metrics, paired)
    for warning in (*settings.metrics.notes, *report.warnings):
        _warn()(warning)
    return report


def _model_name(name: str, direction: Direction | None) -> str:
    """The name of a model that is there and has the direction: a mistake must not show up after an hour."""
    if not Path(name.rpartition("@")[0] or name).exists() and not Path(name).exists():
        raise ModelError(
            f"{name}: no such file and no such model",
            "give the path of a text, a run directory, RUN@last, RUN@avg5 or a model directory",
        )
    model_translations.selected_target(name, direction)
    return name


def _target(models: Mapping[str, str | Translator[DecoderState]]) -> str:
    """The language that the first model translates into, where one is named; of one direction only."""
    for model in models.values():
        name = model if isinstance(model, str) else next(iter(getattr(model, "names", ())), None)
        if name is not None:
            return target_language(name)
    return ""


def _named_references(reference: Lines | tuple[Lines, ...]) -> list[tuple[Lines, str]]:
    several = reference if isinstance(reference, tuple) else (reference,)
    return [(each, f"reference {number}") for number, each in enumerate(several, 1)]


def _text(text: Lines, name: str) -> Text:
    if isinstance(text, str | PathLike):
        return read_text(Path(text))
    lines = list(text)
    if not all(isinstance(line, str) for line in lines):
        raise UsageError(f"{name}: must be the path of a file or a list of lines")
    return Text(name, lines)


def _source(
    models: Mapping[str, str | Translator[DecoderState]], source: Lines | None, settings: EvaluationSettings
) -> tuple[Text, Text | None]:
    """What the models translate, and the reference that comes with it, if any."""
    if source is not None:
        return _text(source, "source"), None
    first = next((model for model in models.values() if isinstance(model, str)), None)
    if first is None:
        raise UsageError("there is no source for the model to translate", "give source= and reference=")
    stored = None if settings.direction is None else texts_of_run(first, "test").read(settings.direction)
    return stored or model_translations.test_set(first)


def _translated(
    model: str | Translator[DecoderState], source: Text, settings: EvaluationSettings
) -> list[str]:
    if isinstance(model, str):
        return model_translations.translate(model, source, settings.search, _warn()).lines
    way = settings.direction
    return model.translate(source.lines, to=None if way is None else way.target)


def _warn() -> Callable[[str], None]:
    return logging.getLogger("deepwire").warning
