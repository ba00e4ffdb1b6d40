"""From lines as a model reads them to hypotheses, in batches of similar length, and second searches.

A second search is for lines whose translation is degenerate, or lacks what it must have.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from threading import Event
from typing import NamedTuple

import torch
from torch import Tensor

from deepwire.data.languages import Languages
from deepwire.data.text.casing import OrdinaryLine
from deepwire.data.text.sentences import TextSegments
from deepwire.data.vocabulary import BOS, EOS, Vocabularies
from deepwire.decoding.constrained_search import beam_for, constrained_search
from deepwire.decoding.decoding_config import DecodingConfig, with_settings
from deepwire.decoding.model_inputs import TargetLanguage, map_batches, pad_batch, target_language_ids
from deepwire.decoding.models import DecodingModel
from deepwire.decoding.phrases import Phrase, WordBounds, word_bounds
from deepwire.decoding.search import Batch, Hypothesis, generate
from deepwire.decoding.shortlist import BatchShortlist, LanguageRows, Shortlist, batch_shortlist
from deepwire.decoding.terms import LineConstraints
from deepwire.decoding.translation_io import Candidate, Request

_FORCED_TOKENS = 512
"""Padded subwords of a batch whose probabilities of all subwords are in memory at once."""
_FEW = 16
"""So few sentences are no batch of their own."""
_MOST_LINES = 1 << 40  # more than any text has
_LONGEST_LOOP, _LOOP_TIMES = 8, 4
_NO_REPEAT = 3
"""The second try has no n-gram of this size twice."""
_MARGIN = 2.0
"""A phrase may stand where it is so many nats less probable than at its best place."""
_ATTEMPTS = 3
_CHOICE = 2
"""Hypotheses of a second search, of which one may have all that the line must have."""
_LONGER, _MORE = 1.25, 6


@dataclass(eq=False)
class Item:
    """A line, or a piece of a long one, on its way to its translations.

    Attributes:
        line: The number of the line, from 1.
        request: What was asked for.
        text: What is translated; also without what is not written in ordinary case.
        prefix: Text that the translation begins with.
        piece: Which piece of its line it is.
        cut: How its line was cut; None: it is whole.
        ordinary: How to write the translation as the line was written; None: as it is.
        copied: Whether it is its own translation.
        language: The target language; None with one direction.
        constraints: What the translation must have; None: nothing can be required.
        source: Subwords as the model reads them; empty = nothing to translate.
        front: How many of these are context, behind the begin symbol and the tag.
        prompt: Subwords of context that the decoder reads in front of the translation.
        prefix_ids: Subwords that the translation begins with.
        bonus_phrases: Phrases that it should rather have.
        hypotheses: What a search found, best first.
        candidates: What a user gets, best first.
    """

    line: int
    request: Request
    text: str
    prefix: str = ""
    piece: int = 0
    cut: CutLine | None = None
    ordinary: OrdinaryLine | None = None
    copied: bool = False
    language: TargetLanguage | None = None
    constraints: LineConstraints | None = None
    source: list[int] = field(default_factory=list)
    front: int = 0
    prompt: list[int] = field(default_factory=list)
    prefix_ids: list[int] = field(default_factory=list)
    bonus_phrases: list[Phrase] = field(default_factory=list)
    hypotheses: list[Hypothesis] = field(default_factory=list)
    candidates: tuple[Candidate, ...] = ()

    @property
    def draw(self) -> int:
        """The number from which its random numbers follow."""
        return self.line + self.piece * _MOST_LINES

    @property
    def length(self) -> int:
        """Subwords of the source without context and end symbol."""
        return len(self.source) - 1 - self.front

    @property
    def read_first(self) -> list[int]:
        """Subwords that the decoder reads in front of the translation."""
        return [BOS if self.language is None else self.language.first_token, *self.prompt]


@dataclass(frozen=True, eq=False)
class CutLine:
    """A line in pieces."""

    whole: Item
    segments: TextSegments


class _Beginning(NamedTuple):
    """The beginning of a translation from which a search goes on, and most subwords that may follow."""

    ids: Sequence[int]
    more: int
    log_probability: float


@dataclass(frozen=True)
class SentenceSearch:
    """Searches with models and settings.

    Args:
        model: The model, or several as one.
        vocabularies: Theirs.
        device: Where they are.
        languages: Of models with several directions.
        shortlist: What target subwords each batch is translated with; None = all of them.
    """

    model: DecodingModel
    vocabularies: Vocabularies
    device: torch.device
    languages: Languages | None
    shortlist: Shortlist | None

    def search(self, items: Sequence[Item], config: DecodingConfig) -> list[list[Hypothesis]]:
        """Hypotheses of each item, best first."""

        def translate(rows: Sequence[int], stop: Event) -> list[list[Hypothesis]]:
            chosen = [items[row] for row in rows]
            source, languages = self._source(chosen)
            batch = Batch(
                source,
                [config.output_limit(item.length) for item in chosen],
                [item.draw for item in chosen],
                prefixes=[item.prefix_ids for item in chosen],
                prompts=[item.read_first for item in chosen],
                languages=languages,
                pieces=self.vocabularies.target.size,
                bonus_phrases=[item.bonus_phrases for item in chosen],
                stop=stop,
            )
            if self.shortlist is None:
                return generate(self.model, batch, config)
            shortlist = self._batch_shortlist(self.shortlist, chosen, source.cpu())
            batch = replace(batch, shortlist=shortlist.tokens)
            return generate(self.model.select(*shortlist), batch, config)

        tokens = max(1, config.batch_tokens // config.width)
        return map_batches(translate, [len(item.source) for item in items], tokens, self.device)

    def _search_with(
        self,
        items: Sequence[Item],
        begins: Sequence[_Beginning],
        phrases: Sequence[Sequence[Phrase]],
        config: DecodingConfig,
    ) -> list[list[Hypothesis]]:
        """Hypotheses of each item that have phrases behind its beginning; none where there are none.

        All subwords may be used, and nothing is drawn at random.
        """
        bounds = word_bounds(self.vocabularies.target)
        found: dict[int, list[Hypothesis]] = {}
        for width, group in _by_width([beam_for(config.beam, required) for required in phrases]):

            def translate(
                rows: Sequence[int], stop: Event, group: Sequence[int] = group
            ) -> list[list[Hypothesis]]:
                places = [group[row] for row in rows]
                chosen, begun = [items[place] for place in places], [begins[place] for place in places]
                source, languages = self._source(chosen)
                batch = Batch(
                    source,
                    [begin.more for begin in begun],
                    languages=languages,
                    # The model reads beginnings in one pass, which costs no steps of the search.
                    prompts=[[*items[place].read_first, *begins[place].ids] for place in places],
                    pieces=self.vocabularies.target.size,
                    context_ids=[begin.ids for begin in begun],
                    stop=stop,
                )
                required, read = [phrases[place] for place in places], [begin[2] for begin in begun]
                return constrained_search(self.model, batch, config, required, bounds, read)

            lengths = [len(items[place].source) for place in group]
            tokens = max(1, config.batch_tokens // width)
            found |= zip(group, map_batches(translate, lengths, tokens, self.device), strict=True)
        return [found[place] for place in range(len(items))]

    def _scores(self, items: Sequence[Item], tokens: Sequence[Sequence[int]]) -> list[list[list[float]]]:
        """Log-probabilities `[T + 1, k]` of k tokens of each item before each of T subwords, and behind all.

        The subwords are those of the best hypothesis.
        """
        read = [[*item.read_first, *item.hypotheses[0].ids] for item in items]

        @torch.inference_mode()
        def score(rows: Sequence[int], _stop: Event) -> list[list[list[float]]]:
            source, languages = self._source([items[row] for row in rows])
            target = pad_batch([read[row] for row in rows], self.device)
            log_probs = self.model.log_probs(source, target, languages=languages)
            wanted = pad_batch([tokens[row] for row in rows], self.device)
            values = log_probs.gather(2, wanted.unsqueeze(1).expand(-1, log_probs.size(1), -1)).tolist()
            return [
                [place[: len(tokens[row])] for place in of_row[len(items[row].prompt) : len(read[row])]]
                for row, of_row in zip(rows, values, strict=True)
            ]

        lengths = [max(len(item.source), len(ids)) for item, ids in zip(items, read, strict=True)]
        return map_batches(score, lengths, _FORCED_TOKENS, self.device)

    def _source(self, items: Sequence[Item]) -> tuple[Tensor, Tensor | None]:
        """Source subwords `[N, S]` and target languages."""
        targets = [item.language for item in items if item.language is not None]
        source = pad_batch([item.source for item in items], self.device)
        return source, target_language_ids(targets, self.device) if targets else None

    def _batch_shortlist(self, shortlist: Shortlist, items: Sequence[Item], source: Tensor) -> BatchShortlist:
        rows_of: dict[int, list[int]] = {}
        for row, item in enumerate(items):
            rows_of.setdefault(0 if item.language is None else item.language.language_id, []).append(row)
        names = ("",) if self.languages is None else self.languages.names
        needed = [
            [*item.prefix_ids, *(subword for phrase in item.bonus_phrases for subword in phrase.subwords)]
            for item in items
        ]
        parts = [
            LanguageRows(index, shortlist.table(names[index]), source[rows], [needed[row] for row in rows])
            for index, rows in rows_of.items()
        ]
        return batch_shortlist(parts, len(names)).to(self.device)

    def retry_degenerate(self, items: Sequence[Item], config: DecodingConfig) -> None:
        """Search again, without repeated n-grams, where the best translation is clearly wrong."""

        def is_wrong(item: Item, hypotheses: Sequence[Hypothesis]) -> bool:
            source = item.source[-item.length - 1 :]
            return is_degenerate(source, hypotheses[0].ids, config.output_limit(item.length))

        again = [item for item in items if is_wrong(item, item.hypotheses)]
        if again:
            shortest = min(config.no_repeat_ngram or _NO_REPEAT, _NO_REPEAT)
            better = self.search(again, with_settings(config, {"no_repeat_ngram": shortest}))
            for item, hypotheses in zip(again, better, strict=True):
                # One that is wrong in both tries is shown as the model would have it.
                if not is_wrong(item, hypotheses):
                    item.hypotheses = hypotheses

    def enforce_constraints(self, items: Sequence[Item], config: DecodingConfig) -> None:
        """Search again where translations lack something, for those that have it."""
        target, constraints_of = self.vocabularies.target, dict[Item, LineConstraints]()
        for item in items:
            assert item.constraints is not None
            terms = () if config.term_search == "prefer" else item.constraints.terms
            constraints_of[item] = replace(item.constraints, terms=terms)

        def met(item: Item, hypothesis: Hypothesis) -> bool:
            return constraints_of[item].met_by(target.decode(hypothesis.ids))

        # Lacking terms alone disturb the rest least. Where that costs another one, that is required, too.
        required_of: dict[Item, Counter[Phrase]] = {}
        several = with_settings(config, {"n_best": max(config.n_best, min(config.beam, _CHOICE))})
        for attempt in range(_ATTEMPTS):
            again = [item for item in items if not all(met(item, each) for each in item.hypotheses)]
            if not again:
                return
            last = attempt == _ATTEMPTS - 1
            for item in again:
                have = "" if last else target.decode(item.hypotheses[0].ids)
                required = Counter(constraints_of[item].phrases(target, item.prefix, have))
                required_of[item] = required_of.get(item, Counter()) | required
            phrases = [list(required_of[item].elements()) for item in again]
            from_start = last or config.n_best > 1
            begins = self._beginnings(again, phrases, config, from_start=from_start)
            better = self._search_with(again, begins, phrases, several)
            for item, hypotheses in zip(again, better, strict=True):
                if hypotheses:
                    # One that happens to have all terms needs no further search.
                    best = sorted(hypotheses, key=lambda hypothesis: not met(item, hypothesis))
                    item.hypotheses = best[: config.n_best]

    def _beginnings(
        self,
        items: Sequence[Item],
        phrases: Sequence[Sequence[Phrase]],
        config: DecodingConfig,
        *,
        from_start: bool,
    ) -> list[_Beginning]:
        """How far translations stay as they are: up to where the first phrase that is required might stand.

        There the model, which has read the translation up to it, likes the phrase nearly as much as it does
        anywhere, against its own next subword. That takes one pass over whole translations. With
        `from_start` nothing but a given prefix stays.
        """
        firsts = [sorted({first for phrase in required for first in phrase.firsts}) for required in phrases]
        asked = [
            list(dict.fromkeys((*tokens, *item.hypotheses[0].ids, EOS)))
            for tokens, item in zip(firsts, items, strict=True)
        ]
        begins = []
        for item, required, tokens, values in zip(
            items, phrases, asked, self._scores(items, asked), strict=True
        ):
            ids, given = item.hypotheses[0].ids, len(item.prefix_ids)
            scores = [dict(zip(tokens, place, strict=True)) for place in values]
            own = [place[token] for place, token in zip(scores, (*ids, EOS), strict=True)]
            starts = between_words(ids, given, word_bounds(self.vocabularies.target))
            starts = starts[:-1] or starts  # a term that found no place goes to the end of a translation
            at = given
            if not from_start and starts:
                fits = [
                    {at: max(scores[at][form[0]] - own[at] for form in phrase.forms) for at in starts}
                    for phrase in required
                ]
                at = min(map(_first_place, fits), default=given)
            more = config.output_limit(item.length) - at
            if not from_start:
                likely = min(len(ids), _most_anew(item.length))
                more = min(more, _most_anew(max(likely - at, 0)))
            begins.append(_Beginning(ids[:at], max(more, 1), sum(own[:at])))
        return begins


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


def _first_place(fits: Mapping[int, float]) -> int:
    """The first place that is nearly as good as the best."""
    least = max(fits.values()) - _MARGIN
    return min(at for at, fit in fits.items() if fit >= least)


def _most_anew(subwords: int) -> int:
    """Most subwords that are translated anew in the place of so many."""
    return int(_LONGER * subwords) + _MORE


def between_words(ids: Sequence[int], first: int, bounds: WordBounds) -> list[int]:
    """The places from `first` on where no word goes on; the end too."""
    return [
        at
        for at in range(first, len(ids) + 1)
        if (at == len(ids) or ids[at] not in bounds.inside) and (at == 0 or ids[at - 1] not in bounds.open)
    ]


def loops(ids: Sequence[int]) -> bool:
    """Whether some subwords, eight at most, come four times in a row; a single one five times."""
    for size in range(1, _LONGEST_LOOP + 1):
        same = 0
        for place in range(size, len(ids)):
            same = same + 1 if ids[place] == ids[place - size] else 0
            if same >= size * (_LOOP_TIMES - 1) and (size > 1 or same >= _LOOP_TIMES):
                return True
    return False


def is_degenerate(source: Sequence[int], translation: Sequence[int], limit: int) -> bool:
    """Whether a translation repeats itself as its source does not, or has all subwords that it could have."""
    return len(translation) >= limit or (loops(translation) and not loops(source))
