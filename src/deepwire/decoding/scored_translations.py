"""Translations that are there, as the model scores them: where a phrase could stand for a subword.

A search that changes a translation at one place reads it up to there, and translates the rest anew.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from deepwire.data.vocabulary import EOS
from deepwire.decoding.hypotheses import Hypothesis
from deepwire.decoding.required_phrases import Phrase, WordBounds
from deepwire.decoding.sentence_search import ForcedScoring, SearchInputs, SentenceSearch
from deepwire.decoding.step_models import StateT

_LONGER, _MORE = 1.25, 6


@dataclass(frozen=True)
class ScoredTranslation:
    """A translation with the log-probabilities of some subwords at each of its places.

    Attributes:
        row: Which sentence it translates.
        ids: Its subwords.
        log_probs: Of each of them, and of the end: one more than there are subwords.
        fits: At each place, by the first subword of a phrase: its log-probability there, less that of the
            subword that is there.
    """

    row: int
    ids: Sequence[int]
    log_probs: Sequence[float]
    fits: Sequence[Mapping[int, float]]


def scored_translations(
    search: SentenceSearch[StateT],
    sentences: SearchInputs,
    hypotheses_of: Mapping[int, Sequence[Hypothesis]],
    phrases: Mapping[int, Sequence[Phrase]],
) -> list[ScoredTranslation]:
    """The best translations of some sentences, in one pass over each.

    Args:
        search: Scores.
        sentences: What is translated.
        hypotheses_of: The translations that there are.
        phrases: Of each sentence, those that might stand somewhere in its translation.
    """
    firsts = {
        row: sorted({first for phrase in of_row for first in phrase.firsts})
        for row, of_row in phrases.items()
    }
    asked = []
    for row, tokens in firsts.items():
        ids = hypotheses_of[row][0].ids
        asked.append(ForcedScoring(row, ids, list(dict.fromkeys((*tokens, *ids, EOS)))))
    scored = []
    for forced, values in zip(asked, search.scores_of(sentences, asked), strict=True):
        column = {token: number for number, token in enumerate(forced.tokens)}
        log_probs = [values[at][column[token]] for at, token in enumerate((*forced.read, EOS))]
        fits = [
            {first: here[column[first]] - own for first in firsts[forced.row]}
            for here, own in zip(values, log_probs, strict=True)
        ]
        scored.append(ScoredTranslation(forced.row, forced.read, log_probs, fits))
    return scored


def most_anew(subwords: int) -> int:
    """Most subwords of what is translated anew in the place of so many."""
    return int(_LONGER * subwords) + _MORE


def between_words(ids: Sequence[int], first: int, bounds: WordBounds) -> list[int]:
    """Where no word goes on, from a place on; the end too.

    Args:
        ids: Subwords.
        first: The earliest place.
        bounds: Which of them stand within words.
    """
    return [
        at
        for at in range(first, len(ids) + 1)
        if (at == len(ids) or ids[at] not in bounds.inside) and (at == 0 or ids[at - 1] not in bounds.open)
    ]
