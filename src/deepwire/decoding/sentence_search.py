"""Hypotheses of many sentences, in batches of similar length: free ones, and those that have phrases."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any, Generic

import torch
from torch import Tensor

from deepwire.data.languages import Languages
from deepwire.data.vocabulary import BOS, Vocabularies
from deepwire.decoding.constrained_search import beam_for, constrained_search
from deepwire.decoding.decoding_config import DecodingConfig
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
