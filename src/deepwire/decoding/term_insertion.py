"""Terms that a translation lacks, put where they fit it best, and the rest translated anew behind them.

A constrained search keeps a wide beam from the first subword to the last. Most translations lack one term
alone, and have another word in its place. So the place is looked for in the translation that is there: where
the model, which has read it up to there, likes the term best against its own next subword. That takes passes
over whole sentences and no search. Then a narrow beam search goes on behind the term.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from heapq import nlargest
from typing import Generic, NamedTuple

from deepwire.decoding.decoding_config import DecodingConfig, with_settings
from deepwire.decoding.hypotheses import Hypothesis, LengthPenalty
from deepwire.decoding.lexical_constraints import LineConstraints
from deepwire.decoding.required_phrases import Phrase, WordBounds, word_bounds
from deepwire.decoding.scored_translations import between_words, most_anew, scored_translations
from deepwire.decoding.sentence_search import ForcedPrefix, ForcedScoring, SearchInputs, SentenceSearch
from deepwire.decoding.step_models import StateT

_ROUNDS = 12
"""A translation gets one term in each, from the left to the right."""
_PLACES = 3
"""Places of a term for which all of its subwords are scored."""
_BEAM = 2
"""Hypotheses that go on behind a term, at most."""


class _Place(NamedTuple):
    """A term in a translation.

    Attributes:
        row: Which translation.
        at: How many of its subwords stay.
        form: The subwords of the term.
        whole: Whether the word ends with the term.
        fit: Log-probability of the term there, less that of the subword that is there.
    """

    row: int
    at: int
    form: tuple[int, ...]
    whole: bool
    fit: float


def insert_terms(
    constraints: Sequence[LineConstraints],
    search: SentenceSearch[StateT],
    sentences: SearchInputs,
    hypotheses_of: dict[int, list[Hypothesis]],
    config: DecodingConfig,
) -> None:
    """Give the terms to translations that lack nothing else.

    What cannot be done in this way, and several translations of a line, are left to the constrained search.

    Args:
        constraints: What each translation must have.
        search: Scores, and searches again.
        sentences: What is translated.
        hypotheses_of: The hypotheses of lines, which are replaced.
        config: How to search.
    """
    if config.term_search != "insert" or config.n_best > 1:
        return
    work = _Insertion(constraints, search, sentences, hypotheses_of, config)
    rows = list(hypotheses_of)
    for _ in range(_ROUNDS):
        rows = [row for row in rows if 0 < work.missing(row, hypotheses_of[row][0].ids) < sys.maxsize]
        if not rows:
            return
        work.improve(rows)


@dataclass(frozen=True)
class _Insertion(Generic[StateT]):
    constraints: Sequence[LineConstraints]
    search: SentenceSearch[StateT]
    sentences: SearchInputs
    hypotheses_of: dict[int, list[Hypothesis]]
    config: DecodingConfig
    fixed: dict[int, int] = field(default_factory=dict)
    """Subwords at the beginning of translations that stay."""

    @property
    def bounds(self) -> WordBounds:
        """Those of the target vocabulary."""
        return word_bounds(self.search.vocabularies.target)

    def lacking(self, row: int, ids: Sequence[int]) -> list[Phrase]:
        """The terms that a translation lacks."""
        target = self.search.vocabularies.target
        return replace(self.constraints[row], values={}, kept={}).phrases(target, have=target.decode(ids))

    def missing(self, row: int, ids: Sequence[int]) -> int:
        """How many terms it lacks; far too many where it lacks anything else."""
        others = replace(self.constraints[row], terms=())
        if not others.met_by(self.search.vocabularies.target.decode(ids)):
            return sys.maxsize
        return len(self.lacking(row, ids))

    def improve(self, rows: Sequence[int]) -> None:
        """Give translations that lack terms one of these, and translate anew what comes behind it."""
        log_probs, of_first = self._places(rows)
        places = self._best(of_first, log_probs)
        prefixes = [self._forced_prefix(place) for place in places]
        narrow = with_settings(self.config, {"beam": min(self.config.beam, _BEAM)})
        ends = self.search.continued(self.sentences, prefixes, narrow)
        divisor = LengthPenalty.of(self.config).divisor
        for place, prefix, (end, *_) in zip(places, prefixes, ends, strict=True):
            ids = (*prefix.ids, *end.ids)
            before = sum(log_probs[place.row][: place.at + 1]) + place.fit
            total = before + end.log_probability
            if self.missing(place.row, ids) < sys.maxsize:
                self.hypotheses_of[place.row] = [Hypothesis(ids, total, total / divisor(len(ids) + 1))]
                self.fixed[place.row] = len(prefix.ids)

    def _forced_prefix(self, place: _Place) -> ForcedPrefix:
        """A translation up to a term. What follows is not much longer than what followed before."""
        ids = self.hypotheses_of[place.row][0].ids
        more = most_anew(len(ids) - place.at)
        return ForcedPrefix(place.row, (*ids[: place.at], *place.form), more, whole=place.whole)

    def _places(self, rows: Sequence[int]) -> tuple[dict[int, Sequence[float]], dict[int, list[_Place]]]:
        """Log-probabilities of the subwords of translations; and places of one term by its first subword.

        The term is that whose best place comes first.
        """
        lacking = {
            row: list(dict.fromkeys(self.lacking(row, self.hypotheses_of[row][0].ids))) for row in rows
        }
        log_probs: dict[int, Sequence[float]] = {}
        places_of: dict[int, list[_Place]] = {}
        for scored in scored_translations(self.search, self.sentences, self.hypotheses_of, lacking):
            row, log_probs[scored.row] = scored.row, scored.log_probs
            start = max(self.fixed.get(row, 0), len(self.sentences.prefixes[row]))
            starts = between_words(scored.ids, start, self.bounds)
            by_term = [
                nlargest(
                    _PLACES,
                    (
                        _Place(row, at, form, number not in phrase.open, scored.fits[at][form[0]])
                        for at in starts
                        for number, form in enumerate(phrase.forms)
                    ),
                    key=_fit,
                )
                for phrase in lacking[row]
            ]
            places_of[row] = min(filter(None, by_term), key=lambda places: places[0].at, default=[])
        return log_probs, places_of

    def _best(
        self, places: Mapping[int, Sequence[_Place]], log_probs: Mapping[int, Sequence[float]]
    ) -> list[_Place]:
        """The best place of each translation by all subwords of the term."""
        every = [place for each in places.values() for place in each]
        # With one subword the fit is known.
        long = [place for place in every if len(place.form) > 1]
        asked = [
            ForcedScoring(place.row, self.hypotheses_of[place.row][0].ids[: place.at], place.form)
            for place in long
        ]
        values = iter(self.search.score_continuation(self.sentences, asked))
        best: dict[int, _Place] = {}
        for place in every:
            if len(place.form) > 1:
                place = place._replace(fit=next(values) - log_probs[place.row][place.at])
            if place.row not in best or place.fit > best[place.row].fit:
                best[place.row] = place
        return list(best.values())


def _fit(place: _Place) -> float:
    return place.fit
