"""From sentences to hypotheses, in batches of similar length, and from these to what a user gets."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any, Generic, NamedTuple, TypeVar

import torch
from torch import Tensor

from deepwire.data.languages import Languages
from deepwire.data.vocabulary import BOS, Vocabularies
from deepwire.decoding.constrained_search import ScoredPrefix, beam_for, constrained_search
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.generate import generate
from deepwire.decoding.hypotheses import Hypothesis
from deepwire.decoding.model_inputs import (
    Cancelled,
    TargetLanguage,
    batches_by_length,
    ordered_map,
    pad_batch,
    target_language_ids,
)
from deepwire.decoding.required_phrases import Phrase, word_bounds
from deepwire.decoding.shortlist import BatchShortlist, LanguageRows, Shortlist, batch_shortlist
from deepwire.decoding.step_models import (
    CancellableModel,
    Ensemble,
    PromptedModel,
    StateT,
)

_FORCED_TOKENS = 512
"""Padded subwords of a batch whose probabilities of all subwords are in memory at once."""

_FEW = 16
"""So few sentences are no batch of their own."""

Result = TypeVar("Result")
_Translate = Callable[[Sequence[int], Event], list[list[Hypothesis]]]


@dataclass(frozen=True)
class SearchInputs:
    """What is to be searched for, sentence by sentence.

    Attributes:
        draws: A number for each, from which its random numbers follow.
        sources: Subwords, as the model reads them; empty = nothing to translate.
        prefixes: Subwords that each translation begins with.
        languages: The target languages; None with one direction.
        fronts: Subwords of each source that are context, behind its begin symbol and tag; None: none are.
        prompts: Likewise, what stands in front of each translation.
        preferred: Phrases that the translation of each should rather have; None: there are none.
    """

    draws: Sequence[int]
    sources: Sequence[Sequence[int]]
    prefixes: Sequence[Sequence[int]]
    languages: Sequence[TargetLanguage | None]
    fronts: Sequence[int] | None = None
    prompts: Sequence[Sequence[int]] | None = None
    preferred: Sequence[Sequence[Phrase]] | None = None

    def length(self, row: int) -> int:
        """Subwords of a source without context and end symbol."""
        return len(self.sources[row]) - 1 - (0 if self.fronts is None else self.fronts[row])

    def read_first(self, row: int) -> list[int]:
        """What the decoder reads in front of a translation."""
        language, prompts = self.languages[row], self.prompts
        first = BOS if language is None else language.first_token
        return [first, *(() if prompts is None else prompts[row])]


class ForcedScoring(NamedTuple):
    """Subwords whose probabilities are asked for.

    Attributes:
        row: Of which sentence.
        read: What the decoder reads of the translation.
        tokens: What is asked for in front of each of these and behind the last.
    """

    row: int
    read: Sequence[int]
    tokens: Sequence[int]


class _ForcedBatch(NamedTuple):
    """Given translations, padded; `rows` of what is asked, and where the first subword is predicted."""

    rows: Sequence[int]
    source: Tensor
    read: Tensor
    languages: Tensor | None
    firsts: Sequence[int]


class ForcedPrefix(NamedTuple):
    """A forced prefix: a beginning of a translation, from which the search goes on.

    Attributes:
        row: Of which sentence.
        ids: Its subwords.
        more: Most subwords that may follow.
        log_probability: Of its subwords.
    """

    row: int
    ids: Sequence[int]
    more: int
    log_probability: float = 0.0


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
        self, sentences: SearchInputs, rows: Sequence[int], config: DecodingConfig
    ) -> list[list[Hypothesis]]:
        """Hypotheses of some of the sentences, best first, in the order of `rows`."""

        def translate(rows: Sequence[int], stop: Event) -> list[list[Hypothesis]]:
            source, prefixes = self._inputs(sentences, rows)
            languages = [sentences.languages[row] for row in rows]
            preferred = None if sentences.preferred is None else [sentences.preferred[row] for row in rows]
            needed = prefixes
            if preferred is not None:
                needed = [
                    [*prefix, *(subword for phrase in phrases for subword in phrase.subwords)]
                    for prefix, phrases in zip(prefixes, preferred, strict=True)
                ]
            shortlist = self._batch_shortlist(languages, source, needed)
            limits, draws = self._limits(sentences, rows, config), [sentences.draws[row] for row in rows]

            tokens = None if shortlist is None else shortlist.tokens
            chosen = self.model if shortlist is None else self.model.select(*shortlist)
            model = self._into(chosen, sentences, rows, stop)
            return generate(
                model, source, limits, config, draws, prefixes, shortlist=tokens, preferred=preferred
            )

        tokens = max(1, config.batch_tokens // config.width)
        lengths = [len(sentences.sources[row]) for row in rows]
        return self._in_batches(lengths, rows, tokens, translate)

    def search_with(
        self,
        sentences: SearchInputs,
        prefixes: Sequence[ForcedPrefix],
        phrases: Sequence[Sequence[Phrase]],
        config: DecodingConfig,
    ) -> list[list[Hypothesis]]:
        """Hypotheses that have given phrases behind their prefixes; none where there are none.

        All subwords may be used.

        Args:
            sentences: What is translated.
            prefixes: Of some of the sentences.
            phrases: Of each of these.
            config: Settings; nothing is drawn at random.
        """
        bounds = word_bounds(self.vocabularies.target)

        def translate(rows: Sequence[int], stop: Event) -> list[list[Hypothesis]]:
            chosen_prefixes, chosen_phrases = [prefixes[row] for row in rows], [phrases[row] for row in rows]
            source = pad_batch([sentences.sources[prefix.row] for prefix in chosen_prefixes], self.device)
            limits = [prefix.more for prefix in chosen_prefixes]
            scored_prefixes = [
                ScoredPrefix(tuple(prefix.ids), prefix.log_probability) for prefix in chosen_prefixes
            ]
            model = self._behind(sentences, chosen_prefixes, stop)
            return constrained_search(model, source, limits, config, chosen_phrases, bounds, scored_prefixes)

        hypotheses_of: dict[int, list[Hypothesis]] = {}
        for width, group in _by_width(
            [beam_for(config.beam, sentence_phrases) for sentence_phrases in phrases]
        ):
            lengths = [len(sentences.sources[prefixes[place].row]) for place in group]
            tokens = max(1, config.batch_tokens // width)
            hypotheses_of |= dict(
                zip(group, self._in_batches(lengths, group, tokens, translate), strict=True)
            )
        return [hypotheses_of[place] for place in range(len(prefixes))]

    def _behind(
        self,
        sentences: SearchInputs,
        prefixes: Sequence[ForcedPrefix],
        stop: Event,
    ) -> CancellableModel[Any]:
        """A model that reads the prefixes in one pass, which costs no steps of the search."""
        begins = [[*sentences.read_first(prefix.row), *prefix.ids] for prefix in prefixes]
        targets = [
            language for prefix in prefixes if (language := sentences.languages[prefix.row]) is not None
        ]
        size = self.vocabularies.target.size
        return CancellableModel(PromptedModel(self.model, begins, size, targets or None), stop)

    def _into(
        self, model: Ensemble[StateT], sentences: SearchInputs, rows: Sequence[int], stop: Event
    ) -> CancellableModel[Any]:
        """A model that translates each row into its language and behind its prompt, until told to stop."""
        targets = [language for row in rows if (language := sentences.languages[row]) is not None]
        if not targets and sentences.prompts is None:
            return CancellableModel(model, stop)
        begins, pieces = [sentences.read_first(row) for row in rows], self.vocabularies.target.size
        return CancellableModel(PromptedModel(model, begins, pieces, targets or None), stop)

    def scores_of(self, sentences: SearchInputs, asked: Sequence[ForcedScoring]) -> list[list[list[float]]]:
        """Log-probabilities `[T + 1, k]` of k subwords before each of T that are read, and behind all."""

        def score(batch: _ForcedBatch) -> list[list[list[float]]]:
            log_probs = self.model.log_probs(batch.source, batch.read, languages=batch.languages)
            wanted = pad_batch([asked[row].tokens for row in batch.rows], self.device)
            values = log_probs.gather(2, wanted.unsqueeze(1).expand(-1, log_probs.size(1), -1)).tolist()
            return [
                [
                    each[: len(asked[row].tokens)]
                    for each in row_values[first : first + len(asked[row].read) + 1]
                ]
                for row, first, row_values in zip(batch.rows, batch.firsts, values, strict=True)
            ]

        return self._forced(sentences, asked, score)

    def _forced(
        self,
        sentences: SearchInputs,
        asked: Sequence[ForcedScoring],
        score: Callable[[_ForcedBatch], list[Result]],
    ) -> list[Result]:
        """What is made of passes over given translations, batch by batch."""
        read = [[*sentences.read_first(forced.row), *forced.read] for forced in asked]
        sources = [sentences.sources[forced.row] for forced in asked]

        @torch.inference_mode()
        def scored(rows: Sequence[int], stop: Event) -> list[Result]:
            if stop.is_set():
                raise Cancelled
            targets = [language for row in rows if (language := sentences.languages[asked[row].row])]
            source, target = (pad_batch([side[row] for row in rows], self.device) for side in (sources, read))
            languages = target_language_ids(targets, self.device) if targets else None
            firsts = [len(read[row]) - len(asked[row].read) - 1 for row in rows]
            return score(_ForcedBatch(rows, source, target, languages, firsts))

        lengths = [max(map(len, pair)) for pair in zip(sources, read, strict=True)]
        batches = batches_by_length(lengths, _FORCED_TOKENS)
        results: dict[int, Result] = {}
        for batch, values in zip(batches, ordered_map(scored, batches, self.device), strict=True):
            results |= dict(zip(batch, values, strict=True))
        return [results[place] for place in range(len(asked))]

    def _in_batches(
        self,
        lengths: Sequence[int],
        rows: Sequence[int],
        tokens: int,
        translate: _Translate,
    ) -> list[list[Hypothesis]]:
        batches = batches_by_length(lengths, tokens)
        by_batch = ordered_map(
            translate, [[rows[place] for place in batch] for batch in batches], self.device
        )
        results: list[list[Hypothesis]] = [[] for _ in rows]
        for batch, of_batch in zip(batches, by_batch, strict=True):
            for place, hypotheses in zip(batch, of_batch, strict=True):
                results[place] = hypotheses
        return results

    def _inputs(self, sentences: SearchInputs, rows: Sequence[int]) -> tuple[Tensor, list[Sequence[int]]]:
        source = pad_batch([sentences.sources[row] for row in rows], self.device)
        return source, [sentences.prefixes[row] for row in rows]

    @staticmethod
    def _limits(sentences: SearchInputs, rows: Sequence[int], config: DecodingConfig) -> list[int]:
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


def _by_width(widths: Sequence[int]) -> list[tuple[int, list[int]]]:
    """Places of equal width; a few of one width go with those of the next one, for full batches."""
    groups: list[tuple[int, list[int]]] = []
    waiting: list[int] = []
    for width in sorted(set(widths)):
        waiting += [place for place, beam in enumerate(widths) if beam == width]
        if len(waiting) >= _FEW or width == max(widths):
            groups.append((width, waiting))
            waiting = []
    return groups
