"""Compares an exported model with its original: log-probabilities and translations."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass
from itertools import zip_longest
from statistics import fmean

import torch

from deepwire.checkpoint.store import LoadedModel
from deepwire.convert.export_format import ExportedModel, ids_of_pieces, without_symbols
from deepwire.convert.searched_model import SearchedModel
from deepwire.data.text.pairs import is_blank
from deepwire.data.vocabulary import BOS, EOS, PAD
from deepwire.decoding.decoding_config import DecodingConfig, with_settings
from deepwire.decoding.document_context import ContextEncoder, contexts_of
from deepwire.decoding.language_model import LineBreaks
from deepwire.decoding.model_inputs import LanguageSelector, pad_batch, target_language_ids
from deepwire.decoding.model_loading import context_of, languages_of, stored_config
from deepwire.decoding.models import as_configured
from deepwire.decoding.search import Batch, generate
from deepwire.decoding.translation_io import ContextLine, Request
from deepwire.decoding.translator import Translator
from deepwire.errors import DataError, ModelError
from deepwire.evaluation.metric_choice import corpus_score
from deepwire.model.translation_model import TranslationModel

EXACT, ROUNDED = 0.001, 0.1
"""Largest mean difference of log-probabilities of subwords, in nats: with exact and with rounded weights."""
SAME, SAME_BLEU = 1e-4, 0.1
"""Largest difference of any log-probability, and of BLEU, for formats that compute the same."""
BEAM = 4
_ALLOWED_ROUNDING = 10
"""Allowed multiple of our own float32 rounding error. Models amplify rounding to different degrees, above all
with EM routing, and other kernels may err seven times as much."""
# About the spacing of float32 log-probabilities.
_FLOAT32 = 1e-6

# Changes to the model's own beam search: without pre- and postprocessing of lines.
_SEARCH: Mapping[str, object] = {
    "beam": BEAM,
    "n_best": 1,
    "sampling": None,
    "max_source_length": DecodingConfig().max_source_length,
    "guards": False,
    "casing": False,
    "placeholders": False,
}
# Most subwords of a translation and of a source; longer sources are left out.
_MAX_TARGET, _MAX_SOURCE = 256, 128
# Programs differ in what else counts towards the limit.
_COMPARED = _MAX_TARGET - 2
# For language models: most subwords of a text, of its prompt, and of the continuation.
_MAX_TEXT, _PROMPT, _CONTINUATION = 128, 16, 32
_BATCH = 16

Pieces = Sequence[str]


@dataclass(frozen=True)
class ParityLimits:
    """Allowed differences.

    Attributes:
        mean: Limit of `Parity.mean_difference`.
        same: Whether every log-probability must be within `largest`, and translations equal but for ties.
        largest: In nats; ten times our own float32 error if that is more.
    """

    mean: float
    same: bool = False
    largest: float = SAME


@dataclass(frozen=True)
class Mismatch:
    """Two different translations of a line.

    Attributes:
        gap: How much better our model scores ours, in nats: in greedy search at the first subword that
            differs, in beam search as a whole.
        counted: Number of log-probabilities in `gap`, each divided by the length penalty.
    """

    line: int
    ours: str
    theirs: str
    gap: float
    counted: float

    def is_tie(self, difference: float) -> bool:
        """Whether a difference of log-probabilities by so much can explain the other choice."""
        return abs(self.gap) <= self.counted * max(difference, _FLOAT32)


def make_mismatch(
    line: int,
    texts: tuple[Pieces, Pieces],
    log_probs: Sequence[Sequence[float]],
    config: DecodingConfig,
) -> Mismatch:
    """Makes the mismatch of two translations of a line.

    Args:
        line: Its number.
        texts: The subwords of ours and theirs.
        log_probs: Our log-probabilities of both, with EOS.
        config: The settings that they were found with.
    """
    if config.beam == 1:
        pairs = enumerate(zip_longest(*texts))
        # Different ids may have equal pieces; then any position will do.
        first = next((place for place, (one, other) in pairs if one != other), 0)
        gap, counted = log_probs[0][first] - log_probs[1][first], 2.0
    else:
        divisors = [config.length_divisor(len(each)) for each in log_probs]
        ours, theirs = (sum(each) / divisor for each, divisor in zip(log_probs, divisors, strict=True))
        gap = ours - theirs
        counted = sum(len(each) / divisor for each, divisor in zip(log_probs, divisors, strict=True))
    return Mismatch(line, " ".join(texts[0]), " ".join(texts[1]), gap, counted)


@dataclass(frozen=True)
class Parity:
    """The result of a comparison.

    Attributes:
        lines: Lines compared.
        equal: Share of lines whose greedy translations are equal, subword by subword.
        beam_equal: Likewise by beam search.
        mean_difference: Mean absolute difference of log-probabilities of subwords, in nats; both programs
            score our translations.
        largest_difference: The largest of these differences.
        rounding: Largest difference of our own log-probabilities in float32 and float64; measured if
            `largest_difference` is above its limit.
        bleu: BLEU of ours and of theirs, if there are references.
        unequal: The greedy translations that differ; `beam_unequal` those by beam search.
    """

    lines: int
    equal: float
    beam_equal: float
    mean_difference: float
    largest_difference: float
    bleu: tuple[float, float] | None
    unequal: tuple[Mismatch, ...]
    beam_unequal: tuple[Mismatch, ...]
    rounding: float | None = None

    def to_json(self) -> dict[str, object]:
        """The content of `parity.json`."""
        return asdict(self)

    def violations(self, limits: ParityLimits) -> list[str]:
        """The limits that are exceeded, one line each."""
        violations = []
        if not self.mean_difference <= limits.mean:
            violations.append(f"allowed is {limits.mean:g} on average")
        if not limits.same:
            return violations
        allowed = max(limits.largest, _ALLOWED_ROUNDING * (self.rounding or 0))
        if not self.largest_difference <= allowed:
            violations.append(
                f"allowed is {limits.largest:g} at most, "
                f"or {_ALLOWED_ROUNDING} times the model's own rounding"
            )
        for search, lines in (("greedily", self.unequal), (f"with a beam of {BEAM}", self.beam_unequal)):
            wrong = [each for each in lines if not each.is_tie(min(self.largest_difference, allowed))]
            if wrong:
                violations.append(
                    f"{len(wrong)} lines are translated otherwise {search}, first line {wrong[0].line}"
                )
        if self.bleu is not None and abs(self.bleu[0] - self.bleu[1]) > SAME_BLEU:
            violations.append(f"greedy BLEU may differ by {SAME_BLEU}")
        return violations

    def __str__(self) -> str:
        bleu = "" if self.bleu is None else f"; greedy BLEU {self.bleu[0]:.2f} here, {self.bleu[1]:.2f} there"
        error = "" if self.rounding is None else f" (our own float32 errs by {self.rounding:.2g})"
        return (
            f"{self.lines} lines: {self.equal:.1%} translated alike, {self.beam_equal:.1%} with a beam of "
            f"{BEAM}, log-probability of a subword differs by {self.mean_difference:.2g} on average, "
            f"{self.largest_difference:.2g} at most{error}{bleu}"
        )


def compare(
    model: LoadedModel,
    exported: ExportedModel,
    lines: Sequence[str],
    references: Sequence[str] | None = None,
    language: str = "",
    limits: ParityLimits = ParityLimits(EXACT),
    never: Sequence[int] = (),
) -> Parity:
    """Translates and scores lines with both models; language models continue them.

    Args:
        model: Our model, on the CPU in float32.
        exported: The exported model, as loaded by the other program.
        lines: Raw source text; empty and very long lines are left out.
        references: A translation of each line, for BLEU.
        language: Target language of a multilingual model.
        limits: Our own rounding error is measured if a log-probability differs by more.
        never: Symbols that have no probability in the exported model.

    Raises:
        DataError: No line is left.
        ModelError: Our translations are all empty.
        UsageError: The model does not know the language, or must be told one.
    """
    model = without_symbols(model, never) if never else model
    if model.model.source_vocabulary:
        comparison: _Comparison = _Translations(model, lines, language)
    else:
        comparison = _Continuations(model, lines)
    greedy = comparison.greedy
    beam = exported.searchable(with_settings(comparison.stored, _SEARCH))
    ours, theirs = comparison.translate(greedy), comparison.translate_with(exported, greedy)
    greedy_mismatches = comparison.mismatches(ours, theirs, greedy)
    beam_mismatches = comparison.mismatches(
        comparison.translate(beam), comparison.translate_with(exported, beam), beam
    )
    targets = comparison.targets(ours)
    scores = comparison.score(targets, model.model)
    differences = _differences(scores, comparison.score_with(exported, targets))
    rounding = None
    if limits.same and max(differences) > limits.largest:
        with in_float64(model.model) as exact:
            rounding = max(_differences(scores, comparison.score(targets, exact)))
    bleu = None
    if references is not None:
        wanted = [references[number] for number in comparison.kept]
        here, there = (
            corpus_score("bleu", [*map(comparison.text, each)], wanted).value for each in (ours, theirs)
        )
        bleu = here, there
    count = len(comparison.kept)
    return Parity(
        lines=count,
        equal=1 - len(greedy_mismatches) / count,
        beam_equal=1 - len(beam_mismatches) / count,
        mean_difference=fmean(differences),
        largest_difference=max(differences),
        bleu=bleu,
        unequal=greedy_mismatches,
        beam_unequal=beam_mismatches,
        rounding=rounding,
    )


class _Comparison(ABC):
    """Lines to compare on, with our model; `kept` are their numbers from 0."""

    kept: Sequence[int]
    longest: int

    def __init__(self, model: LoadedModel) -> None:
        self.model, self.stored = model, stored_config(model)
        self.vocabulary = model.vocabularies.target
        # In the documents of language models BOS is a line break.
        self.numbers = ids_of_pieces(self.vocabulary) | {"\n": BOS}

    @property
    def greedy(self) -> DecodingConfig:
        """Greedy search with the model's own groups and rounds."""
        depth = {"groups": self.stored.groups, "rounds": self.stored.rounds}
        return DecodingConfig(
            beam=1, length_penalty=0, max_length_ratio=0, max_length_extra=self.longest, **depth
        )

    @abstractmethod
    def translate(self, config: DecodingConfig) -> list[Pieces]:
        """Our translations."""

    @abstractmethod
    def translate_with(self, exported: ExportedModel, config: DecodingConfig) -> list[Pieces]:
        """The exported model's translations."""

    @abstractmethod
    def targets(self, found: Sequence[Pieces]) -> Mapping[int, Pieces]:
        """The targets that both models score, by row."""

    @abstractmethod
    def log_probs(self, row: int, target: Pieces, model: TranslationModel) -> list[float]:
        """Our log-probabilities of a target and EOS."""

    @abstractmethod
    def score_with(self, exported: ExportedModel, targets: Mapping[int, Pieces]) -> list[list[float]]:
        """The exported model's log-probabilities of targets."""

    def score(self, targets: Mapping[int, Pieces], model: TranslationModel) -> list[list[float]]:
        """Our log-probabilities of targets."""
        return [self.log_probs(row, target, model) for row, target in targets.items()]

    def text(self, pieces: Pieces) -> str:
        """The text of subwords."""
        return self.vocabulary.decode(self.numbers[piece] for piece in pieces)

    def mismatches(
        self, ours: Sequence[Pieces], theirs: Sequence[Pieces], config: DecodingConfig
    ) -> tuple[Mismatch, ...]:
        """The lines whose translations differ."""
        mismatches = []
        for row, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if list(one)[:_COMPARED] != list(other)[:_COMPARED]:
                log_probs = [self.log_probs(row, each, self.model.model) for each in (one, other)]
                mismatches.append(make_mismatch(self.kept[row] + 1, (one, other), log_probs, config))
        return tuple(mismatches)


class _Translations(_Comparison):
    """Lines to translate; for a document-level model they are one document.

    After our greedy search, its translations are the context of all later searches, ours and theirs.
    """

    def __init__(self, model: LoadedModel, lines: Sequence[str], language: str) -> None:
        super().__init__(model)
        self.longest = _MAX_TARGET
        source = model.vocabularies.source
        encoded = [source.encode(line) for line in lines]
        self.kept = [number for number, ids in enumerate(encoded) if 0 < len(ids) <= _MAX_SOURCE]
        if not self.kept:
            raise DataError("no line to compare translations of", "give text with sentences of usual length")
        self.texts = [lines[number] for number in self.kept]
        self.ids = [encoded[number] for number in self.kept]
        self.language, self.languages, self.context = language, languages_of(model), context_of(model)
        self.into = LanguageSelector(self.languages, model.vocabularies, lambda _: None).select(language)
        self.contexts: Sequence[tuple[ContextLine, ...]] = ()
        self.context_ids: Sequence[tuple[Sequence[int], Sequence[int]]] = [((), ())] * len(self.kept)

    def translate(self, config: DecodingConfig) -> list[Pieces]:
        translator = Translator(
            [self.model.model],
            self.model.vocabularies,
            config,
            source_bos=self.model.metadata.get("source_bos") is True,
            languages=self.languages,
            context=self.context,
        )
        contexts = self.contexts or [()] * len(self.texts)
        requests = [Request(text, context=each) for text, each in zip(self.texts, contexts, strict=True)]
        to, documents = self.language or None, not self.contexts
        found = [*translator.translations(requests, to=to, documents=documents)]
        if self.context.used and not self.contexts:
            pairs = [(translation.request.text, translation.text) for translation in found]
            self.contexts = [*map(tuple, contexts_of(pairs, [], self.context.most))]
            encoder = ContextEncoder(self.model.vocabularies, self.languages, self.context)
            lengths = [*map(len, self.ids)]
            sides = encoder.sources(self.contexts, lengths), encoder.targets(self.contexts, lengths)
            self.context_ids = [*zip(*sides, strict=True)]
        return [translation.candidates[0].tokens for translation in found]

    def translate_with(self, exported: ExportedModel, config: DecodingConfig) -> list[Pieces]:
        sources = [*map(self.model.vocabularies.source.pieces, self.ids)]
        return [*self._with_context(exported, range(len(sources))).search(sources, config, self.language)]

    def _with_context(self, exported: ExportedModel, rows: Sequence[int]) -> ExportedModel:
        if not self.context.used:
            return exported
        assert isinstance(exported, SearchedModel)  # the formats that read documents have no other
        return exported.with_context([self.context_ids[row] for row in rows])

    def targets(self, found: Sequence[Pieces]) -> Mapping[int, Pieces]:
        texts = [self.vocabulary.encode(self.text(pieces)) for pieces in found]
        targets = {row: found[row] for row, ids in enumerate(texts) if ids}
        if not targets:
            raise ModelError(
                f"the model's translations of all {len(found)} lines are empty: there is nothing to compare",
                "train it longer, or give other text; --unchecked exports it as it is",
            )
        return targets

    @torch.inference_mode()
    def log_probs(self, row: int, target: Pieces, model: TranslationModel) -> list[float]:
        (configured,) = as_configured([model], self.stored)
        source_context, target_context = self.context_ids[row]
        ids, into = [self.numbers[piece] for piece in target], self.into
        head = [BOS] if self.model.metadata.get("source_bos") is True else []
        if into is not None and into.source_tag is not None:
            head.append(into.source_tag)
        first = BOS if into is None else into.first_token
        device = torch.device("cpu")
        rows = (
            [*head, *source_context, *self.ids[row], EOS],
            [first, *target_context, *ids],
            [*[PAD] * len(target_context), *ids, EOS],
        )
        languages = None if into is None else target_language_ids([into], device)
        scores = configured.score(*(pad_batch([each], device) for each in rows), languages=languages)
        return scores[0, len(target_context) :].tolist()

    def score_with(self, exported: ExportedModel, targets: Mapping[int, Pieces]) -> list[list[float]]:
        sources = [self.model.vocabularies.source.pieces(self.ids[row]) for row in targets]
        return self._with_context(exported, [*targets]).score(sources, [*targets.values()], self.language)


class _Continuations(_Comparison):
    """Texts whose beginnings a language model continues."""

    longest = _CONTINUATION

    def __init__(self, model: LoadedModel, lines: Sequence[str]) -> None:
        super().__init__(model)
        self.kept = [number for number, line in enumerate(lines) if not is_blank(line)]
        if not self.kept:
            raise DataError("no line to compare language models on", "give text")
        encoded = self.vocabulary.encode_lines([lines[number] for number in self.kept])
        self.texts = [ids[:_MAX_TEXT] for ids in encoded]
        self.prompts = [ids[: min(_PROMPT, len(ids) // 2)] for ids in self.texts]

    def translate(self, config: DecodingConfig) -> list[Pieces]:
        (chosen,) = as_configured([self.model.model], self.stored)
        searched, found = LineBreaks(chosen, self.vocabulary.size), list[Pieces]()
        for start in range(0, len(self.prompts), _BATCH):
            prompts = self.prompts[start : start + _BATCH]
            source = torch.zeros(len(prompts), 0, dtype=torch.int64)
            read = [[EOS, *ids] for ids in prompts]
            limits, rows = [_CONTINUATION] * len(prompts), range(len(prompts))
            batch = Batch(source, limits, rows, prompts=read, context_ids=prompts)
            found += [self._pieces(each[0].ids) for each in generate(searched, batch, config)]
        return found

    def _pieces(self, ids: Sequence[int]) -> Pieces:
        return [
            "\n" if number == self.vocabulary.size else self.vocabulary.pieces([number])[0] for number in ids
        ]

    def translate_with(self, exported: ExportedModel, config: DecodingConfig) -> list[Pieces]:
        assert isinstance(exported, SearchedModel)  # the formats with language models have no other
        return [*map(self._pieces, exported.continued(self.prompts, _CONTINUATION, config))]

    def targets(self, found: Sequence[Pieces]) -> Mapping[int, Pieces]:
        """The texts behind their beginnings."""
        pairs = zip(self.texts, self.prompts, strict=True)
        return {row: self._pieces(text[len(prompt) :]) for row, (text, prompt) in enumerate(pairs)}

    @torch.inference_mode()
    def log_probs(self, row: int, target: Pieces, model: TranslationModel) -> list[float]:
        (chosen,), prompt = as_configured([model], self.stored), self.prompts[row]
        ids = [*prompt, *(self.numbers[piece] for piece in target)]
        read, following = (pad_batch([each], torch.device("cpu")) for each in ([EOS, *ids], [*ids, EOS]))
        return chosen.score(read.new_zeros(1, 0), read, following)[0, len(prompt) :].tolist()

    def score_with(self, exported: ExportedModel, targets: Mapping[int, Pieces]) -> list[list[float]]:
        assert isinstance(exported, SearchedModel)
        scored = exported.score_texts([self.texts[row] for row in targets])
        return [scores[len(self.prompts[row]) :] for row, scores in zip(targets, scored, strict=True)]


@contextmanager
def in_float64(model: TranslationModel) -> Iterator[TranslationModel]:
    """A copy of a model in float64, which is the default dtype meanwhile."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield deepcopy(model).double()
    finally:
        torch.set_default_dtype(usual)


def _differences(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> list[float]:
    """Absolute differences of the log-probabilities of all subwords."""
    return [
        abs(one - other)
        for our_text, their_text in zip(ours, theirs, strict=True)
        for one, other in zip(our_text, their_text, strict=True)
    ]
