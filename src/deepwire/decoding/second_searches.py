"""Lines that are searched for again: their translation is clearly wrong, or lacks what it must have."""

from __future__ import annotations

from collections.abc import Sequence

from deepwire.decoding.decoding_config import DecodingConfig, with_settings
from deepwire.decoding.demands import LineDemands, with_symbols
from deepwire.decoding.guards import NO_REPEAT, suspicious
from deepwire.decoding.hypotheses import Hypothesis
from deepwire.decoding.sentence_search import Sentences, SentenceSearch
from deepwire.decoding.step_models import StateT
from deepwire.decoding.term_insertion import insert_terms
from deepwire.decoding.translation_io import Request

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

    def met(row: int) -> bool:
        return all(demands[row].met_by(target.decode(one.ids)) for one in found[row])

    insert_terms(demands, search, sentences, found, config)
    # Lacking terms alone disturb the rest least; where that costs another one, all of them are demanded.
    for every in (False, True):
        again = [row for row in found if not met(row)]
        phrases = []
        for row in again:
            prefix = with_symbols(requests[row].prefix, demands[row].values)
            have = "" if every else target.decode(found[row][0].ids)
            phrases.append(demands[row].phrases(target, prefix, have))
        if again:
            better = search.search_with(sentences, again, phrases, config)
            found.update({row: own for row, own in zip(again, better, strict=True) if own})
