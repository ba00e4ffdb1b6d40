"""Text in, text out: translation of lines with one model or several."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from copy import copy
from dataclasses import replace
from itertools import islice
from typing import Generic, Literal, Self, overload

import torch

from deepwire.config.counts import whole_argument
from deepwire.data.context import NO_CONTEXT, ContextConfig
from deepwire.data.languages import Languages
from deepwire.data.text.pairs import is_blank, plain
from deepwire.data.text.placeholders import protect_pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.decoding.attention_alignment import AttentionAligner
from deepwire.decoding.decoding_config import DecodingConfig, all_of_sampling, given_settings, with_settings
from deepwire.decoding.document_context import ContextEncoder, Documents
from deepwire.decoding.finished_candidates import CandidateBuilder
from deepwire.decoding.given_texts import (
    AlignedText,
    aligned_lines,
    pairs_of,
    request_of,
    requests_of,
    require_several,
    split_lines,
)
from deepwire.decoding.guards import nothing_to_translate
from deepwire.decoding.lexical_constraints import constraint_finder, preferred_terms
from deepwire.decoding.line_casing import LineCasing
from deepwire.decoding.long_lines import LongLines
from deepwire.decoding.minimum_bayes_risk import most_agreed
from deepwire.decoding.model_inputs import LanguageSelector, SourceTokenizer, TargetLanguage
from deepwire.decoding.second_searches import enforce_constraints, retry_degenerate
from deepwire.decoding.sentence_search import SearchInputs, SentenceSearch
from deepwire.decoding.shortlist import Shortlist
from deepwire.decoding.step_models import Ensemble, EnsembleMember, StateT, as_configured
from deepwire.decoding.terminology import Terminology
from deepwire.decoding.translation_io import Request, Translation, has_several_lines, warn_of_several_lines
from deepwire.decoding.translation_scoring import PairScore, TranslationScorer
from deepwire.errors import DataError, Tell, UsageError

_MOST_LINES = 1 << 40  # more than any text has


class Translator(Generic[StateT]):
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
        models: Sequence[EnsembleMember[StateT]],
        vocabularies: Vocabularies,
        config: DecodingConfig,
        *,
        device: torch.device | str = "cpu",
        source_bos: bool = False,
        weights: Sequence[float] | None = None,
        warn: Tell | None = None,
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
        self.context, self._before = context, ContextEncoder(vocabularies, languages, context)
        self.device, self.precision = torch.device(device), precision
        self._warn = logging.getLogger("deepwire").warning if warn is None else warn
        self.model = Ensemble(as_configured(models, config), weights)
        self._configure(config)
        self._language_selector = LanguageSelector(languages, vocabularies, self._warn, direction)
        self.direction = direction
        self._casing = LineCasing(vocabularies.source, terms, "" if direction is None else direction[1])

    def _configure(self, config: DecodingConfig) -> None:
        """Take these settings; the errors are those of the class."""
        self.config = config
        self._source_tokenizer = SourceTokenizer(
            self.vocabularies.source, config.max_source_length, self._source_bos, self._warn
        )
        self._constraint_finder = constraint_finder(self.vocabularies, config, self._terms)

    @property
    def languages(self) -> Languages | None:
        """The languages of a model with several directions; None with one."""
        return self._language_selector.languages

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
            other.model = Ensemble(as_configured(self._models, other.config), self._weights)
        return other if self._aligner is None else other.aligning()

    def aligning(self) -> Self:
        """The same, whose candidates are aligned as `decoding.alignment` says, by the first model.

        Raises:
            UsageError: It has no such layer or head, or does not look at the source.
        """
        other, settings = copy(self), (self.config.alignment, self.config.batch_tokens, self.device)
        other._aligner = AttentionAligner(self.model.models[0], *settings)
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
        require_several(requests)
        self._language_selector.check(to or "", from_ or "")
        size = self._window(window)
        read = Documents(self.context) if documents and self.context.used else None
        return self._windows(enumerate(requests, first), size, to or "", from_ or "", read)

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
        drawing = self.with_search(n_best=whole_argument(count, "count", 1), sampling=sampling)
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
        settings = self.config, self.device, self._language_selector.select(to or "")
        scorer = TranslationScorer(self.model, self._before, self._source_tokenizer, *settings)
        checked = pairs_of(pairs)
        if self.vocabularies.has_symbols:
            checked = (protect_pair(*pair) for pair in checked)
        return scorer.score(checked, self._window(window), documents=documents)

    def _window(self, lines: int | None) -> int:
        return self.config.window if lines is None else whole_argument(lines, "window", 1)

    def _windows(
        self,
        numbered: Iterator[tuple[int, str | Request]],
        window: int,
        to: str,
        from_: str,
        documents: Documents | None,
    ) -> Iterator[Translation]:
        while read := list(islice(numbered, window)):
            requests = [request_of(line, text) for line, text in read]
            texts = zip(read, requests, strict=True)
            several = [f"line {line}" for (line, _), request in texts if has_several_lines(request.text)]
            warn_of_several_lines(several, self._warn)
            if to or from_:
                requests = [
                    replace(request, to=request.to or to, from_=request.from_ or from_)
                    for request in requests
                ]
            lines = [line for line, _ in read]
            if documents is None:
                yield from self._translate_window(lines, requests)
            else:
                yield from documents.translated(lines, requests, self._translate_window)

    def _target_language(self, line: int, request: Request) -> TargetLanguage | None:
        if not request.to and is_blank(request.text):
            return None  # there is nothing to translate, and so no language
        if self.languages is None and request.fields:
            self._language_selector.look_at_field(line, request.to)
            return None
        try:
            return self._language_selector.select(request.to, request.from_)
        except UsageError as error:
            kind = DataError if request.where and request.to else UsageError
            raise kind(f"{request.where or f'line {line}'}: {error.message}", error.hint) from None

    def _translate_window(self, lines: Sequence[int], requests: Sequence[Request]) -> list[Translation]:
        if self.config.casing:
            return self._casing.translated(lines, requests, self._translate_lines)
        return self._translate_lines(lines, requests)

    def _translate_lines(self, lines: Sequence[int], requests: Sequence[Request]) -> list[Translation]:
        most, languages = self.config.max_source_length, self.direction or ("", "")
        long = LongLines(self.vocabularies.source, most, languages, self._warn)
        return long.translated(lines, requests, self._translate_pieces)

    def _translate_pieces(self, lines: Sequence[int], requests: Sequence[Request]) -> list[Translation]:
        languages = [*map(self._target_language, lines, requests)]
        texts, prefixes = [plain(each.text) for each in requests], [each.prefix for each in requests]
        constraints = self._constraint_finder.of_lines(texts, prefixes)
        if constraints is not None:
            texts = [line.text for line in constraints]
            prefixes = [line.with_symbols(prefix) for line, prefix in zip(constraints, prefixes, strict=True)]
        copied = [
            self.config.guards and not each.prefix and nothing_to_translate(each.text) for each in requests
        ]
        texts = ["" if copy else text for text, copy in zip(texts, copied, strict=True)]
        tags = [None if language is None else language.source_tag for language in languages]
        sentences = SearchInputs(
            [line + each.piece * _MOST_LINES for line, each in zip(lines, requests, strict=True)],
            self._source_tokenizer.encode_lines(texts, lines, tags),
            [self.vocabularies.target.encode(prefix) if prefix else [] for prefix in prefixes],
            languages,
            preferred=preferred_terms(self.config, self.vocabularies.target, constraints),
        )
        if self.context.used:
            contexts = [request.context for request in requests]
            sentences = self._before.added(sentences, contexts, bos=self._source_tokenizer.bos)
        full = [row for row, ids in enumerate(sentences.sources) if ids]
        search = SentenceSearch(self.model, self.vocabularies, self.device, self.languages, self._shortlist)
        hypotheses_of = dict(zip(full, search.search(sentences, full, self.config), strict=True))
        # What was drawn at random stays; missing placeholders are added to it.
        if self.config.sampling is None:
            if self.config.guards:
                retry_degenerate(search, sentences, hypotheses_of, self.config)
            if constraints is not None:
                enforce_constraints(constraints, requests, search, sentences, hypotheses_of, self.config)
        builder = CandidateBuilder(self.vocabularies, self._aligner)
        candidates = builder.candidates(requests, sentences, hypotheses_of, constraints, copied)
        if self.config.sampling is not None and self.config.sampling.mbr:
            candidates = [most_agreed(each, self.config.n_best) for each in candidates]
        return [Translation(*parts) for parts in zip(lines, requests, candidates, strict=True)]
