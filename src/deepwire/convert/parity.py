"""Whether an exported model computes what it was exported from: its log-probabilities, and its texts."""

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
from deepwire.convert.export_format import ExportedModel, numbers_of_pieces, without_symbols
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
"""Most that the log-probability of a subword may differ by on average, in nats: with weights as they are, and
with rounded ones."""
SAME, SAME_BLEU = 1e-4, 0.1
"""Of a format that computes the same: most that any log-probability may differ by, and BLEU."""
BEAM = 4
_OWN_ERROR = 10
"""So many times our own error in float32 is allowed: how much a model amplifies rounding is luck, above all
with EM routing, and with other kernels it may be seven times as much."""
# About the distance of two float32 log-probabilities next to each other.
_FLOAT32 = 1e-6

# The beam search that is compared: the model's own, without what deepwire does with lines around it.
_SEARCH: Mapping[str, object] = {
    **{"beam": BEAM, "n_best": 1, "sampling": None, "max_source_length": DecodingConfig().max_source_length},
    **dict.fromkeys(("guards", "casing", "placeholders"), False),
}
# Subwords of a translation, and of a source; longer sources are left out of the comparison.
_LONGEST, _LONGEST_SOURCE = 256, 128
# Programs differ in what else counts as a subword of it.
_SURE = _LONGEST - 2
# Subwords of a text without a source, of its beginning that is continued, and behind that.
_SCORED, _PROMPT, _ADDED = 128, 16, 32
_BATCH = 16

Pieces = Sequence[str]


@dataclass(frozen=True)
class ParityLimits:
    """Differences that are allowed.

    Attributes:
        mean: Most for `Parity.mean_difference`.
        same: Whether no log-probability may differ by more than `largest`, and no translation but in ties.
        largest: In nats; or ten times our own error in float32 where that is more.
    """

    mean: float
    same: bool = False
    largest: float = SAME


@dataclass(frozen=True)
class Mismatch:
    """Two translations of a line.

    Attributes:
        gap: By how much we prefer ours, in nats: greedily at the first subword that is another one, by beam
            search as a whole.
        counted: How many log-probabilities are in `gap`, each divided by the length penalty.
    """

    line: int
    ours: str
    theirs: str
    gap: float
    counted: float

    def is_tie(self, difference: float) -> bool:
        """Whether programs whose log-probabilities differ by so much can choose either."""
        return abs(self.gap) <= self.counted * max(difference, _FLOAT32)


def unequal(
    line: int,
    texts: tuple[Pieces, Pieces],
    log_probs: Sequence[Sequence[float]],
    config: DecodingConfig,
) -> Mismatch:
    """Our translation of a line and another, found with these settings.

    Args:
        line: Its number.
        texts: Their subwords.
        log_probs: Ours of these and of EOS.
        config: The settings.
    """
    if config.beam == 1:
        pairs = enumerate(zip_longest(*texts))
        # Other numbers may stand for the same pieces: then any will do.
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
        equal: Part of them whose greedy translations are the same, subword by subword.
        beam_equal: Likewise by beam search.
        mean_difference: Mean of |difference| of the log-probability of a subword, in nats; both programs
            score our translations.
        largest_difference: The largest of them.
        rounding: Most that our own log-probabilities in float32 differ from those in float64 by; measured
            where `largest_difference` is more than usually allowed.
        bleu: BLEU of ours and of theirs, where there are references.
        unequal: The greedy translations that are not the same; `beam_unequal` those by beam search.
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
        """As it stands in `parity.json`."""
        return asdict(self)

    def violations(self, limits: ParityLimits) -> list[str]:
        """Differences beyond the limits, one line each."""
        violations = []
        if not self.mean_difference <= limits.mean:
            violations.append(f"allowed is {limits.mean:g} on average")
        if not limits.same:
            return violations
        allowed = max(limits.largest, _OWN_ERROR * (self.rounding or 0))
        if not self.largest_difference <= allowed:
            violations.append(
                f"allowed is {limits.largest:g} at most, or {_OWN_ERROR} times the model's own rounding"
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
    """Translate and score lines with both, greedily and by beam search; a language model continues them.

    Args:
        model: Ours, on the CPU in float32.
        exported: The same as the other program has read it.
        lines: Raw source text; empty and very long ones are left out.
        references: A translation of each line, for BLEU.
        language: Into which, of a model of several.
        limits: Our own rounding is measured if a log-probability differs by more.
        never: Symbols that have no probability there.

    Raises:
        DataError: No line is left.
        ModelError: Our translations are all empty, so that there is nothing to compare.
        UsageError: The model does not know the language, or must be told one.
    """
    model = without_symbols(model, never) if never else model
    if model.model.source_vocabulary:
        subject: _Subject = _Translations(model, lines, language)
    else:
        subject = _Continuations(model, lines)
    greedy = subject.greedy
    beam = exported.searchable(with_settings(subject.stored, _SEARCH))
    ours, theirs = subject.found(greedy), subject.found_by(exported, greedy)
    greedy_unequal = subject.unequal(ours, theirs, greedy)
    beam_unequal = subject.unequal(subject.found(beam), subject.found_by(exported, beam), beam)
    targets = subject.targets(ours)
    scores = subject.scores(targets, model.model)
    differences = _differences(scores, subject.scores_by(exported, targets))
    rounding = None
    if limits.same and max(differences) > limits.largest:
        with in_float64(model.model) as exact:
            rounding = max(_differences(scores, subject.scores(targets, exact)))
    bleu = None
    if references is not None:
        wanted = [references[number] for number in subject.kept]
        here, there = (
            corpus_score("bleu", [*map(subject.text, each)], wanted).value for each in (ours, theirs)
        )
        bleu = here, there
    count = len(subject.kept)
    return Parity(
        lines=count,
        equal=1 - len(greedy_unequal) / count,
        beam_equal=1 - len(beam_unequal) / count,
        mean_difference=fmean(differences),
        largest_difference=max(differences),
        bleu=bleu,
        unequal=greedy_unequal,
        beam_unequal=beam_unequal,
        rounding=rounding,
    )


class _Subject(ABC):
    """Our side of a comparison of some lines, whose numbers, counted from 0, are `kept`."""

    kept: Sequence[int]
    longest: int

    def __init__(self, model: LoadedModel) -> None:
        self.model, self.stored = model, stored_config(model)
        self.vocabulary = model.vocabularies.target
        # In the documents of language models BOS is a line break.
        self.numbers = numbers_of_pieces(self.vocabulary) | {"\n": BOS}

    @property
    def greedy(self) -> DecodingConfig:
        """Greedy search with the groups and rounds that the model translates with."""
        depth = {"groups": self.stored.groups, "rounds": self.stored.rounds}
        return DecodingConfig(
            beam=1, length_penalty=0, max_length_ratio=0, max_length_extra=self.longest, **depth
        )

    @abstractmethod
    def found(self, config: DecodingConfig) -> list[Pieces]:
        """Translations by our search."""

    @abstractmethod
    def found_by(self, exported: ExportedModel, config: DecodingConfig) -> list[Pieces]:
        """Translations by theirs."""

    @abstractmethod
    def targets(self, found: Sequence[Pieces]) -> Mapping[int, Pieces]:
        """Rows and what both score there."""

    @abstractmethod
    def log_probs(self, row: int, target: Pieces, model: TranslationModel) -> list[float]:
        """Ours of the subwords of a target and of EOS."""

    @abstractmethod
    def scores_by(self, exported: ExportedModel, targets: Mapping[int, Pieces]) -> list[list[float]]:
        """Theirs of targets."""

    def scores(self, targets: Mapping[int, Pieces], model: TranslationModel) -> list[list[float]]:
        """Ours of targets."""
        return [self.log_probs(row, target, model) for row, target in targets.items()]

    def text(self, pieces: Pieces) -> str:
        """The text of subwords."""
        return self.vocabulary.decode(self.numbers[piece] for piece in pieces)

    def unequal(
        self, ours: Sequence[Pieces], theirs: Sequence[Pieces], config: DecodingConfig
    ) -> tuple[Mismatch, ...]:
        """The lines whose translations, found with these settings, differ."""
        differing = []
        for row, (one, other) in enumerate(zip(ours, theirs, strict=True)):
            if list(one)[:_SURE] != list(other)[:_SURE]:
                log_probs = [self.log_probs(row, each, self.model.model) for each in (one, other)]
                differing.append(unequal(self.kept[row] + 1, (one, other), log_probs, config))
        return tuple(differing)


class _Translations(_Subject):
    """Lines to translate; with a model that reads documents all of them are one.

    Which translations stand in front of a line is known when all are found greedily; both read these then.
    """

    def __init__(self, model: LoadedModel, lines: Sequence[str], language: str) -> None:
        super().__init__(model)
        self.longest = _LONGEST
        source = model.vocabularies.source
        encoded = [source.encode(line) for line in lines]
        self.kept = [number for number, ids in enumerate(encoded) if 0 < len(ids) <= _LONGEST_SOURCE]
        if not self.kept:
            raise DataError("no line to compare translations of", "give text with sentences of usual length")
        self.texts = [lines[number] for number in self.kept]
        self.ids = [encoded[number] for number in self.kept]
        self.language, self.languages, self.context = language, languages_of(model), context_of(model)
        self.into = LanguageSelector(self.languages, model.vocabularies, lambda _: None).select(language)
        self.contexts: Sequence[tuple[ContextLine, ...]] = ()
        self.fronts: Sequence[tuple[Sequence[int], Sequence[int]]] = [((), ())] * len(self.kept)

    def found(self, config: DecodingConfig) -> list[Pieces]:
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
            self.fronts = [*zip(*sides, strict=True)]
        return [translation.candidates[0].tokens for translation in found]

    def found_by(self, exported: ExportedModel, config: DecodingConfig) -> list[Pieces]:
        sources = [*map(self.model.vocabularies.source.pieces, self.ids)]
        return [*self._behind(exported, range(len(sources))).search(sources, config, self.language)]

    def _behind(self, exported: ExportedModel, rows: Sequence[int]) -> ExportedModel:
        if not self.context.used:
            return exported
        assert isinstance(exported, SearchedModel)  # the formats that read documents have no other
        return exported.behind([self.fronts[row] for row in rows])

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
        (chosen,), (front, begun) = as_configured([model], self.stored), self.fronts[row]
        ids, into = [self.numbers[piece] for piece in target], self.into
        head = [BOS] if self.model.metadata.get("source_bos") is True else []
        if into is not None and into.source_tag is not None:
            head.append(into.source_tag)
        first = BOS if into is None else into.first_token
        device = torch.device("cpu")
        rows = (
            [*head, *front, *self.ids[row], EOS],
            [first, *begun, *ids],
            [*[PAD] * len(begun), *ids, EOS],
        )
        languages = None if into is None else target_language_ids([into], device)
        scores = chosen.score(*(pad_batch([each], device) for each in rows), languages=languages)
        return scores[0, len(begun) :].tolist()

    def scores_by(self, exported: ExportedModel, targets: Mapping[int, Pieces]) -> list[list[float]]:
        sources = [self.model.vocabularies.source.pieces(self.ids[row]) for row in targets]
        return self._behind(exported, [*targets]).score(sources, [*targets.values()], self.language)


class _Continuations(_Subject):
    """Lines of text of which a language model continues the beginnings."""

    longest = _ADDED

    def __init__(self, model: LoadedModel, lines: Sequence[str]) -> None:
        super().__init__(model)
        self.kept = [number for number, line in enumerate(lines) if not is_blank(line)]
        if not self.kept:
            raise DataError("no line to compare language models on", "give text")
        encoded = self.vocabulary.encode_lines([lines[number] for number in self.kept])
        self.texts = [ids[:_SCORED] for ids in encoded]
        self.prompts = [ids[: min(_PROMPT, len(ids) // 2)] for ids in self.texts]

    def found(self, config: DecodingConfig) -> list[Pieces]:
        (chosen,) = as_configured([self.model.model], self.stored)
        searched, found = LineBreaks(chosen, self.vocabulary.size), list[Pieces]()
        for start in range(0, len(self.prompts), _BATCH):
            prompts = self.prompts[start : start + _BATCH]
            source = torch.zeros(len(prompts), 0, dtype=torch.int64)
            read = [[EOS, *ids] for ids in prompts]
            limits, rows = [_ADDED] * len(prompts), range(len(prompts))
            batch = Batch(source, limits, rows, prompts=read, context_ids=prompts)
            found += [self._pieces(each[0].ids) for each in generate(searched, batch, config)]
        return found

    def _pieces(self, ids: Sequence[int]) -> Pieces:
        return [
            "\n" if number == self.vocabulary.size else self.vocabulary.pieces([number])[0] for number in ids
        ]

    def found_by(self, exported: ExportedModel, config: DecodingConfig) -> list[Pieces]:
        assert isinstance(exported, SearchedModel)  # the formats with language models have no other
        return [*map(self._pieces, exported.continued(self.prompts, _ADDED, config))]

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

    def scores_by(self, exported: ExportedModel, targets: Mapping[int, Pieces]) -> list[list[float]]:
        assert isinstance(exported, SearchedModel)
        scored = exported.score_texts([self.texts[row] for row in targets])
        return [scores[len(self.prompts[row]) :] for row, scores in zip(targets, scored, strict=True)]


@contextmanager
def in_float64(model: TranslationModel) -> Iterator[TranslationModel]:
    """A copy of a model that computes in float64, as new tensors are meanwhile."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield deepcopy(model).double()
    finally:
        torch.set_default_dtype(usual)


def _differences(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> list[float]:
    """|Difference| of the log-probability of every subword of some texts."""
    return [
        abs(one - other)
        for our_text, their_text in zip(ours, theirs, strict=True)
        for one, other in zip(our_text, their_text, strict=True)
    ]
