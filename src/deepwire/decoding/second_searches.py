"""Lines that are searched for again: their translation is clearly wrong, or lacks what it must have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from deepwire.data.vocabulary import EOS
from deepwire.decoding.decoding_config import DecodingConfig, with_settings
from deepwire.decoding.demands import LineDemands, with_symbols
from deepwire.decoding.guards import NO_REPEAT, suspicious
from deepwire.decoding.hypotheses import Hypothesis
from deepwire.decoding.required_phrases import Phrase, word_bounds
from deepwire.decoding.sentence_search import Asked, Beginning, Sentences, SentenceSearch
from deepwire.decoding.step_models import StateT
from deepwire.decoding.term_insertion import between_words, insert_terms
from deepwire.decoding.translation_io import Request

_MARGIN = 2.0
"""A phrase may stand where it is so many nats less probable than at its best place."""
_ATTEMPTS = 3
_CHOICE = 2
"""Hypotheses of a second search, of which one may have all that the line must have."""
_LONGER, _MORE = 1.25, 6
"""Most subwords of what is translated anew: so many times those that were there, and a few."""
Found = dict[int, list[Hypothesis]]
"""The hypotheses of lines, which a second search replaces."""


def try_again(
    search: SentenceSearch[StateT], sentences: Sentences, found: Found, config: DecodingConfig
) -> None:
    """Search again, without repeated n-grams, where the best translation is clearly wrong."""

    def is_wrong(row: int, hypotheses: Sequence[Hypothesis]) -> bool:
        length = sentences.length(row)
        source = sentences.sources[row][-length - 1 :]
        return suspicious(source, hypotheses[0].ids, config.output_limit(length))

    again = [row for row, hypotheses in found.items() if is_wrong(row, hypotheses)]
    if again:
        better = search.search(sentences, again, with_settings(config, {"no_repeat_ngram": NO_REPEAT}))
        # One that is wrong in both tries is shown as the model would have it.
        found.update({row: own for row, own in zip(again, better, strict=True) if not is_wrong(row, own)})


def meet_demands(
    demands: Sequence[LineDemands],
    requests: Sequence[Request],
    search: SentenceSearch[StateT],
    sentences: Sentences,
    found: Found,
    config: DecodingConfig,
) -> None:
    """Search again where translations lack something, for those that have it."""
    target = search.vocabularies.target
    if config.term_search in ("none", "prefer"):
        demands = [replace(one, terms=()) for one in demands]

    def met(row: int) -> bool:
        return all(demands[row].met_by(target.decode(one.ids)) for one in found[row])

    insert_terms(demands, search, sentences, found, config)
    # Lacking terms alone disturb the rest least. Where that costs another one, that is demanded, too.
    demanded: dict[int, Counter[Phrase]] = {}
    several = with_settings(config, {"n_best": max(config.n_best, min(config.beam, _CHOICE))})
    for attempt in range(_ATTEMPTS):
        again = [row for row in found if not met(row)]
        if not again:
            return
        last = attempt == _ATTEMPTS - 1
        for row in again:
            prefix = with_symbols(requests[row].prefix, demands[row].values)
            have = "" if last else target.decode(found[row][0].ids)
            own = Counter(demands[row].phrases(target, prefix, have))
            demanded[row] = demanded.get(row, Counter()) | own
        phrases = {row: list(demanded[row].elements()) for row in again}
        from_start = last or config.n_best > 1
        begins = beginnings(search, sentences, found, phrases, config, from_start=from_start)
        better = search.search_with(sentences, begins, list(phrases.values()), several)
        for row, hypotheses in zip(again, better, strict=True):
            if hypotheses:
                # One that happens to have all terms needs no further search.
                best = sorted(hypotheses, key=lambda one: not demands[row].met_by(target.decode(one.ids)))
                found[row] = best[: config.n_best]


def beginnings(
    search: SentenceSearch[StateT],
    sentences: Sentences,
    found: Found,
    phrases: Mapping[int, Sequence[Phrase]],
    config: DecodingConfig,
    *,
    from_start: bool,
) -> list[Beginning]:
    """How far translations stay as they are: up to where the first phrase that is demanded might stand.

    There the model, which has read the translation up to it, likes the phrase nearly as much as it does
    anywhere, against its own next subword. That takes one pass over whole translations.

    Args:
        search: Scores.
        sentences: What is translated.
        found: The translations that there are.
        phrases: Of each of some of them, what is demanded.
        config: How to search.
        from_start: Whether nothing but a given prefix stays.
    """
    asked = []
    for row, own in phrases.items():
        firsts = sorted({first for phrase in own for first in phrase.firsts})
        ids = found[row][0].ids
        asked.append(Asked(row, ids, list(dict.fromkeys((*firsts, *ids, EOS)))))
    begins = []
    for one, values in zip(asked, search.scores_of(sentences, asked), strict=True):
        column = {token: number for number, token in enumerate(one.tokens)}
        log_probs = [values[at][column[token]] for at, token in enumerate((*one.read, EOS))]
        given = len(sentences.prefixes[one.row])
        starts = between_words(one.read, given, word_bounds(search.vocabularies.target))
        starts = starts[:-1] or starts  # the end of a translation is where a term goes that found no place
        at = given
        if not from_start and starts:
            firsts = [
                _first_place(
                    {
                        at: max(values[at][column[way[0]]] for way in phrase.ways) - log_probs[at]
                        for at in starts
                    }
                )
                for phrase in phrases[one.row]
            ]
            at = min(firsts, default=given)
        more = config.output_limit(sentences.length(one.row)) - at
        if not from_start:
            likely = min(len(one.read), int(_LONGER * sentences.length(one.row)) + _MORE)
            more = min(more, int(_LONGER * max(likely - at, 0)) + _MORE)
        begins.append(Beginning(one.row, one.read[:at], max(more, 1), log_probability=sum(log_probs[:at])))
    return begins


def _first_place(fits: Mapping[int, float]) -> int:
    """The first place that is nearly as good as the best."""
    least = max(fits.values()) - _MARGIN
    return min(at for at, fit in fits.items() if fit >= least)
