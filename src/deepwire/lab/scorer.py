"""A model, a text to translate and its reference: what analyses that count BLEU share."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Sequence
from typing import NamedTuple

from deepwire.decoding.model_inputs import LanguageSelector, target_language_ids
from deepwire.decoding.model_loading import LoadedModels, load_models
from deepwire.decoding.translator import Translator
from deepwire.errors import LogFn
from deepwire.evaluation.comparison import without_spaces
from deepwire.evaluation.metric import Metric, reference_count
from deepwire.evaluation.metric_choice import LanguageMetrics, language_of
from deepwire.evaluation.texts import SearchSettings, named_target
from deepwire.lab.finding import ModelSource
from deepwire.lab.subject import AnalysedModel, ParallelText, run_of
from deepwire.model.translation_model import TranslationModel

WARM_UP = 32


class TimedTranslation(NamedTuple):
    """A translation and how long it took, without loading the model."""

    lines: list[str]
    seconds: float


def digest_of(pairs: ParallelText) -> str:
    """Sixteen characters that differ for texts that differ."""
    digest = hashlib.blake2b(digest_size=8)
    for text in (pairs.source, *pairs.reference.references):
        for line in text.lines:
            digest.update(line.encode() + b"\n")
    return digest.hexdigest()


class Scorer:
    """Translates a text with variants of one loaded MODEL, and counts BLEU.

    Args:
        to: The language of the reference: what a model of several directions is to translate into.
        metric: In place of BLEU with the tokenizer of the language.

    Raises:
        ModelError: There is no such model.
        UsageError: A setting is impossible, or the model does not know the language, or needs one.
    """

    def __init__(
        self,
        name: str,
        pairs: ParallelText,
        search: SearchSettings,
        warn: LogFn,
        *,
        to: str = "",
        metric: Metric | None = None,
    ) -> None:
        self.name, self.pairs, self.to = name, pairs, to
        self.loaded: LoadedModels = load_models([name], search.device, search.precision, search.decoding)
        self.loaded.require_translation()
        into = LanguageSelector(self.loaded.languages, self.loaded.models[0].vocabularies, warn).select(to)
        self.languages = None if into is None else target_language_ids([into], self.loaded.device)
        self.metric, self._warn = self._bleu(warn) if metric is None else metric, warn

    def _bleu(self, warn: LogFn) -> Metric:
        reference = self.pairs.reference
        named = self.to or named_target(self.loaded.models[0].metadata)
        metrics = LanguageMetrics(("bleu",))
        (metric,) = metrics.of(named or language_of(reference))
        for warning in filter(None, (*metrics.notes, without_spaces(reference, [metric]))):
            warn(warning)
        return metric

    @property
    def model(self) -> TranslationModel:
        """The model as it is."""
        return self.loaded.models[0].model

    @property
    def subject(self) -> AnalysedModel:
        """The model, as analyses take it."""
        return AnalysedModel(self.name, self.loaded.models[0], run_of(self.name))

    @property
    def source(self) -> ModelSource:
        """The model, for the provenance of a finding."""
        return self.subject.source

    @property
    def settings(self) -> dict[str, str]:
        """Everything that decides BLEU besides model and text, for the provenance of a finding."""
        config = self.loaded.config
        return {
            "beam": str(config.beam),
            "length penalty": f"{config.length_penalty} ({config.length_penalty_form})",
            "batch tokens": str(config.batch_tokens),
            "device": str(self.loaded.device),
            "precision": self.loaded.precision,
            "BLEU": self.metric.signature(reference_count(self.pairs.reference.answers)),
            "text digest": digest_of(self.pairs),
        }

    def bleu(self, model: TranslationModel, groups: str | None = None) -> float:
        """BLEU of the translation by a variant of this model; `groups` of its decoder alone: `4` or `3:6`."""
        return self.score(self.translate(model, groups=groups).lines)

    def score(self, lines: Sequence[str]) -> float:
        """BLEU of a translation of the whole text."""
        return self.metric.score(lines, self.pairs.reference.answers).value

    def translate(
        self,
        model: TranslationModel,
        lines: Sequence[str] | None = None,
        groups: str | None = None,
        *,
        documents: bool = True,
    ) -> TimedTranslation:
        """Translate the text, or `lines` of it, and take the time.

        With document context the lines in front of a line are its context, unless `documents` is False.
        """
        config = self.loaded.config
        if groups is not None:
            config = config.model_copy(update={"groups": groups})
        translator: Translator = Translator(
            [model],
            self.loaded.models[0].vocabularies,
            config,
            device=self.loaded.device,
            source_bos=self.loaded.source_bos,
            warn=self._warn,
            languages=self.loaded.languages,
            context=self.loaded.context,
        )
        begun = time.perf_counter()
        answers = translator.translations(
            self.pairs.source.lines if lines is None else lines, to=self.to or None, documents=documents
        )
        translation = [answer.candidates[0].text for answer in answers]
        return TimedTranslation(translation, time.perf_counter() - begun)
