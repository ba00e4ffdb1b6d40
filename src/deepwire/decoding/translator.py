"""Text in, text out: translation of lines with one model or several."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from functools import partial
from itertools import islice
from typing import Literal, Self, overload

import torch

from deepwire.config.counts import require_int
from deepwire.data.context import NO_CONTEXT, ContextConfig
from deepwire.data.languages import Languages
from deepwire.data.vocabulary import Vocabularies
from deepwire.decoding.alignment import AttentionAligner
from deepwire.decoding.decoding_config import DecodingConfig, all_of_sampling, given_settings, with_settings
from deepwire.decoding.document_context import ContextEncoder, Documents
from deepwire.decoding.line_steps import (
    Item,
    LineCasing,
    LineEncoder,
    LineSearch,
    LongLines,
    build_candidates,
)
from deepwire.decoding.minimum_bayes_risk import most_agreed
from deepwire.decoding.model_inputs import LanguageSelector, SourceCheck, SourceTokenizer
from deepwire.decoding.models import EnsembleMember, as_configured, as_one
from deepwire.decoding.scoring import PairScore, TranslationScorer
from deepwire.decoding.second_search import enforce_constraints, retry_degenerate
from deepwire.decoding.shortlist import Shortlist
from deepwire.decoding.terms import Terminology
from deepwire.decoding.translation_io import (
    AlignedText,
    Request,
    Translation,
    aligned_lines,
    checked_pairs,
    request_of,
    requests_of,
    require_several,
    split_lines,
)
from deepwire.errors import LogFn, UsageError

Step = Callable[[list[Item]], list[Item]]


class Translator:
    """Translates and scores raw text.

    Lines are read in windows, sorted by length, translated in batches and given back in their order, one for
    one; an empty line stays empty and never reaches the model.

    Args:
        models: Models in evaluation mode on one device, with the same vocabularies; several are an ensemble.
        vocabularies: Source and target vocabulary.
        config: How to search.
        device: Where the models are.
        source_bos: Whether the models were trained with BOS in front of the source.
        weights: Weights of the models in the ensemble.
        warn: Receives warnings, one line each; default: the log of `deepwire`.
        languages: Of models with several directions.
        shortlist: What target subwords each batch is translated with; None = all of them.
        direction: Source and target language of models with one direction, where they are known; text that is
            clearly in another language than the source is warned about.
        terms: Translations that terms of the source must have.
        context: What of the document the models read in front of a sentence.

    Raises:
        UsageError: The weights do not fit the models, the models do not have the groups to predict with or no
            recurrent depth, or terms and sampling are asked for together.
    """

    def __init__(
        self,
        models: Sequence[EnsembleMember],
        vocabularies: Vocabularies,
        config: DecodingConfig,
        *,
        device: torch.device | str = "cpu",
        source_bos: bool = False,
        weights: Sequence[float] | None = None,
        warn: LogFn | None = None,
        languages: Languages | None = None,
        shortlist: Shortlist | None = None,
        direction: tuple[str, str] | None = None,
        terms: Terminology | None = None,
        context: ContextConfig = NO_CONTEXT,
        precision: str = "",
    ) -> None:
        self._models, self._weights, self._terms = models, weights, terms
        self._aligner: AttentionAligner | None = None
        self.vocabularies, self._shortlist, self._source_bos = vocabularies, shortlist, source_bos
        self.context, self._contexts = context, ContextEncoder(vocabularies, languages, context)
        self.device, self.precision, self.direction = torch.device(device), precision, direction
        self._warn = logging.getLogger("deepwire").warning if warn is None else warn
        self._selector = LanguageSelector(languages, vocabularies, self._warn, direction)
        self._source_check = SourceCheck(vocabularies.source, direction, self._warn)
        self._casing = LineCasing(vocabularies.source, terms, "" if direction is None else direction[1])
        self.model = as_one(as_configured(models, config), weights)
        self._configure(config)

    def _configure(self, config: DecodingConfig) -> None:
        """Take these settings; the errors are those of the class."""
        if self._terms is not None and config.sampling is not None:
            raise UsageError(
                "terms are searched for, and sampling draws translations", "leave out one of them"
            )
        self.config = config
        self._tokenizer = SourceTokenizer(
            self.vocabularies.source, config.max_source_length, self._source_bos, self._warn
        )

    @property
    def languages(self) -> Languages | None:
        """The languages of a model with several directions; None with one."""
        return self._selector.languages

    def with_search(self, **settings: object) -> Self:
        """The same models with other decoding settings, such as `beam=8`; nothing is copied.

        Args:
            settings: Keys of the section `decoding` of a run file; None is null where a setting may be null,
                such as `sampling`, and leaves any other as it is.

        Raises:
            UsageError: There is no such setting, it is impossible, or as for the class.
        """
        other, given = copy(self), given_settings(settings)
        other._configure(with_settings(self.config, given))
        if given.keys() & {"groups", "rounds"}:
            other.model = as_one(as_configured(self._models, other.config), self._weights)
        return other if self._aligner is None else other.aligning()

    def aligning(self) -> Self:
        """The same, whose candidates are aligned as `decoding.alignment` says, by the first model.

        Raises:
            UsageError: It has no such layer or head, or does not look at the source.
        """
        other, config = copy(self), self.config
        (model,) = as_configured(self._models[:1], config)
        other._aligner = AttentionAligner(model, config.alignment, config.batch_tokens, self.device)
        return other

    @overload
    def translate(
        self,
        lines: Iterable[str],
        prefixes: Iterable[str] | None = None,
        *,
        to: str | Iterable[str] | None = None,
        from_: str | None = None,
        alignment: Literal[False] = False,
        **settings: object,
    ) -> list[str]: ...

    @overload
    def translate(
        self,
        lines: Iterable[str],
        prefixes: Iterable[str] | None = None,
        *,
        to: str | Iterable[str] | None = None,
        from_: str | None = None,
        alignment: Literal[True] | Mapping[str, object],
        **settings: object,
    ) -> list[AlignedText]: ...

    def translate(
        self,
        lines: Iterable[str],
        prefixes: Iterable[str] | None = None,
        *,
        to: str | Iterable[str] | None = None,
        from_: str | None = None,
        alignment: bool | Mapping[str, object] = False,
        **settings: object,
    ) -> list[str] | list[AlignedText]:
        """The best translation of each text; as many as there are texts, in their order.

        Each line of a text of several lines is translated on its own, and the line breaks between them (LF or
        CR LF) are kept. A line break at the end, as lines of a file have it, is not. A model that was trained
        with document context reads the lines in front of each, back to an empty line.

        Args:
            lines: Raw text.
            prefixes: Text that each translation must begin with, one for each text; empty = free.
            to: The language to translate into, such as `fr`, or one for each line; for models of several
                directions.
            from_: The language of the lines. It changes nothing but a warning where the model was not trained
                in this direction.
            alignment: Also give which words belong together, see `aligning`; settings of
                `decoding.alignment`, such as `{"layer": 2}`, do so as they say.
            settings: Other decoding settings for this call, such as `beam=8`; see `with_search`.

        Raises:
            UsageError: The model does not know the language, or needs one, or has another direction, or a
                setting is impossible, or there are more lines than prefixes or languages, or fewer.
        """
        each, every = (None, to) if to is None or isinstance(to, str) else (to, None)
        texts = [split_lines(request) for request in requests_of(lines, prefixes, each)]
        aligned = bool(alignment) or isinstance(alignment, Mapping)
        if isinstance(alignment, Mapping):
            settings["alignment"] = alignment
        translator = self.with_search(**settings) if settings else self
        translator = translator.aligning() if aligned else translator
        split = (line for lines, _ in texts for line in lines)
        answers = translator.translations(split, to=every, from_=from_)
        best = (answer.candidates[0] for answer in answers)
        if aligned:
            return [aligned_lines(lines, list(islice(best, len(lines))), breaks) for lines, breaks in texts]
        return ["".join(next(best).text + line_break for line_break in breaks) for _, breaks in texts]

    def translations(
        self,
        requests: Iterable[str | Request],
        *,
        window: int | None = None,
        first: int = 1,
        to: str | None = None,
        from_: str | None = None,
        documents: bool = True,
    ) -> Iterator[Translation]:
        """Translate line by line in constant memory: results come window by window, in order.

        Args:
            requests: Lines, read as the results are taken; those that name no languages get these:
            window: Lines read ahead; default: that of the configuration. 1 answers each line at once.
            first: The number of the first line in its text; it seeds random draws.
            to: The language to translate into; models of several directions may need it.
            from_: The language of the lines, where it is known.
            documents: For models with document context: whether the lines in front of a line, back to an
                empty one, are its context. Otherwise each brings its own (`Request.context`).

        Raises:
            UsageError: The model needs a language, or does not know it; of a line of a file a DataError.
        """
        self._require_translation()
        require_several(requests)
        to, from_ = to or "", from_ or ""
        self._selector.check(to, from_)
        size = self._window(window)
        read = Documents(self.context if documents else NO_CONTEXT)
        return self._windows(enumerate(requests, first), size, to, from_, read)

    def _windows(
        self,
        numbered: Iterator[tuple[int, str | Request]],
        window: int,
        to: str,
        from_: str,
        documents: Documents,
    ) -> Iterator[Translation]:
        steps = self._steps()
        while read := list(islice(numbered, window)):
            lines = [line for line, _ in read]
            requests = [request_of(line, text) for line, text in read]
            self._source_check.look([request.text for request in requests])
            if to or from_:
                requests = [
                    replace(request, to=request.to or to, from_=request.from_ or from_)
                    for request in requests
                ]
            translated: dict[int, Translation] = {}
            for wave in documents.line_waves(requests):
                items = [
                    Item(lines[place], request, request.text, request.prefix)
                    for place, request in zip(wave.places, wave.requests, strict=True)
                ]
                for step in steps:
                    items = step(items)
                answers = [Translation(item.line, item.request, item.candidates) for item in items]
                translated |= zip(wave.places, answers, strict=True)
                documents.note(answer.text for answer in answers)
            yield from (translated[place] for place in range(len(requests)))

    def _steps(self) -> list[Step]:
        """The way of a line to its translations; what they do is in `deepwire.decoding.line_steps`."""
        config, vocabularies, languages = self.config, self.vocabularies, self.direction or ("", "")
        long = LongLines(vocabularies.source, config.max_source_length, languages, self._warn)
        encoder = LineEncoder(
            vocabularies, config, self._selector, self._tokenizer, self._contexts, self._terms
        )
        search = LineSearch(self.model, vocabularies, config, self.device, self.languages, self._shortlist)
        steps: list[Step] = [self._casing.lower] if config.casing else []
        steps += [long.cut, encoder.encode, search.search]
        # What was drawn at random stays; missing placeholders are added to it.
        if config.sampling is None and config.guards:
            steps.append(partial(retry_degenerate, search=search))
        if config.sampling is None and encoder.constrains:
            steps.append(partial(enforce_constraints, search=search))
        steps.append(partial(build_candidates, target=vocabularies.target))
        if self._aligner is not None:
            steps.append(partial(self._aligner.align, vocabularies=vocabularies))
        if config.sampling is not None and config.sampling.mbr:
            steps.append(partial(choose_by_risk, count=config.n_best))
        steps.append(long.join)
        return [*steps, self._casing.restore] if config.casing else steps

    def sample(
        self,
        lines: Iterable[str],
        count: int = 1,
        *,
        temperature: float = 1.0,
        top_k: int = 0,
        top_p: float = 1.0,
        seed: int = 1,
        to: str | None = None,
        from_: str | None = None,
    ) -> list[list[str]]:
        """Translations of each line drawn at random from the model, the most probable first.

        A drawn translation depends on the seed and the number of its line alone; torch's own random numbers
        are not used.

        Args:
            lines: Raw text.
            count: How many translations of each line; some may be equal.
            temperature: Divides the log-probabilities; below 1 = more careful.
            top_k: Draw from the k most probable subwords only; 0 = all of them.
            top_p: Draw from the fewest subwords that together reach this probability.
            seed: Another number draws other translations.
            to, from_: As in `translate`.

        Raises:
            UsageError: A setting is impossible, or as in `translate`.
        """
        sampling = all_of_sampling({"temperature": temperature, "top_k": top_k, "top_p": top_p, "seed": seed})
        drawing = self.with_search(n_best=require_int(count, "count", 1), sampling=sampling)
        translations = drawing.translations(lines, to=to, from_=from_)
        return [[candidate.text for candidate in each.candidates] for each in translations]

    def score(
        self,
        pairs: Iterable[tuple[str, str]],
        *,
        window: int | None = None,
        to: str | None = None,
        documents: bool = True,
    ) -> Iterator[PairScore]:
        """The log-probability of each given translation, in order; see `TranslationScorer`.

        `to` is the language of the translations, for models of several directions. With document context the
        pairs in front of a pair are its context, and one with an empty source ends a document; where
        `documents` is False, each pair stands alone.

        Raises:
            UsageError: The model does not know the language, or needs one, or has only one direction.
        """
        self._require_translation()
        settings = self.config, self.device, self._selector.select(to or "")
        scorer = TranslationScorer(self.model, self._contexts, self._tokenizer, *settings)
        return scorer.score(checked_pairs(pairs), self._window(window), documents=documents)

    def _require_translation(self) -> None:
        """Refuse what is no model that translates; models that were given to this class do."""

    def _window(self, lines: int | None) -> int:
        return self.config.window if lines is None else require_int(lines, "window", 1)


def choose_by_risk(items: list[Item], count: int) -> list[Item]:
    """Keep the candidates that agree best with all that were drawn."""
    for item in items:
        item.candidates = most_agreed(item.candidates, count)
    return items
