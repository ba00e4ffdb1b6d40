"""Whether an exported model computes what it was exported from."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import partial
from itertools import zip_longest
from statistics import fmean

import torch

from deepwire.checkpoint.store import LoadedModel
from deepwire.convert.export_format import ExportedModel
from deepwire.convert.rounding import differences_of, rounding_beyond
from deepwire.data.vocabulary import BOS, EOS, PAD, Vocabulary
from deepwire.decoding.decoding_config import DecodingConfig, with_settings
from deepwire.decoding.document_context import ContextEncoder, contexts_of
from deepwire.decoding.model_inputs import LanguageSelector, SourceTokenizer, pad_batch, target_language_ids
from deepwire.decoding.model_loading import context_of, languages_of, stored_config
from deepwire.decoding.scoring import PairScore
from deepwire.decoding.translation_io import ContextLine, Request, Translation
from deepwire.decoding.translator import Translator
from deepwire.errors import DataError, ModelError
from deepwire.evaluation.metric_choice import corpus_score

EXACT, ROUNDED = 0.001, 0.1
"""Most that the log-probability of a subword may differ by on average, in nats: with weights as they are, and
with rounded ones."""
SAME, SAME_BLEU = 1e-4, 0.1
"""Of a format that computes the same: most that any log-probability may differ by, and BLEU."""
BEAM = 4

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


@dataclass(frozen=True)
class Unequal:
    """Two translations of a line, and our scores of both.

    Attributes:
        gap: By how much we prefer ours, in nats: greedily at the first subword that is another one, by beam
            search as a whole.
        counted: How many log-probabilities are in `gap`, each divided by the length penalty.
    """

    line: int
    ours: str
    theirs: str
    our_score: float
    their_score: float
    gap: float
    counted: float

    def is_tie(self, difference: float) -> bool:
        """Whether programs whose log-probabilities differ by so much can choose either."""
        return abs(self.gap) <= self.counted * max(difference, _FLOAT32)


def unequal(
    line: int,
    texts: tuple[Sequence[str], Sequence[str]],
    log_probs: tuple[Sequence[float], Sequence[float]],
    config: DecodingConfig,
) -> Unequal:
    """Our translation of a line and another, found with these settings.

    Args:
        line: Its number.
        texts: Their subwords.
        log_probs: Ours of these and of EOS.
    """
    divisors = [config.length_divisor(len(each)) for each in log_probs]
    scores = [sum(each) / divisor for each, divisor in zip(log_probs, divisors, strict=True)]
    gap = scores[0] - scores[1]
    counted = sum(len(each) / divisor for each, divisor in zip(log_probs, divisors, strict=True))
    if config.beam == 1:
        pairs = enumerate(zip_longest(*texts))
        # Other numbers may stand for the same pieces: then any will do.
        first = next((number for number, (our_piece, their_piece) in pairs if our_piece != their_piece), 0)
        gap, counted = log_probs[0][first] - log_probs[1][first], 2
    ours, theirs = (" ".join(each) for each in texts)
    return Unequal(line, ours, theirs, scores[0], scores[1], gap, counted)


@dataclass(frozen=True)
class ParityLimits:
    """Differences that are allowed.

    Attributes:
        mean: Most for `Parity.mean_difference`.
        same: Whether no log-probability may differ by more than `largest`, and no translation but in ties.
        largest: In nats. Where our own float32 is half as far from float64, twice that is allowed: both
            programs round.
    """

    mean: float
    same: bool = False
    largest: float = SAME


@dataclass(frozen=True)
class Parity:
    """The result of a comparison.

    Attributes:
        lines: Lines compared.
        equal: Part of them whose greedy translations are the same, subword by subword.
        beam_equal: Likewise by beam search, where both programs have the same.
        mean_difference: Mean of |difference| of the log-probability of a subword, in nats; both programs
            score our translations.
        largest_difference: The largest of them.
        rounding: Most that our own log-probabilities in float32 differ from those in float64 by, also with
            nudged weights; measured where `largest_difference` is more than usually allowed.
        bleu: BLEU of ours and of theirs, where there are references.
        unequal: The greedy translations that are not the same; `beam_unequal` those by beam search.
    """

    lines: int
    equal: float
    beam_equal: float | None
    mean_difference: float
    largest_difference: float
    bleu: tuple[float, float] | None
    unequal: tuple[Unequal, ...]
    beam_unequal: tuple[Unequal, ...]
    rounding: float | None = None

    def to_json(self) -> dict[str, object]:
        """As it stands in `parity.json`."""
        return asdict(self)

    def faults(self, limits: ParityLimits) -> list[str]:
        """Differences beyond the limits, one line each."""
        faults = []
        if not self.mean_difference <= limits.mean:
            faults.append(f"allowed is {limits.mean:g} on average")
        if not limits.same:
            return faults
        allowed = max(limits.largest, 2 * (self.rounding or 0))
        if not self.largest_difference <= allowed:
            faults.append(f"allowed is {limits.largest:g} at most, or twice the model's own rounding")
        for search, lines in (("greedily", self.unequal), (f"with a beam of {BEAM}", self.beam_unequal)):
            wrong = [each for each in lines if not each.is_tie(min(self.largest_difference, allowed))]
            if wrong:
                faults.append(
                    f"{len(wrong)} lines are translated otherwise {search}, first line {wrong[0].line}"
                )
        if self.bleu is not None and abs(self.bleu[0] - self.bleu[1]) > SAME_BLEU:
            faults.append(f"greedy BLEU may differ by {SAME_BLEU}")
        return faults

    def __str__(self) -> str:
        bleu = "" if self.bleu is None else f"; greedy BLEU {self.bleu[0]:.2f} here, {self.bleu[1]:.2f} there"
        beam = "" if self.beam_equal is None else f", {self.beam_equal:.1%} with a beam of {BEAM}"
        error = "" if self.rounding is None else f" (our own float32 errs by {self.rounding:.2g})"
        return (
            f"{self.lines} lines: {self.equal:.1%} translated alike{beam}, log-probability of a subword "
            f"differs by {self.mean_difference:.2g} on average, {self.largest_difference:.2g} at most{error}"
            f"{bleu}"
        )


def compare(
    model: LoadedModel,
    exported: ExportedModel,
    lines: Sequence[str],
    references: Sequence[str] | None,
    language: str = "",
    largest: float | None = None,
) -> Parity:
    """Translate and score lines with both: greedily, and by beam search where both have the same.

    Args:
        model: Ours, on the CPU in float32.
        exported: The same as the other program has read it.
        lines: Raw source text; empty and very long ones are left out.
        references: A translation of each line, for BLEU.
        language: Into which, of a model of several.
        largest: Measure our own rounding if a log-probability differs by more.

    Raises:
        DataError: No line is left.
        ModelError: Our translations are all empty, so that there is nothing to compare.
        UsageError: The model does not know the language, or must be told one.
    """
    source = model.vocabularies.source
    encoded = [source.encode(line) for line in lines]
    kept = [number for number, ids in enumerate(encoded) if 0 < len(ids) <= _LONGEST_SOURCE]
    if not kept:
        raise DataError("no line to compare translations of", "give text with sentences of usual length")
    ours = _Ours(model, language, kept, [lines[number] for number in kept])
    segmented = [source.pieces(encoded[number]) for number in kept]
    stored = stored_config(model)
    depth = {"groups": stored.groups, "rounds": stored.rounds}
    greedy = DecodingConfig(beam=1, length_penalty=0, max_length_ratio=0, max_length_extra=_LONGEST, **depth)
    translated = ours.translations(greedy)
    # From here on both read our translations in front of a line.
    contexts = ours.read(translated)
    behind = exported if contexts is None else exported.behind(contexts)
    theirs = behind.translate(segmented, _LONGEST, language)
    scored = ours.scored(greedy, translated)
    differences = _differences(ours, scored, exported, segmented)
    greedy_unequal = ours.unequal(greedy, translated, theirs)
    beam = exported.searchable(with_settings(stored, _SEARCH))
    by_beam = behind.search(segmented, beam, language)
    beam_unequal = () if by_beam is None else ours.unequal(beam, ours.translations(beam), by_beam)
    bleu = None
    if references is not None:
        wanted = [references[number] for number in kept]
        texts = ([translation.text for translation in translated], [*map(ours.text, theirs)])
        here, there = (corpus_score("bleu", each, wanted).value for each in texts)
        bleu = here, there
    return Parity(
        lines=len(kept),
        equal=1 - len(greedy_unequal) / len(kept),
        beam_equal=None if by_beam is None else 1 - len(beam_unequal) / len(kept),
        mean_difference=fmean(differences),
        largest_difference=max(differences),
        bleu=bleu,
        unequal=greedy_unequal,
        beam_unequal=beam_unequal,
        rounding=rounding_beyond(
            largest, differences, model, log_probs_of(scored), partial(ours.log_probs_by, greedy, translated)
        ),
    )


class _Ours:
    """Our side of a comparison of some lines, whose numbers, counted from 0, are `kept`."""

    def __init__(self, model: LoadedModel, language: str, kept: Sequence[int], texts: Sequence[str]) -> None:
        self._model, self.language, self._kept, self._texts = model, language, kept, texts
        self._languages = languages_of(model)
        self._source_bos = model.metadata.get("source_bos") is True
        self._into = LanguageSelector(self._languages, model.vocabularies, _silent).select(language)
        self._numbers = numbers_of_pieces(model.vocabularies.target)
        self._context = context_of(model)
        self._before = ContextEncoder(model.vocabularies, self._languages, self._context)
        self._contexts: list[tuple[ContextLine, ...]] | None = None

    @property
    def reads_documents(self) -> bool:
        """Whether lines in front of a line are read."""
        return self._context.used

    def translator(self, config: DecodingConfig) -> Translator:
        """Ours, with these settings."""
        return Translator(
            [self._model.model],
            self._model.vocabularies,
            config,
            source_bos=self._source_bos,
            languages=self._languages,
            context=self._context,
        )

    def translations(self, config: DecodingConfig) -> list[Translation]:
        """Translations of all lines; as one document until `read` says what stands in front of each."""
        requests: Sequence[str | Request] = self._texts
        if self._contexts is not None:
            contexts = zip(self._texts, self._contexts, strict=True)
            requests = [Request(text, context=context) for text, context in contexts]
        translator, to = self.translator(config), self.language or None
        return list(translator.translations(requests, to=to, documents=self._contexts is None))

    def read(self, translations: Sequence[Translation]) -> list[tuple[list[int], list[int]]] | None:
        """Have these in front of all lines; returns what models read there; None: they do not."""
        if not self.reads_documents:
            return None
        pairs = [(translation.request.text, translation.text) for translation in translations]
        self._contexts = [*map(tuple, contexts_of(pairs, [], self._context.most))]
        lengths = [*map(len, self._model.vocabularies.source.encode_lines(self._texts))]
        return self.fronts(range(len(lengths)), lengths)

    def fronts(self, rows: Sequence[int], lengths: Sequence[int]) -> list[tuple[list[int], list[int]]]:
        """Contexts of some lines of so many subwords, and of their translations."""
        contexts = [self._contexts[row] if self._contexts else () for row in rows]
        sources, targets = self._before.sources(contexts, lengths), self._before.targets(contexts, lengths)
        return [*zip(sources, targets, strict=True)]

    def scored(self, config: DecodingConfig, translations: Sequence[Translation]) -> list[PairScore]:
        """Our scores of these translations."""
        texts = [(translation.request.text, translation.text) for translation in translations]
        return list(self.translator(config).score(texts, to=self.language or None))

    def log_probs_by(
        self, config: DecodingConfig, translations: Sequence[Translation], model: LoadedModel
    ) -> list[Sequence[float]]:
        """Log-probabilities of the subwords of our translations by another copy of the model."""
        other = _Ours(model, self.language, self._kept, self._texts)
        return log_probs_of(other.scored(config, translations))

    def text(self, pieces: Sequence[str]) -> str:
        """The text of subwords."""
        return self._model.vocabularies.target.decode(self._numbers[piece] for piece in pieces)

    def unequal(
        self, config: DecodingConfig, ours: Sequence[Translation], theirs: Sequence[Sequence[str]]
    ) -> tuple[Unequal, ...]:
        """The lines whose translations, found with these settings, differ."""
        log_probs = partial(self._log_probs, self.translator(config))
        tokens = [translation.candidates[0].tokens for translation in ours]
        return tuple(
            unequal(
                self._kept[row] + 1,
                (our_tokens, their_tokens),
                (log_probs(row, our_tokens), log_probs(row, their_tokens)),
                config,
            )
            for row, (our_tokens, their_tokens) in enumerate(zip(tokens, theirs, strict=True))
            if list(our_tokens)[:_SURE] != list(their_tokens)[:_SURE]
        )

    @torch.inference_mode()
    def _log_probs(self, translator: Translator, row: int, pieces: Sequence[str]) -> list[float]:
        """Log-probabilities of the subwords of a translation of a line, and of EOS."""
        source = SourceTokenizer(self._model.vocabularies.source, _LONGEST_SOURCE, self._source_bos, _silent)
        tags = None if self._into is None else [self._into.source_tag]
        ids = [self._numbers[piece] for piece in pieces]
        (read,) = source.encode_lines([self._texts[row]], [1], tags)
        head = int(self._source_bos) + (tags is not None and tags[0] is not None)
        ((front, begun),) = self.fronts([row], [len(read) - head - 1])
        first = BOS if self._into is None else self._into.first_token
        log_probs = translator.model.score(
            pad_batch([[*read[:head], *front, *read[head:]]], translator.device),
            pad_batch([[first, *begun, *ids]], translator.device),
            pad_batch([[*[PAD] * len(begun), *ids, EOS]], translator.device),
            languages=None if self._into is None else target_language_ids([self._into], translator.device),
        )
        return log_probs[0, len(begun) :].tolist()


def numbers_of_pieces(vocabulary: Vocabulary) -> dict[str, int]:
    """The number of each piece; where text looks like a symbol, that of the text."""
    return {piece: number for number, piece in enumerate(vocabulary.pieces(range(vocabulary.size)))}


def _silent(_: str) -> None:
    """Our own translations have warned already."""


def _differences(
    ours: _Ours, scored: Sequence[PairScore], exported: ExportedModel, sources: Sequence[Sequence[str]]
) -> list[float]:
    """|Difference| of every subword's log-probability in our translations, those of no subwords left out."""
    rows = [row for row, score in enumerate(scored) if score.flag is None]
    if not rows:
        raise ModelError(
            f"the model's translations of all {len(scored)} lines are empty, so there is nothing to compare",
            "train it longer, or give other text; --unchecked exports it as it is",
        )
    if ours.reads_documents:
        exported = exported.behind(ours.fronts(rows, [len(scored[row].tokens) for row in rows]))
    there = exported.score(
        [sources[row] for row in rows], [scored[row].tokens for row in rows], ours.language
    )
    return differences_of(log_probs_of([scored[row] for row in rows]), there)


def log_probs_of(scored: Sequence[PairScore]) -> list[Sequence[float]]:
    """Log-probabilities of every subword of some texts."""
    return [each.token_log_probabilities for each in scored]
