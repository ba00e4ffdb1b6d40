"""Compares an exported model with its original: log-probabilities and translations."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import dataclass
from statistics import fmean

import torch

from deepwire.checkpoint.store import LoadedModel
from deepwire.convert.export_format import ExportedModel, ids_of_pieces, without_symbols
from deepwire.data.vocabulary import BOS, EOS
from deepwire.decoding.decoding_config import DecodingConfig, with_settings
from deepwire.decoding.language_model import LineBreaks
from deepwire.decoding.model_inputs import LanguageSelector, pad_batch, target_language_ids
from deepwire.decoding.model_loading import languages_of, stored_config
from deepwire.decoding.models import as_configured
from deepwire.decoding.search import Batch, generate
from deepwire.decoding.translator import Translator
from deepwire.errors import DataError, ModelError
from deepwire.evaluation.metric_choice import corpus_score
from deepwire.model.translation_model import TranslationModel

EXACT, ROUNDED = 0.001, 0.1
"""Largest mean difference of log-probabilities of subwords, in nats: with exact and with rounded weights."""
SAME, ALIKE = 1e-4, 0.95
"""For formats that compute the same: largest difference of any log-probability, or ten times our own float32
error where that is more; and smallest share of equal translations, since rounding decides between ties."""
ALLOWED_ROUNDING = 10
# Most subwords of a translation, of a source, and of the prompt and continuation of a language model.
_MAX_TARGET, _MAX_SOURCE, _PROMPT, _CONTINUATION = 256, 128, 16, 32
# The model's own search, without what deepwire does before and after it.
_PLAIN: Mapping[str, object] = {
    **{"n_best": 1, "sampling": None, "no_repeat_ngram": 0, "unknown_penalty": None},
    **{"max_source_length": _MAX_SOURCE, "guards": False, "casing": False, "placeholders": False},
}

Pieces = Sequence[str]


@dataclass(frozen=True)
class Parity:
    """The result of a comparison.

    Attributes:
        lines: Lines compared.
        equal: Share of lines whose greedy translations are equal, subword by subword; `beam_equal` likewise
            by beam search.
        mean_difference: Mean absolute difference of log-probabilities of subwords, in nats; both programs
            score our translations. `largest_difference` is the largest.
        rounding: Likewise of ours in float32 and float64; measured where the largest is more than `SAME`.
        bleu: Greedy BLEU of ours and of theirs, if there are references.
    """

    lines: int
    equal: float
    beam_equal: float
    mean_difference: float
    largest_difference: float
    rounding: float | None = None
    bleu: tuple[float, float] | None = None

    def fault(self, mean: float, *, same: bool) -> str | None:
        """The first limit that is exceeded; `same`: whether the other program makes the same operations."""
        largest = max(SAME, ALLOWED_ROUNDING * (self.rounding or 0))
        if not self.mean_difference <= mean:
            return f"allowed is {mean:g} on average"
        if same and not self.largest_difference <= largest:
            return f"allowed is {largest:.2g} at most"
        if same and min(self.equal, self.beam_equal) < ALIKE:
            return f"{ALIKE:.0%} of the lines must be translated alike"
        return None

    def __str__(self) -> str:
        bleu = "" if self.bleu is None else f"; greedy BLEU {self.bleu[0]:.2f} here, {self.bleu[1]:.2f} there"
        return (
            f"{self.lines} lines: {self.equal:.1%} translated alike, {self.beam_equal:.1%} with a beam of 4, "
            f"log-probability of a subword differs by {self.mean_difference:.2g} on average, "
            f"{self.largest_difference:.2g} at most{bleu}"
        )


def compare(
    model: LoadedModel,
    exported: ExportedModel,
    lines: Sequence[str],
    references: Sequence[str] | None = None,
    language: str = "",
    never: Sequence[int] = (),
) -> Parity:
    """Translates and scores lines with both models; language models continue them.

    Args:
        model: Our model, on the CPU in float32.
        lines: Raw source text; empty and very long lines are left out.
        references: A translation of each line, for BLEU.
        language: Target language of a multilingual model.
        never: Symbols that have no probability in the exported model.
    """
    model = without_symbols(model, never) if never else model
    sample = _Sample(model, lines, language)
    greedy, beam = (
        [*zip(sample.search(each), exported.search(sample.sources, each, language), strict=True)]
        for each in (sample.greedy, exported.searchable(sample.beam))
    )
    targets = sample.targets([ours for ours, _ in greedy])
    scores = sample.score(targets, model.model)
    theirs = exported.score([sample.sources[row] for row in targets], [*targets.values()], language)
    differences, rounding, bleu = _differences(scores, theirs), None, None
    if max(differences) > SAME:
        with in_float64(model.model) as exact:
            rounding = max(_differences(scores, sample.score(targets, exact)))
    if references is not None:
        wanted = [references[number] for number in sample.kept]
        sides = ([sample.text(each) for each in side] for side in zip(*greedy, strict=True))
        here, there = (corpus_score("bleu", side, wanted).value for side in sides)
        bleu = here, there
    shares = _alike(greedy), _alike(beam)
    return Parity(len(sample.kept), *shares, fmean(differences), max(differences), rounding, bleu)


class _Sample:
    """Lines to compare on, with our model; a language model reads their beginnings."""

    def __init__(self, model: LoadedModel, lines: Sequence[str], language: str) -> None:
        self.model, self.stored, self.language = model, stored_config(model), language
        self.writes = not model.model.source_vocabulary
        source, target = model.vocabularies.source, model.vocabularies.target
        encoded = target.encode_lines(lines) if self.writes else [source.encode(line) for line in lines]
        self.kept = [number for number, ids in enumerate(encoded) if 0 < len(ids) <= _MAX_SOURCE]
        if not self.kept:
            raise DataError("no line to compare translations of", "give text with lines of usual length")
        self.texts = [lines[number] for number in self.kept]
        self.ids = [encoded[number] for number in self.kept]
        # In the documents of language models BOS is a line break, and in searches what is behind all others.
        self.numbers = ids_of_pieces(target) | {"\n": BOS}
        self.pieces = [*target.pieces(range(target.size)), "\n"]
        self.read = [ids[: min(_PROMPT, len(ids) // 2)] for ids in self.ids] if self.writes else self.ids
        self.sources = [self._pieces(ids) if self.writes else source.pieces(ids) for ids in self.read]
        limit = {"max_length_ratio": 0.0, "max_length_extra": _CONTINUATION if self.writes else _MAX_TARGET}
        self.beam = with_settings(self.stored, {**_PLAIN, **limit, "beam": 4})
        self.greedy = with_settings(self.beam, {"beam": 1, "length_penalty": 0.0, "min_length": 1})
        self.languages = languages_of(model)
        self.into = LanguageSelector(self.languages, model.vocabularies, lambda _: None).select(language)

    def _pieces(self, ids: Sequence[int]) -> Pieces:
        return [self.pieces[number] for number in ids]

    def text(self, pieces: Pieces) -> str:
        return self.model.vocabularies.target.decode(self.numbers[piece] for piece in pieces)

    def search(self, config: DecodingConfig) -> list[Pieces]:
        if self.writes:
            return [self._continued(prompt, config) for prompt in self.read]
        translator = Translator(
            [self.model.model],
            self.model.vocabularies,
            config,
            source_bos=self.model.metadata.get("source_bos") is True,
            languages=self.languages,
        )
        found = translator.translations(self.texts, to=self.language or None)
        return [translation.candidates[0].tokens for translation in found]

    def _continued(self, prompt: Sequence[int], config: DecodingConfig) -> Pieces:
        (chosen,) = as_configured([self.model.model], config)
        source = torch.zeros(1, 0, dtype=torch.int64)
        batch = Batch(source, [_CONTINUATION], [1], prompts=[[EOS, *prompt]], context_ids=[prompt])
        (best, *_), *_ = generate(LineBreaks(chosen, len(self.pieces) - 1), batch, config)
        return self._pieces(best.ids)

    def targets(self, found: Sequence[Pieces]) -> dict[int, Pieces]:
        """Targets that both models score, by row: our translations; or texts behind their beginnings."""
        if self.writes:
            return {row: self._pieces(ids[len(self.read[row]) :]) for row, ids in enumerate(self.ids)}
        targets = {row: pieces for row, pieces in enumerate(found) if self.text(pieces).strip()}
        if not targets:
            raise ModelError(
                f"the model's translations of all {len(found)} lines are empty: there is nothing to compare",
                "train it longer, or give other text; --unchecked exports it as it is",
            )
        return targets

    @torch.inference_mode()
    def score(self, targets: dict[int, Pieces], model: TranslationModel) -> list[list[float]]:
        (chosen,), device, into = as_configured([model], self.stored), torch.device("cpu"), self.into
        head = [BOS] if self.model.metadata.get("source_bos") is True else []
        head += [into.source_tag] if into is not None and into.source_tag is not None else []
        first = EOS if self.writes else BOS if into is None else into.first_token
        languages, scores = None if into is None else target_language_ids([into], device), []
        for row, target in targets.items():
            source, prompt = ([], self.read[row]) if self.writes else ([*head, *self.read[row], EOS], [])
            ids = [*prompt, *(self.numbers[piece] for piece in target)]
            rows = (pad_batch([each], device) for each in (source, [first, *ids], [*ids, EOS]))
            scores.append(chosen.score(*rows, languages=languages)[0, len(prompt) :].tolist())
        return scores


@contextmanager
def in_float64(model: TranslationModel) -> Iterator[TranslationModel]:
    """A copy of a model in float64, which is the default dtype meanwhile."""
    usual = torch.get_default_dtype()
    torch.set_default_dtype(torch.float64)
    try:
        yield deepcopy(model).double()
    finally:
        torch.set_default_dtype(usual)


def _alike(pairs: Sequence[tuple[Pieces, Pieces]]) -> float:
    """The share of equal translations; programs differ in what else counts towards the greatest length."""
    return fmean(list(ours)[: _MAX_TARGET - 2] == list(theirs)[: _MAX_TARGET - 2] for ours, theirs in pairs)


def _differences(ours: Sequence[Sequence[float]], theirs: Sequence[Sequence[float]]) -> list[float]:
    pairs = (pair for texts in zip(ours, theirs, strict=True) for pair in zip(*texts, strict=True))
    return [abs(one - other) for one, other in pairs]
