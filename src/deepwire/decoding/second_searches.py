"""Lines that are searched for again: their translation is degenerate, or lacks what it must have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from deepwire.decoding.decoding_config import DecodingConfig, with_settings
from deepwire.decoding.guards import NO_REPEAT, is_degenerate
from deepwire.decoding.hypotheses import Hypothesis
from deepwire.decoding.lexical_constraints import LineConstraints
from deepwire.decoding.required_phrases import Phrase, word_bounds
from deepwire.decoding.scored_translations import between_words, most_anew, scored_translations
from deepwire.decoding.sentence_search import ForcedPrefix, SearchInputs, SentenceSearch
from deepwire.decoding.step_models import StateT
from deepwire.decoding.translation_io import Request

_MARGIN = 2.0
"""A phrase may stand where it is so many nats less probable than at its best place."""
_ATTEMPTS = 3
_CHOICE = 2
"""Hypotheses of a second search, of which one may have all that the line must have."""
HypothesesOf = dict[int, list[Hypothesis]]
"""The hypotheses of lines, which a second search replaces."""


def retry_degenerate(
    search: SentenceSearch[StateT],
    sentences: SearchInputs,
    hypotheses_of: HypothesesOf,
    config: DecodingConfig,
) -> None:
    """Search again, without repeated n-grams, where the best translation is clearly wrong."""

    def is_wrong(row: int, hypotheses: Sequence[Hypothesis]) -> bool:
        length = sentences.length(row)
        source = sentences.sources[row][-length - 1 :]
        return is_degenerate(source, hypotheses[0].ids, config.output_limit(length))

    again = [row for row, hypotheses in hypotheses_of.items() if is_wrong(row, hypotheses)]
    if again:
        shortest = min(config.no_repeat_ngram or NO_REPEAT, NO_REPEAT)
        better = search.search(sentences, again, with_settings(config, {"no_repeat_ngram": shortest}))
        # One that is wrong in both tries is shown as the model would have it.
        hypotheses_of.update(
            {
                row: hypotheses
                for row, hypotheses in zip(again, better, strict=True)
                if not is_wrong(row, hypotheses)
            }
        )


def enforce_constraints(
    constraints: Sequence[LineConstraints],
    requests: Sequence[Request],
    search: SentenceSearch[StateT],
    sentences: SearchInputs,
    hypotheses_of: HypothesesOf,
    config: DecodingConfig,
) -> None:
    """Search again where translations lack something, for those that have it."""
    target = search.vocabularies.target
    if config.term_search == "prefer":
        constraints = [replace(line, terms=()) for line in constraints]

    def met(row: int) -> bool:
        return all(
            constraints[row].met_by(target.decode(hypothesis.ids)) for hypothesis in hypotheses_of[row]
        )

    # Lacking terms alone disturb the rest least. Where that costs another one, that is required, too.
    required_of: dict[int, Counter[Phrase]] = {}
    several = with_settings(config, {"n_best": max(config.n_best, min(config.beam, _CHOICE))})
    for attempt in range(_ATTEMPTS):
        again = [row for row in hypotheses_of if not met(row)]
        if not again:
            return
        last = attempt == _ATTEMPTS - 1
        for row in again:
            prefix = constraints[row].with_symbols(requests[row].prefix)
            have = "" if last else target.decode(hypotheses_of[row][0].ids)
            required = Counter(constraints[row].phrases(target, prefix, have))
            required_of[row] = required_of.get(row, Counter()) | required
        phrases = {row: list(required_of[row].elements()) for row in again}
        from_start = last or config.n_best > 1
        prefixes = forced_prefixes(search, sentences, hypotheses_of, phrases, config, from_start=from_start)
        better = search.search_with(sentences, prefixes, list(phrases.values()), several)
        for row, hypotheses in zip(again, better, strict=True):
            if hypotheses:
                # One that happens to have all terms needs no further search.
                best = sorted(
                    hypotheses,
                    key=lambda hypothesis: not constraints[row].met_by(target.decode(hypothesis.ids)),
                )
                hypotheses_of[row] = best[: config.n_best]


def forced_prefixes(
    search: SentenceSearch[StateT],
    sentences: SearchInputs,
    hypotheses_of: HypothesesOf,
    phrases: Mapping[int, Sequence[Phrase]],
    config: DecodingConfig,
    *,
    from_start: bool,
) -> list[ForcedPrefix]:
    """How far translations stay as they are: up to where the first phrase that is required might stand.

    There the model, which has read the translation up to it, likes the phrase nearly as much as it does
    anywhere, against its own next subword. That takes one pass over whole translations.

    Args:
        search: Scores.
        sentences: What is translated.
        hypotheses_of: The translations that there are.
        phrases: Of each of some of them, what is required.
        config: How to search.
        from_start: Whether nothing but a given prefix stays.
    """
    prefixes = []
    for scored in scored_translations(search, sentences, hypotheses_of, phrases):
        length, given = sentences.length(scored.row), len(sentences.prefixes[scored.row])
        starts = between_words(scored.ids, given, word_bounds(search.vocabularies.target))
        starts = starts[:-1] or starts  # the end of a translation is where a term goes that found no place
        at = given
        if not from_start and starts:
            firsts = [
                _first_place({at: max(scored.fits[at][form[0]] for form in phrase.forms) for at in starts})
                for phrase in phrases[scored.row]
            ]
            at = min(firsts, default=given)
        more = config.output_limit(length) - at
        if not from_start:
            likely = min(len(scored.ids), most_anew(length))
            more = min(more, most_anew(max(likely - at, 0)))
        prefixes.append(
            ForcedPrefix(
                scored.row, scored.ids[:at], max(more, 1), log_probability=sum(scored.log_probs[:at])
            )
        )
    return prefixes


def _first_place(fits: Mapping[int, float]) -> int:
    """The first place that is nearly as good as the best."""
    least = max(fits.values()) - _MARGIN
    return min(at for at, fit in fits.items() if fit >= least)
