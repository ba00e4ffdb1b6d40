"""From sentences to hypotheses, in batches of similar length, and from these to what a user gets."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Event
from typing import Any, Generic

import torch
from torch import Tensor

from deepwire.data.languages import Languages
from deepwire.data.subwords.text_tokens import TextTokens
from deepwire.data.text.pairs import plain
from deepwire.data.vocabulary import BOS, Vocabularies
from deepwire.decoding.attention_alignment import AlignedPair, AttentionAligner
from deepwire.decoding.constrained_search import beam_for, constrained_search
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.demands import LineDemands
from deepwire.decoding.generate import generate
from deepwire.decoding.hypotheses import Hypothesis
from deepwire.decoding.model_inputs import TargetLanguage, batches_by_length, ordered_map, pad_batch
from deepwire.decoding.required_phrases import Phrase, word_bounds
from deepwire.decoding.shortlist import BatchShortlist, LanguageRows, Shortlist, batch_shortlist
from deepwire.decoding.step_models import (
    CancellableModel,
    Ensemble,
    PromptedModel,
    StateT,
)
from deepwire.decoding.text_alignment import TextAlignment
from deepwire.decoding.translation_io import Candidate, Request

_EMPTY = Candidate("", (), 0.0, 0.0)

_Translate = Callable[[Sequence[int], Event], list[list[Hypothesis]]]


@dataclass(frozen=True)
class Sentences:
    """What is to be searched for, sentence by sentence.

    Attributes:
        lines: Their numbers in the text, which seed random draws.
        sources: Subwords, as the model reads them; empty = nothing to translate.
        prefixes: Subwords that each translation begins with.
        languages: The target languages; None with one direction.
        fronts: Subwords of each source that are context, behind its begin symbol and tag; None: none are.
        prompts: Likewise, what stands in front of each translation.
    """

    lines: Sequence[int]
    sources: Sequence[Sequence[int]]
    prefixes: Sequence[Sequence[int]]
    languages: Sequence[TargetLanguage | None]
    fronts: Sequence[int] | None = None
    prompts: Sequence[Sequence[int]] | None = None

    def length(self, row: int) -> int:
        """Subwords of a source without context and end symbol."""
        return len(self.sources[row]) - 1 - (0 if self.fronts is None else self.fronts[row])


@dataclass(frozen=True)
class SentenceSearch(Generic[StateT]):
    """Searches with models and settings.

    Args:
        model: The models.
        vocabularies: Theirs.
        device: Where they are.
        languages: Of models with several directions.
        shortlist: What target subwords each batch is translated with; None = all of them.
    """

    model: Ensemble[StateT]
    vocabularies: Vocabularies
    device: torch.device
    languages: Languages | None
    shortlist: Shortlist | None

    def search(
        self, sentences: Sentences, rows: Sequence[int], config: DecodingConfig
    ) -> list[list[Hypothesis]]:
        """Hypotheses of some of the sentences, best first, in the order of `rows`."""

        def translate(rows: Sequence[int], stop: Event) -> list[list[Hypothesis]]:
            source, prefixes = self._inputs(sentences, rows)
            languages = [sentences.languages[row] for row in rows]
            shortlist = self._batch_shortlist(languages, source, prefixes)
            limits, lines = self._limits(sentences, rows, config), [sentences.lines[row] for row in rows]

            tokens = None if shortlist is None else shortlist.tokens
            chosen = self.model if shortlist is None else self.model.select(*shortlist)
            model = self._into(chosen, sentences, rows, stop)
            return generate(model, source, limits, config, lines, prefixes, shortlist=tokens)

        tokens = max(1, config.batch_tokens // config.width)
        return self._in_batches(sentences, rows, tokens, translate)

    def search_with(
        self,
        sentences: Sentences,
        rows: Sequence[int],
        phrases: Sequence[Sequence[Phrase]],
        config: DecodingConfig,
    ) -> list[list[Hypothesis]]:
        """Hypotheses that have given phrases; none where there are none. All subwords may be used.

        Args:
            sentences: Of which some are translated.
            rows: Which.
            phrases: Of each of these.
            config: Settings; nothing is drawn at random.
        """
        bounds = word_bounds(self.vocabularies.target)
        of_row = dict(zip(rows, phrases, strict=True))

        def translate(rows: Sequence[int], stop: Event) -> list[list[Hypothesis]]:
            source, prefixes = self._inputs(sentences, rows)
            limits, own = self._limits(sentences, rows, config), [of_row[row] for row in rows]
            model = self._into(self.model, sentences, rows, stop)
            return constrained_search(model, source, limits, config, own, bounds, prefixes)

        found: dict[int, list[Hypothesis]] = {}
        by_width: dict[int, list[int]] = {}
        for row in rows:
            by_width.setdefault(beam_for(config.beam, of_row[row]), []).append(row)
        for width, group in by_width.items():
            tokens = max(1, config.batch_tokens // width)
            found |= dict(zip(group, self._in_batches(sentences, group, tokens, translate), strict=True))
        return [found[row] for row in rows]

    def _into(
        self, model: Ensemble[StateT], sentences: Sentences, rows: Sequence[int], stop: Event
    ) -> CancellableModel[Any]:
        """A model that translates each row into its language and behind its prompt, until told to stop."""
        languages = [sentences.languages[row] for row in rows]
        targets = [language for language in languages if language is not None]
        if not targets and sentences.prompts is None:
            return CancellableModel(model, stop)
        begins = [[BOS if language is None else language.first_token] for language in languages]
        if sentences.prompts is not None:
            begins = [[*begin, *sentences.prompts[row]] for begin, row in zip(begins, rows, strict=True)]
        pieces = self.vocabularies.target.size
        return CancellableModel(PromptedModel(model, begins, pieces, targets or None), stop)

    def _in_batches(
        self,
        sentences: Sentences,
        rows: Sequence[int],
        tokens: int,
        translate: _Translate,
    ) -> list[list[Hypothesis]]:
        lengths = [len(sentences.sources[row]) for row in rows]
        batches = batches_by_length(lengths, tokens)
        by_batch = ordered_map(
            translate, [[rows[place] for place in batch] for batch in batches], self.device
        )
        found: list[list[Hypothesis]] = [[] for _ in rows]
        for batch, hypotheses in zip(batches, by_batch, strict=True):
            for place, own in zip(batch, hypotheses, strict=True):
                found[place] = own
        return found

    def _inputs(self, sentences: Sentences, rows: Sequence[int]) -> tuple[Tensor, list[Sequence[int]]]:
        source = pad_batch([sentences.sources[row] for row in rows], self.device)
        return source, [sentences.prefixes[row] for row in rows]

    @staticmethod
    def _limits(sentences: Sentences, rows: Sequence[int], config: DecodingConfig) -> list[int]:
        return [config.output_limit(sentences.length(row)) for row in rows]

    def _batch_shortlist(
        self,
        languages: Sequence[TargetLanguage | None],
        source: Tensor,
        prefixes: Sequence[Sequence[int]],
    ) -> BatchShortlist | None:
        """The shortlist of a batch; None without."""
        if self.shortlist is None:
            return None
        rows_of: dict[int, list[int]] = {}
        for row, language in enumerate(languages):
            rows_of.setdefault(0 if language is None else language.language_id, []).append(row)
        names = ("",) if self.languages is None else self.languages.names
        source = source.cpu()
        parts = [
            LanguageRows(
                index, self.shortlist.table(names[index]), source[rows], [prefixes[row] for row in rows]
            )
            for index, rows in rows_of.items()
        ]
        return batch_shortlist(parts, len(names)).to(self.device)


@dataclass(frozen=True)
class Finishing:
    """Makes candidates of hypotheses: texts with their placeholders, subwords, and alignments.

    Args:
        vocabularies: Those of the model.
        aligner: Aligns them; None: they are not aligned.
    """

    vocabularies: Vocabularies
    aligner: AttentionAligner | None = None

    def candidates(
        self,
        requests: Sequence[Request],
        sentences: Sentences,
        found: Mapping[int, Sequence[Hypothesis]],
        demands: Sequence[LineDemands] | None,
        copied: Sequence[bool],
    ) -> list[tuple[Candidate, ...]]:
        """Of each line, best first; an empty line, and one without any hypothesis, has one with score 0.

        Args:
            requests: What was asked for.
            sentences: The lines as the model reads them.
            found: Hypotheses of some of them.
            demands: What translations must have; None where nothing is.
            copied: Lines that are their own translation.
        """
        results: list[tuple[Candidate, ...]] = []
        for row, request in enumerate(requests):
            own = None if demands is None else demands[row]
            if copied[row]:
                results.append((Candidate(request.text, (), 0.0, 0.0),))
            elif found.get(row):
                results.append(tuple(self._candidate(hypothesis, own) for hypothesis in found[row]))
            else:
                results.append((_EMPTY if own is None else Candidate(own.finished(""), (), 0.0, 0.0),))
        if self.aligner is None:
            return results
        seen = {row: found[row] for row in found if found[row] and not copied[row]}
        return self._aligned(self.aligner, requests, sentences, seen, demands, results)

    def _candidate(self, hypothesis: Hypothesis, demands: LineDemands | None) -> Candidate:
        target = self.vocabularies.target
        # A line must stay one line, even if the vocabulary can spell a line break byte by byte.
        text = plain(target.decode(hypothesis.ids))
        text = text if demands is None else demands.finished(text)
        tokens = tuple(target.pieces(hypothesis.ids))
        return Candidate(text, tokens, hypothesis.log_probability, hypothesis.score)

    def _aligned(
        self,
        aligner: AttentionAligner,
        requests: Sequence[Request],
        sentences: Sentences,
        found: Mapping[int, Sequence[Hypothesis]],
        demands: Sequence[LineDemands] | None,
        results: Sequence[tuple[Candidate, ...]],
    ) -> list[tuple[Candidate, ...]]:
        units = aligner.config.units
        aligned = [
            tuple(replace(one, alignment=_of_words(request.text, one.text, units)) for one in own)
            for request, own in zip(requests, results, strict=True)
        ]
        pairs = [self._pair(sentences, row, one) for row, own in found.items() for one in own]
        links = iter(zip(pairs, aligner.links(pairs), strict=True))
        vocabularies = self.vocabularies
        for row, own in found.items():
            values = {} if demands is None else demands[row].values
            text, source = plain(requests[row].text), None
            better = []
            for hypothesis, candidate in zip(own, results[row], strict=True):
                pair, found_links = next(links)
                if source is None:
                    ids = pair.source[pair.first : -1]
                    source = TextTokens.of(vocabularies.source, ids, text, values)
                target = TextTokens.of(vocabularies.target, hypothesis.ids, candidate.text, values)
                alignment = TextAlignment(source, target, tuple(sorted(found_links)), units)
                better.append(replace(candidate, alignment=alignment))
            aligned[row] = tuple(better)
        return aligned

    @staticmethod
    def _pair(sentences: Sentences, row: int, hypothesis: Hypothesis) -> AlignedPair:
        source, language = sentences.sources[row], sentences.languages[row]
        tagged = language is not None and language.source_tag is not None
        first = (source[0] == BOS) + tagged + (sentences.fronts[row] if sentences.fronts else 0)
        context = sentences.prompts[row] if sentences.prompts else ()
        return AlignedPair(source, first, hypothesis.ids, language, context)


def _of_words(source: str, translation: str, units: str) -> TextAlignment:
    """Of a text that no model saw: it is its own translation, or words of it stand in that."""
    copied = TextAlignment.copied(plain(source), "subwords" if units == "subwords" else "words")
    if source == translation:
        return copied
    return replace(copied, target=TextTokens(translation, (), ()), subword_links=())
