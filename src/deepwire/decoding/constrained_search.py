"""Beam search for translations that have given phrases, wherever they fit best.

Dynamic beam allocation (Post and Vilar 2018, Fast Lexically Constrained Decoding with Dynamic Beam
Allocation for Neural Machine Translation). A phrase that was begun is finished without a break. Hypotheses
compete within banks: with those that have as many whole phrases, and as much left of the one they are in. So
one that has paid for all of a phrase is not pushed out by one that has only begun it. All but the end of
a long phrase is one bank, where the place that suits the model best counts, so that long phrases need no wide
beam. The search knows nothing of the model: it works with each mixer and each connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from deepwire.data.vocabulary import BOS, EOS, PAD
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.hypotheses import (
    IMPOSSIBLE,
    Constraints,
    Hypothesis,
    LengthPenalty,
    chunked_top_k,
    require_finite,
)
from deepwire.decoding.model_inputs import batch_compaction
from deepwire.decoding.required_phrases import Phrase, WordBounds, remaining
from deepwire.decoding.step_models import StateT, StepModel

_WIDEST = 64
"""Hypotheses per sentence at most; with more phrases, those that have the fewest of them are dropped."""


_STAGES = 7
"""Of so many subwords before the end of a phrase, each has a bank."""


def beam_for(beam: int, phrases: Sequence[Phrase]) -> int:
    """Hypotheses that are kept for a sentence: two for each number of phrases, one for each stage of one."""
    stages = max((min(_STAGES, phrase.longest - 1) for phrase in phrases), default=0)
    return max(beam, min(_WIDEST, 2 * (len(phrases) + 1) + len(phrases) * stages))


@torch.inference_mode()
def constrained_search(
    model: StepModel[StateT],
    source: Tensor,
    limits: Sequence[int],
    config: DecodingConfig,
    phrases: Sequence[Sequence[Phrase]],
    bounds: WordBounds,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence that have all of its phrases, best first: `n_best` at most.

    A sentence ends when its best open hypothesis, were it to end now, would be worse than the last of the
    n-best list. It has no hypothesis only where the vocabulary leaves no place for a phrase.

    Args:
        model: The model.
        source: `[N, S]` subword ids, padded with PAD.
        limits: Most subwords of each translation, without those of the phrases.
        config: How to search.
        phrases: Of each sentence.
        bounds: Of the target vocabulary.
        prefixes: Subwords that each translation must begin with.
    """
    starts = [len(prefix) for prefix in prefixes] if prefixes is not None else [0] * len(limits)
    sentences = [
        _Sentence(own, limit + start + remaining(own, 0), start, config, bounds)
        for own, limit, start in zip(phrases, limits, starts, strict=True)
    ]
    width = max(beam_for(config.beam, own) for own in phrases)
    constraints = Constraints(config, [one.limit for one in sentences], prefixes, source.device)
    symbols = bounds.symbols.to(source.device)
    state = model.start(source, constraints.longest + 1)
    tokens = torch.full((len(sentences),), BOS, dtype=torch.int64, device=source.device)
    kept, step, rows_each = list(range(len(sentences))), 0, 1
    while True:
        log_probs, state = model.step(tokens, state)
        view = log_probs.view(len(kept), rows_each, -1)
        open_ = [sentences[number] for number in kept]
        asked = _asked_values(view, open_)
        history = _history(open_, rows_each, step, config.no_repeat_ngram, source.device)
        view = constraints.apply(view, history).index_fill_(2, symbols, IMPOSSIBLE)
        values, columns = chunked_top_k(view.flatten(0, 1), min(width + 1, view.size(2)))
        best = zip(values.tolist(), columns.tolist(), strict=True)
        free = [list(zip(*row, strict=True)) for row in best]
        for place, sentence in enumerate(open_):
            rows = slice(place * rows_each, (place + 1) * rows_each)
            sentence.advance(free[rows], asked[place], step, width)
        step += 1
        ended = [sentence.ended for sentence in open_]
        if all(ended):
            return [sentence.results() for sentence in sentences]
        if rows_each == 1 and width > 1:
            state, rows_each = state.expand(width), width
        leaving, staying = batch_compaction(ended)
        if leaving:
            index = torch.tensor(staying, device=source.device)
            state = state.keep(index)
            constraints.keep(index)
            kept = [kept[place] for place in staying]
        parents, chosen = _rows([sentences[number] for number in kept], rows_each)
        state = state.reorder(torch.tensor(parents, device=source.device))
        tokens = torch.tensor(chosen, device=source.device)


class _Open(NamedTuple):
    """An open hypothesis.

    Attributes:
        ids: Its subwords.
        sum: Their log-probability.
        met: A bit for each phrase that it has or has begun.
        tail: What is left of the phrase that it is in.
        fit: How well the phrase that it is in suited the model, against its own best choice.
        bound: Whether a whole phrase has just ended, so that its word may not go on.
        parent: The row that it continues.
    """

    ids: tuple[int, ...]
    sum: float
    met: int
    tail: tuple[int, ...]
    fit: float
    bound: bool
    parent: int

    @property
    def bank(self) -> tuple[int, int]:
        """Stage of the phrase that it is in (0: in none), and how many phrases it lacks or has, negative."""
        return min(len(self.tail), _STAGES), -self.met.bit_count()

    @property
    def rank(self) -> float:
        """What counts within its bank."""
        return self.fit if len(self.tail) >= _STAGES else self.sum


@dataclass
class _Asked:
    """Log-probabilities of what phrases want: of each row the next subword of its phrase, and first ones."""

    tails: list[float]
    first: list[dict[int, float]]


class _Sentence:
    """The search for the translation of one sentence."""

    def __init__(
        self,
        phrases: Sequence[Phrase],
        limit: int,
        prefix: int,
        config: DecodingConfig,
        bounds: WordBounds,
    ) -> None:
        self.limit, self.ended = limit, False
        self.open = [_Open((), 0.0, 0, (), 0.0, False, 0)]
        self.first_tokens = sorted({way[0] for phrase in phrases for way in phrase.ways})
        self._phrases, self._prefix, self._n_best = phrases, prefix, config.n_best
        self._penalty, self._all = LengthPenalty.of(config), (1 << len(phrases)) - 1
        self._inside, self._joined = bounds.inside, bounds.open
        # What a phrase consists of is said by the phrase, not by the model.
        self._single = {way[0] for phrase in phrases for way in phrase.ways if len(way) == 1}
        self._finished: list[Hypothesis] = []

    def advance(
        self, free: Sequence[Sequence[tuple[float, int]]], asked: _Asked, step: int, width: int
    ) -> None:
        """Continue the open hypotheses by one subword.

        Args:
            free: Of each row the best log-probabilities and their subwords.
            asked: What phrases want.
            step: How many subwords the hypotheses have.
            width: How many stay open.
        """
        if self.ended:
            return
        banks: dict[tuple[int, int], list[_Open]] = {}
        for row, one in enumerate(self.open):
            for following in self._following(row, one, free[row], asked, step):
                banks.setdefault(following.bank, []).append(following)
        self.open = _allocated(banks, width)
        self._finished.sort(key=lambda hypothesis: -hypothesis.score)
        del self._finished[self._n_best :]
        self.ended = not self.open or self._cannot_gain(step + 1)

    def _cannot_gain(self, step: int) -> bool:
        """Whether no open hypothesis is likely to enter the n-best list any more."""
        if len(self._finished) < self._n_best:
            return False
        # What lacks phrases looks better than it is. Once all would be longer than the best translation that
        # is there, only what has all phrases counts.
        late = step > len(self._finished[0].ids)
        bounds = [
            one.sum / self._penalty.divisor(step + 1 + len(one.tail))
            for one in self.open
            if one.met == self._all or not late
        ]
        return max(bounds, default=IMPOSSIBLE) <= self._finished[-1].score

    def _following(
        self, row: int, one: _Open, free: Sequence[tuple[float, int]], asked: _Asked, step: int
    ) -> list[_Open]:
        if one.tail:
            tail = one.tail[1:]
            total = one.sum + asked.tails[row]
            return [_Open((*one.ids, one.tail[0]), total, one.met, tail, one.fit, one.bound, row)]
        found = []
        if step >= self._prefix:
            found = self._begun(row, one, asked, free[0][0])
        if found and self.limit - step <= remaining(self._phrases, one.met):
            return found  # nothing else may take their place any more
        complete = one.met == self._all
        for value, token in free:
            if value == IMPOSSIBLE:
                break
            if token == EOS:
                if complete and step >= self._prefix:
                    self._finish(one, one.sum + value)
                continue
            if (one.bound and bool(self._inside[token])) or (token in self._single and not complete):
                continue
            found.append(_Open((*one.ids, token), one.sum + value, one.met, (), 0.0, False, row))
        return found

    def _finish(self, one: _Open, total: float) -> None:
        if all(one.ids != other.ids for other in self._finished):
            score = total / self._penalty.divisor(len(one.ids) + 1)
            self._finished.append(Hypothesis(one.ids, total, score))

    def _begun(self, row: int, one: _Open, asked: _Asked, best: float) -> list[_Open]:
        """The hypothesis with the first subword of each phrase that it lacks."""
        if one.ids and one.ids[-1] in self._joined:
            return []
        found, seen = [], set()
        for place, phrase in enumerate(self._phrases):
            if one.met >> place & 1 or phrase in seen:
                continue
            seen.add(phrase)
            for way in phrase.ways:
                value, met = asked.first[row][way[0]], one.met | 1 << place
                ids, fit = (*one.ids, way[0]), value - best
                found.append(_Open(ids, one.sum + value, met, way[1:], fit, phrase.whole, row))
        return found

    def results(self) -> list[Hypothesis]:
        """The finished hypotheses, best first; none where no translation with all phrases was found."""
        return require_finite(self._finished) if self._finished else []


def _allocated(banks: dict[tuple[int, int], list[_Open]], width: int) -> list[_Open]:
    """The hypotheses that stay open: of each bank as many as of the others, if it has so many."""
    for bank in banks.values():
        bank.sort(key=lambda one: -one.rank)
    order = [banks[key] for key in sorted(banks)]
    chosen: list[_Open] = []
    for place in range(width):
        chosen += [bank[place] for bank in order if place < len(bank)]
        if len(chosen) >= width:
            break
    return chosen[:width]


def _asked_values(log_probs: Tensor, sentences: Sequence[_Sentence]) -> list[_Asked]:
    """What phrases want of `log_probs` `[N, W, V]`, before anything is forbidden."""
    width = log_probs.size(1)
    most = max(1, *(len(sentence.first_tokens) for sentence in sentences)) if sentences else 1
    first = [[*one.first_tokens, *[PAD] * (most - len(one.first_tokens))] for one in sentences]
    index = torch.tensor(first, device=log_probs.device).unsqueeze(1).expand(-1, width, -1)
    tails = [[one.tail[0] if one.tail else PAD for one in sentence.open[:width]] for sentence in sentences]
    tails = [[*row, *[PAD] * (width - len(row))] for row in tails]
    tail_index = torch.tensor(tails, device=log_probs.device).unsqueeze(2)
    values, ends = log_probs.gather(2, index).tolist(), log_probs.gather(2, tail_index).squeeze(2).tolist()
    return [
        _Asked(ends[place], [dict(zip(sentence.first_tokens, row, strict=False)) for row in values[place]])
        for place, sentence in enumerate(sentences)
    ]


def _history(
    sentences: Sequence[_Sentence], width: int, step: int, ngram: int, device: torch.device
) -> Tensor:
    """The subwords so far, `[N, W, t]`; what they are matters only where n-grams may not repeat."""
    if not ngram:
        return torch.empty(len(sentences), width, step, dtype=torch.int64, device=device)
    # Sentences that have ended, and rows without a hypothesis, are filled up.
    rows = [
        [[*one.ids, *[PAD] * (step - len(one.ids))] for one in sentence.open[:width]]
        for sentence in sentences
    ]
    filled = [[*row, *[[PAD] * step] * (width - len(row))] for row in rows]
    return torch.tensor(filled, dtype=torch.int64, device=device).view(len(sentences), width, step)


def _rows(sentences: Sequence[_Sentence], width: int) -> tuple[list[int], list[int]]:
    """For each row of the state the row that it continues, and its last subword."""
    parents, tokens = [], []
    for place, sentence in enumerate(sentences):
        own = sentence.open[:width]
        for one in own:
            parents.append(place * width + one.parent)
            tokens.append(one.ids[-1])
        parents += [place * width] * (width - len(own))
        tokens += [PAD] * (width - len(own))
    return parents, tokens
