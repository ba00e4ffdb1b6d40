"""Scores of translations and models from Python, and tests of their differences."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from os import PathLike, fspath
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias, cast

from deepwire.errors import LogFn, ModelError, UsageError
from deepwire.evaluation import texts as model_texts
from deepwire.evaluation.comparison import PairedTest, ScoreReport
from deepwire.evaluation.comparison import compare as compare_texts
from deepwire.evaluation.metric import Metric, Score, check_line_counts
from deepwire.evaluation.metric_choice import LanguageMetrics, language_of, metric_name
from deepwire.evaluation.significance import DEFAULT_SEED
from deepwire.evaluation.texts import SearchSettings, Text, parse_direction, read_text, texts_of_run

if TYPE_CHECKING:  # torch, which scores of texts do not need
    from deepwire.decoding.translator import Translator

Lines: TypeAlias = str | PathLike[str] | Sequence[str]
"""A text: the path of a file, or a list of its lines."""
System: TypeAlias = "Lines | Translator"
"""A system to score: a text, a model that was loaded, or the name of one (a run directory, `RUN@avg5`)."""
ReadSystem: TypeAlias = "Text | str | Translator"
"""A system whose text was read, or a model or the name of one."""


@dataclass(frozen=True)
class EvaluationSettings:
    """How models translate, and how texts are scored.

    Attributes:
        metrics: The metrics, in the tokenization of each language.
        language: The language of the references; empty where nobody named it.
        search: How models that are given by name translate; its direction is that of loaded ones too.
    """

    metrics: LanguageMetrics
    language: str
    search: SearchSettings


def evaluate(
    system: System,
    reference: Lines | tuple[Lines, ...] | None = None,
    *,
    source: Lines | None = None,
    metrics: str | Metric | Sequence[str | Metric] = "bleu",
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
        source: What a model translates; default: the test set of the run, ``data.test``. Some metrics
            read it, too.
        metrics: bleu, chrf, chrf++, ter, multi-bleu, or `Metric` objects such as
            `deepwire.evaluation.metric_command.MetricCommand`.
        tokenize: Tokenizer of BLEU; default: that of the target language, see docs/howto/evaluation.md.
        language: The language of the references, such as ``ja``. Default: that of `direction` or of the
            model, else what the ending of the reference's file name says.
        direction: Such as ``de-en``, for models of several directions.
        decoding: Decoding settings that replace the model's own: ``{"beam": 8}``.
        device: As in `deepwire.load`, for models given by name.
        precision: As `device`.

    Raises:
        UsageError: A setting is wrong, or there is no reference.
        DataError: A text cannot be read, or the numbers of lines differ.
        ModelError: There is no such model, or it is damaged.
    """
    names = _several(metrics)
    settings = _settings(names, tokenize, language, direction, decoding, device, precision)
    (result,) = _scored({_name(system, 1): system}, reference, source, settings, None).systems
    keys = [metric if isinstance(metric, str) else metric.name for metric in names]
    return dict(zip(keys, result.scores, strict=True))


def compare(
    systems: Mapping[str, System] | Sequence[System],
    reference: Lines | tuple[Lines, ...] | None = None,
    *,
    source: Lines | None = None,
    test: str = "bootstrap",
    baseline: int = 0,
    samples: int | None = None,
    seed: int = DEFAULT_SEED,
    metrics: str | Metric | Sequence[str | Metric] = "bleu",
    tokenize: str | None = None,
    language: str = "",
    direction: str | None = None,
    decoding: Mapping[str, object] | None = None,
    device: str = "auto",
    precision: str = "auto",
) -> ScoreReport:
    """Score systems on one text and test the difference of each to the baseline.

    What is not listed here is as in `evaluate`.

    Args:
        systems: At least two, by name if they are to have one; each as in `evaluate`.
        test: ``bootstrap`` (Koehn 2004) or ``randomization`` (Riezler and Maxwell 2005).
        baseline: Position of the system that the others are compared with.
        samples: Resamples (default 1000) or shuffles (default 10000).
        seed: Of the random numbers of the test.

    Raises:
        UsageError, DataError, ModelError: As in `evaluate`.
    """
    systems = _by_name(systems)
    paired = PairedTest(test, baseline, samples, seed)
    paired.check(len(systems))
    names = _several(metrics)
    settings = _settings(names, tokenize, language, direction, decoding, device, precision)
    return _scored(systems, reference, source, settings, paired)


def _by_name(systems: Mapping[str, System] | Sequence[System]) -> Mapping[str, System]:
    if isinstance(systems, Mapping):
        return systems
    if isinstance(systems, str):
        raise UsageError(f"systems: {systems!r} is one", 'compare(["runs/base", "runs/other"])')
    named = {_name(system, number): system for number, system in enumerate(systems, 1)}
    if len(named) < len(systems):
        raise UsageError("systems: one is there twice", "give them names")
    return named


def _settings(
    metrics: Sequence[str | Metric],
    tokenize: str | None,
    language: str,
    direction: str | None,
    decoding: Mapping[str, object] | None,
    device: str,
    precision: str,
) -> EvaluationSettings:
    parsed = None if direction is None else parse_direction(direction)
    search = SearchSettings(decoding or {}, device, precision, direction=parsed)
    chosen = [metric_name(metric) if isinstance(metric, str) else metric for metric in metrics]
    if tokenize is not None and "bleu" not in chosen:
        raise UsageError("tokenize: is for bleu, which is not among the metrics", "leave it out, or add bleu")
    scoring = LanguageMetrics(chosen, {} if tokenize is None else {"": tokenize})
    into = language or ("" if parsed is None else parsed.target)
    scoring.of(into)  # an unknown one is named before anything is read
    return EvaluationSettings(scoring, into, search)


def _several(metrics: str | Metric | Sequence[str | Metric]) -> list[str | Metric]:
    return [metrics] if isinstance(metrics, str | Metric) else list(metrics)


def _name(system: System, number: int) -> str:
    return fspath(system) if isinstance(system, str | PathLike) else f"system {number}"


def _scored(
    systems: Mapping[str, System],
    reference: Lines | tuple[Lines, ...] | None,
    source: Lines | None,
    settings: EvaluationSettings,
    paired: PairedTest | None,
) -> ScoreReport:
    read = {name: _read_system(system, name) for name, system in systems.items()}
    several = reference if isinstance(reference, tuple) else () if reference is None else (reference,)
    references = [_text(each, f"reference {number}") for number, each in enumerate(several, 1)]
    text = None if source is None else _text(source, "source")
    warn = logging.getLogger("deepwire").warning
    texts, references, text = texts_of(read.items(), references, text, settings, warn)
    if not settings.language:
        names = [name for system in read.values() for name in _names_of(system)]
        settings = replace(settings, language=model_texts.target_language(names[0]) if names else "")
    report = score_texts(texts, references, settings, paired, warn, text)
    for warning in report.warnings:
        warn(warning)
    return report


def texts_of(
    systems: Iterable[tuple[str, ReadSystem]],
    references: Sequence[Text],
    source: Text | None,
    settings: EvaluationSettings,
    warn: LogFn,
) -> tuple[list[Text], list[Text], Text | None]:
    """The texts of systems, for which models translate now; references; the source, where it is known.

    Args:
        systems: By their names, which the texts get.
        references: Those that were named; none: that of the test set of the first run.
        source: What models translate; None: the test set of the first run.
        settings: How they translate.
        warn: Receives warnings, one line each.

    Raises:
        UsageError: There is no source or reference, or a model cannot do what is asked for.
        DataError: A text cannot be read, or the numbers of lines differ.
        ModelError: There is no such model, or it is damaged.
    """
    systems, references = list(systems), list(references)
    models = [system for _, system in systems if not isinstance(system, Text)]
    if models:
        # Models and counts are looked at now: a mistake must not show up only after an hour of translation.
        model_texts.selected_targets(
            [model for model in models if isinstance(model, str)], settings.search.direction
        )
        model_texts.require_one_direction(name for model in models for name in _names_of(model))
        for model in models:
            if not isinstance(model, str):
                model.with_search(**settings.search.decoding)  # an impossible setting is found
        source, answer = (source, None) if source is not None else _test_set(models, settings)
        references = references or ([] if answer is None else list(answer.references))
        texts = [system for _, system in systems if isinstance(system, Text)]
        check_line_counts([(text.name, text.lines) for text in (source, *texts, *references)])
    if not references:
        raise UsageError("there is no reference", "give reference=")
    text = cast("Text", source)  # where there are models, there is one
    translated = [
        system if isinstance(system, Text) else _translation(name, system, text, settings, warn)
        for name, system in systems
    ]
    return translated, references, source


def score_texts(
    texts: Sequence[Text],
    references: Sequence[Text],
    settings: EvaluationSettings,
    paired: PairedTest | None,
    warn: LogFn,
    source: Text | None = None,
) -> ScoreReport:
    """Score texts and test their differences; what to know of the metrics goes to `warn`.

    Raises:
        UsageError: A metric lacks what it needs for the language.
        DataError: The numbers of lines differ.
    """
    metrics = settings.metrics.of(settings.language or language_of(references[0]))
    for note in settings.metrics.notes:
        warn(note)
    return compare_texts(texts, references, metrics, paired, source)


def _read_system(system: System, name: str) -> ReadSystem:
    from deepwire.decoding.translator import Translator

    if isinstance(system, Translator):
        return system
    if isinstance(system, str | PathLike) and not Path(system).is_file():
        model = fspath(system)
        # A mistake must not show up after an hour of translating with another model.
        if not Path(model.rpartition("@")[0] or model).exists() and not Path(model).exists():
            raise ModelError(
                f"{model}: no such file and no such model",
                "give the path of a text, a run directory, RUN@last, RUN@avg5 or a model directory",
            )
        return model
    return Text(name, _text(system, name).lines)


def _names_of(system: ReadSystem) -> Sequence[str]:
    """The MODEL names of a system; none of a text."""
    return (system,) if isinstance(system, str) else getattr(system, "names", ())


def _text(text: Lines, name: str) -> Text:
    if isinstance(text, str | PathLike):
        return read_text(Path(text))
    return Text(name, list(text))


def _test_set(models: Sequence[str | Translator], settings: EvaluationSettings) -> tuple[Text, Text]:
    """Source and reference of the test set of the first model that is a run."""
    run = next((model for model in models if isinstance(model, str)), None)
    if run is None:
        raise UsageError("there is no source for the model to translate", "give source= and reference=")
    direction = settings.search.direction
    stored = None if direction is None else texts_of_run(run).read(direction)
    return stored or model_texts.test_set(run)


def _translation(
    name: str, model: str | Translator, source: Text, settings: EvaluationSettings, warn: LogFn
) -> Text:
    search = settings.search
    if isinstance(model, str):
        model = model_texts.load_translator(model, search, warn)
    elif search.decoding:
        model = model.with_search(**search.decoding)
    return model_texts.translate(name, model, source, search.direction)
