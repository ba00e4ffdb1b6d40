"""Second searches: for lines whose translation is degenerate, or lacks what it must have."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from functools import partial
from threading import Event
from typing import NamedTuple

import torch

from deepwire.data.vocabulary import EOS
from deepwire.decoding.constrained_search import beam_for, constrained_search
from deepwire.decoding.decoding_config import with_settings
from deepwire.decoding.line_steps import Item, LineSearch
from deepwire.decoding.model_inputs import batches_by_length, map_batches, pad_batch
from deepwire.decoding.phrases import Phrase, WordBounds, word_bounds
from deepwire.decoding.search import Batch, Hypothesis

_FORCED_TOKENS = 512
"""Padded subwords of a batch whose probabilities of all subwords are in memory at once."""
_FEW = 16
"""So few sentences are no batch of their own."""
_LONGEST_LOOP, _LOOP_TIMES = 8, 4
_NO_REPEAT = 3
"""The second try has no n-gram of this size twice."""
_MARGIN = 2.0
"""A phrase may stand where it is so many nats less probable than at its best place."""
_ATTEMPTS = 3
_CHOICE = 2
"""Hypotheses of a second search, of which one may have all that the line must have."""
_LONGER, _MORE = 1.25, 6


def retry_degenerate(items: list[Item], search: LineSearch) -> list[Item]:
    """Search again, without repeated n-grams, where the best translation is clearly wrong.

    One that is wrong in both tries stays as the first search had it.
    """

    def is_wrong(item: Item) -> bool:
        source, limit = item.source[-item.length - 1 :], search.config.output_limit(item.length)
        return is_degenerate(source, item.hypotheses[0].ids, limit)

    first = {item: item.hypotheses for item in items if item.source and is_wrong(item)}
    if first:
        shortest = min(search.config.no_repeat_ngram or _NO_REPEAT, _NO_REPEAT)
        config = with_settings(search.config, {"no_repeat_ngram": shortest})
        for item in replace(search, config=config).search(list(first)):
            if is_wrong(item):
                item.hypotheses = first[item]
    return items


def is_degenerate(source: Sequence[int], translation: Sequence[int], limit: int) -> bool:
    """Whether a translation repeats itself as its source does not, or has all subwords that it could have."""
    return len(translation) >= limit or (loops(translation) and not loops(source))


def loops(ids: Sequence[int]) -> bool:
    """Whether some subwords, eight at most, come four times in a row; a single one five times."""
    for size in range(1, _LONGEST_LOOP + 1):
        same = 0
        for place in range(size, len(ids)):
            same = same + 1 if ids[place] == ids[place - size] else 0
            if same >= size * (_LOOP_TIMES - 1) and (size > 1 or same >= _LOOP_TIMES):
                return True
    return False


class _Beginning(NamedTuple):
    """The beginning of a translation from which a search goes on, and most subwords that may follow."""

    ids: Sequence[int]
    more: int
    log_probability: float


def enforce_constraints(items: list[Item], search: LineSearch) -> list[Item]:
    """Search again where translations lack something, for those that have it.

    First for lacking terms alone, as that disturbs the rest least; where it costs another term, for that too.
    """
    target, config = search.vocabularies.target, search.config
    searched = [item for item in items if item.source]
    constraints_of = {item: item.constraints for item in searched if item.constraints is not None}
    if config.term_search == "prefer":
        constraints_of = {item: replace(each, terms=()) for item, each in constraints_of.items()}
    required_of: dict[Item, Counter[Phrase]] = {}

    def lacks(item: Item, hypothesis: Hypothesis) -> bool:
        return not constraints_of[item].met_by(target.decode(hypothesis.ids))

    for attempt in range(_ATTEMPTS):
        again = [item for item in constraints_of if any(lacks(item, each) for each in item.hypotheses)]
        if not again:
            break
        last = attempt == _ATTEMPTS - 1
        for item in again:
            have = "" if last else target.decode(item.hypotheses[0].ids)
            required = Counter(constraints_of[item].phrases(target, item.prefix, have))
            required_of[item] = required_of.get(item, Counter()) | required
        phrases = [list(required_of[item].elements()) for item in again]
        begins = _beginnings(again, phrases, search, from_start=last or config.n_best > 1)
        better = _search_with(again, begins, phrases, search)
        for item, hypotheses in zip(again, better, strict=True):
            if hypotheses:
                # One that happens to have all terms needs no further search.
                item.hypotheses = sorted(hypotheses, key=partial(lacks, item))[: config.n_best]
    return items


def _search_with(
    items: Sequence[Item],
    begins: Sequence[_Beginning],
    phrases: Sequence[Sequence[Phrase]],
    search: LineSearch,
) -> list[list[Hypothesis]]:
    """Hypotheses of each item that have phrases behind its beginning; none where there are none.

    All subwords may be used, and nothing is drawn at random.
    """
    bounds = word_bounds(search.vocabularies.target)
    choice = max(search.config.n_best, min(search.config.beam, _CHOICE))
    config = with_settings(search.config, {"n_best": choice})
    found: dict[int, list[Hypothesis]] = {}

    def search_batch(places: Sequence[int], stop: Event) -> list[list[Hypothesis]]:
        chosen, begun = [items[place] for place in places], [begins[place] for place in places]
        source, languages = search.sources(chosen)
        batch = Batch(
            source,
            [begin.more for begin in begun],
            languages=languages,
            # The model reads beginnings in one pass, which costs no steps of the search.
            prompts=[[*item.read_first, *begin.ids] for item, begin in zip(chosen, begun, strict=True)],
            pieces=search.vocabularies.target.size,
            context_ids=[begin.ids for begin in begun],
            stop=stop,
        )
        required, read = [phrases[place] for place in places], [begin.log_probability for begin in begun]
        return constrained_search(search.model, batch, config, required, bounds, read)

    for width, group in _by_width([beam_for(config.beam, required) for required in phrases]):
        lengths = [len(items[place].source) for place in group]
        batches = batches_by_length(lengths, max(1, config.batch_tokens // width))
        places = [[group[row] for row in rows] for rows in batches]
        results = map_batches(search_batch, places, search.device)
        found |= zip(sorted(group), results, strict=True)
    return [found[place] for place in range(len(items))]


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


def _beginnings(
    items: Sequence[Item], phrases: Sequence[Sequence[Phrase]], search: LineSearch, *, from_start: bool
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
        items, phrases, asked, _scores(items, asked, search), strict=True
    ):
        ids, at = item.hypotheses[0].ids, len(item.prefix_ids)
        scores = [dict(zip(tokens, place, strict=True)) for place in values]
        own = [place[token] for place, token in zip(scores, (*ids, EOS), strict=True)]
        starts = between_words(ids, at, word_bounds(search.vocabularies.target))
        starts = starts[:-1] or starts  # a term that found no place goes to the end of a translation
        if not from_start and starts:
            fits = [
                {at: max(scores[at][form[0]] - own[at] for form in phrase.forms) for at in starts}
                for phrase in required
            ]
            at = min(map(_first_place, fits), default=at)
        more = search.config.output_limit(item.length) - at
        if not from_start:
            likely = min(len(ids), _most_anew(item.length))
            more = min(more, _most_anew(max(likely - at, 0)))
        begins.append(_Beginning(ids[:at], max(more, 1), sum(own[:at])))
    return begins


def _scores(
    items: Sequence[Item], tokens: Sequence[Sequence[int]], search: LineSearch
) -> list[list[list[float]]]:
    """Log-probabilities `[T + 1, k]` of k tokens of each item before each of T subwords, and behind all.

    The subwords are those of the best hypothesis.
    """
    read = [[*item.read_first, *item.hypotheses[0].ids] for item in items]

    @torch.inference_mode()
    def score(rows: Sequence[int], _stop: Event) -> list[list[list[float]]]:
        source, languages = search.sources([items[row] for row in rows])
        target = pad_batch([read[row] for row in rows], search.device)
        log_probs = search.model.log_probs(source, target, languages=languages)
        wanted = pad_batch([tokens[row] for row in rows], search.device)
        values = log_probs.gather(2, wanted.unsqueeze(1).expand(-1, log_probs.size(1), -1)).tolist()
        return [
            [place[: len(tokens[row])] for place in of_row[len(items[row].prompt) : len(read[row])]]
            for row, of_row in zip(rows, values, strict=True)
        ]

    lengths = [max(len(item.source), len(ids)) for item, ids in zip(items, read, strict=True)]
    return map_batches(score, batches_by_length(lengths, _FORCED_TOKENS), search.device)


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
