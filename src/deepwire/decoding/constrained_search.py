"""Beam search for translations that have given phrases, wherever they fit best.

Hypotheses compete within banks, with those that have as many of the phrases, and as much left of the one
that they are in (Post and Vilar 2018, Fast Lexically Constrained Decoding with Dynamic Beam Allocation for
Neural Machine Translation). So one that has paid for all of a phrase is not pushed out by one that has only
begun it. All but the end of a long phrase is one bank, where the place that suits the model best counts. The
banks share the beam, all in a few operations on whole batches (Hu et al. 2019, Improved Lexically Constrained
Decoding for Translation and Monolingual Rewriting). A phrase that was begun is finished without a break. The
search knows nothing of the model: it works with each mixer and each connection.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import torch
from torch import Tensor
from torch.nn.functional import pad

from deepwire.data.vocabulary import EOS, PAD
from deepwire.decoding.decoding_config import DecodingConfig, with_settings
from deepwire.decoding.models import StepModel
from deepwire.decoding.phrases import Phrase, WordBounds, remaining
from deepwire.decoding.search import (
    IMPOSSIBLE,
    Batch,
    BeamSearch,
    Constraints,
    Hypothesis,
    Search,
    require_finite,
    run_search,
    top_k,
)

_WIDEST = 16
"""Hypotheses per sentence at most; with more phrases, those that have the fewest of them are dropped."""
_FEWEST = 4
_STAGES = 7
"""So many subwords before the end of a phrase have banks of their own."""
_MOST = 63  # phrases of a sentence: each has a bit of a number
_LATER = 1 << 10  # banks of a stage come behind those of the one before it, of however many phrases


def beam_for(beam: int, phrases: Sequence[Phrase]) -> int:
    """Hypotheses that are kept for a sentence, a power of two.

    One for each number of phrases at least, and for each stage of one.
    """
    stages = max((min(_STAGES, phrase.longest - 1) for phrase in phrases), default=0)
    wanted = max(beam, _FEWEST, min(_WIDEST, len(phrases) + 1 + stages))
    return 1 << (wanted - 1).bit_length()


def constrained_search(
    model: StepModel,
    batch: Batch,
    config: DecodingConfig,
    phrases: Sequence[Sequence[Phrase]],
    bounds: WordBounds,
    read: Sequence[float] | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence that have all of its phrases, best first: `n_best` at most.

    A sentence ends when its best open hypothesis, were it to end now, would be worse than the last of the
    n-best list. It has no hypothesis only where the vocabulary leaves no place for a phrase.

    Args:
        model: The model.
        batch: What is translated. Translations begin with `context_ids`, which the prompts end with; limits
            are of what comes behind them, without the phrases.
        config: How to search.
        phrases: Of each sentence; those behind the first 63 are not looked for.
        bounds: Of the target vocabulary.
        read: The log-probability of each beginning; None: 0.
    """
    phrases = [required[:_MOST] for required in phrases]
    most = [limit + remaining(required) for limit, required in zip(batch.limits, phrases, strict=True)]
    constraints = Constraints(config, replace(batch, limits=most))
    begins = batch.context_ids or [[]] * len(most)
    search = _ConstrainedSearch(config, constraints, phrases, bounds, begins, read or [0.0] * len(most))
    return run_search(model, batch, search)


class _Forms(NamedTuple):
    """The surface forms of the phrases of sentences; J of them, with K subwords together.

    Number 0 of all is no form, and no subword. A form can be begun where its phrase is lacking, and where
    equal phrases that come before it are not.

    Attributes:
        tokens: `[N, K]` all their subwords.
        following: `[N, K]` the place of the subword that follows each; 0 behind the last.
        left: `[N, K]` how many subwords there are from each on.
        first: `[N, J]` the place of the first subword.
        bit: `[N, J]` of the phrase; 0 where there is no form.
        before: `[N, J]` the bits of equal phrases.
        longest: `[N, J]` subwords of the longest form of the phrase.
        whole: `[N, J]` whether the word ends with the form.
        alone: `[N, J]` the subwords of forms that have one; PAD for others.
    """

    tokens: Tensor
    following: Tensor
    left: Tensor
    first: Tensor
    bit: Tensor
    before: Tensor
    longest: Tensor
    whole: Tensor
    alone: Tensor

    @classmethod
    def of(cls, phrases: Sequence[Sequence[Phrase]]) -> _Forms:
        rows = [_forms_of(required) for required in phrases]
        sizes = [max(len(row[part]) for row in rows) for part in range(len(cls._fields))]
        return cls(
            *(
                torch.tensor([[*row[part], *[0] * (size - len(row[part]))] for row in rows])
                for part, size in enumerate(sizes)
            )
        )

    def keep(self, sentences: Tensor) -> _Forms:
        return _Forms(*(part.index_select(0, sentences) for part in self))


def _forms_of(phrases: Sequence[Phrase]) -> tuple[list[int], ...]:
    """The fields of `_Forms` of a sentence."""
    tokens, following, left = [PAD], [0], [0]
    first, bit, before, longest, whole, alone = [0], [0], [0], [0], [0], [PAD]
    seen: dict[Phrase, int] = {}
    for place, phrase in enumerate(phrases):
        for number, form in enumerate(phrase.forms):
            first.append(len(tokens))
            bit.append(1 << place)
            before.append(seen.get(phrase, 0))
            longest.append(phrase.longest)
            whole.append(int(number not in phrase.open))
            alone.append(form[0] if len(form) == 1 else PAD)
            following += [*range(len(tokens) + 1, len(tokens) + len(form)), 0]
            left += range(len(form), 0, -1)
            tokens += form
        seen[phrase] = seen.get(phrase, 0) | 1 << place
    return tokens, following, left, first, bit, before, longest, whole, alone


class _Rows(NamedTuple):
    """State of the open hypotheses of a batch beside their subwords, all `[N, W]`.

    Attributes:
        met: A bit for each phrase that one has or has begun.
        lacking: How many phrases it lacks.
        need: Most subwords of these.
        place: Of the next subword of the phrase that it is in, see `_Forms.tokens`; 0: in none.
        bound: Whether a whole phrase has just ended, so that its word may not go on.
        joined: Whether its last word goes on.
        fit: How well the phrase that it is in suited the model, against its own best choice.
    """

    met: Tensor
    lacking: Tensor
    need: Tensor
    place: Tensor
    bound: Tensor
    joined: Tensor
    fit: Tensor

    def mapped(self, rows: Tensor) -> _Rows:
        return _Rows(*(part.index_select(0, rows) for part in self))


class _ConstrainedSearch(BeamSearch):
    """The open and finished hypotheses of a batch of sentences with phrases."""

    def __init__(
        self,
        config: DecodingConfig,
        constraints: Constraints,
        phrases: Sequence[Sequence[Phrase]],
        bounds: WordBounds,
        begins: Sequence[Sequence[int]],
        read: Sequence[float],
    ) -> None:
        widths = [beam_for(config.beam, required) for required in phrases]
        # All that end count: how many may end is no matter of the widest beam of a batch.
        super().__init__(with_settings(config, {"stop": "optimal"}), constraints, max(widths))
        self._widths = torch.tensor(widths).unsqueeze(1)
        self._begins, self._candidates_each = begins, max(config.beam, _FEWEST) + 1
        self._read = torch.tensor([*map(len, begins)])
        longest = self.constraints.longest + max(map(len, begins))
        divisors = [1.0, *(config.length_divisor(length) for length in range(1, longest + 3))]
        self._end_divisors = torch.tensor(divisors)
        self.sums = torch.tensor([[log_probability] for log_probability in read])
        self._forms = _Forms.of(phrases)
        self._bounds = bounds
        none, counts = [[0]] * len(phrases), [[len(required)] for required in phrases]
        need = [[remaining(required)] for required in phrases]
        joined = [[bool(ids) and ids[-1] in bounds.open] for ids in begins]
        fields = none, counts, need, none, [[False]] * len(phrases), joined, [[0.0]] * len(phrases)
        self._rows = _Rows(*(torch.tensor(field) for field in fields))
        self._inside = self._opened = torch.zeros(0, dtype=torch.bool)

    take_step = Search.take_step  # what phrases want is read from every step

    def _mark(self, size: int) -> None:
        """Which of so many subwords stand within a word."""
        if self._inside.numel() == size:
            return
        self._inside = torch.zeros(size, dtype=torch.bool)
        self._opened = self._inside.clone()
        self._inside[list(self._bounds.inside)] = True
        self._opened[list(self._bounds.open)] = True

    def advance(self, log_probs: Tensor) -> None:
        """Continue every hypothesis by one subword; `log_probs` is `[N * W, V]`, W = 1 at first."""
        sentences, width = self.sums.shape
        view = log_probs.view(sentences, width, -1)
        self._mark(view.size(2))
        forms, rows = self._forms, self._rows
        # What phrases want, before anything is forbidden.
        begun = forms.tokens.gather(1, forms.first)
        begins = view.gather(2, begun.unsqueeze(1).expand(-1, width, -1).to(view.device)).cpu()
        tails = forms.tokens.gather(1, rows.place)
        goes_on = view.gather(2, tails.unsqueeze(2).to(view.device)).squeeze(2).cpu()
        view = self.constraints.apply(view, self.step, self.read_so_far)
        # A bank is shared by few hypotheses: more of one of them are not worth the time to look at.
        found = top_k(view.flatten(0, 1), min(self._candidates_each, view.size(2)))
        values, tokens = (each.cpu().view(sentences, width, -1) for each in found)

        within = rows.place > 0
        may = (forms.bit.unsqueeze(1) & ~rows.met.unsqueeze(2)) != 0
        may &= (forms.before.unsqueeze(1) & ~rows.met.unsqueeze(2)) == 0
        may &= ~(within | rows.joined).unsqueeze(2)
        begins, best = begins.masked_fill(~may, IMPOSSIBLE), values[:, :, :1]
        # Where there is only room for phrases, nothing else may take their place any more.
        room = (torch.from_numpy(self._limits) - self.step).unsqueeze(1) > rows.need
        free = ~within & (room | ~may.any(2))
        values = values.masked_fill(~free.unsqueeze(2), IMPOSSIBLE)
        ends = tokens == EOS
        self._end(values, ends)
        # What a phrase consists of is said by the phrase, not by the model.
        alone = (tokens.unsqueeze(3) == forms.alone[:, None, None]).any(3) & (rows.lacking > 0).unsqueeze(2)
        values = values.masked_fill_(
            ends | alone | (self._inside[tokens] & rows.bound.unsqueeze(2)), IMPOSSIBLE
        )
        goes_on = goes_on.masked_fill(~within, IMPOSSIBLE)
        fits = begins - best.masked_fill(best == IMPOSSIBLE, 0.0)
        self._choose(values, tokens, begins, begun, goes_on, tails, fits)
        self.step += 1
        self._close()

    def _end(self, values: Tensor, ends: Tensor) -> None:
        """Finish hypotheses that have all phrases."""
        width = self.sums.size(1)
        values = values.masked_fill(~ends | (self._rows.lacking > 0).unsqueeze(2), IMPOSSIBLE).amax(2)
        ending = values > IMPOSSIBLE
        if not bool(ending.any()):
            return
        divisors = self._end_divisors[self._read + self.step + 1].unsqueeze(1)
        history = self.history[:, :width, : self.step]
        if self.finished.scores.shape[1] > 1:
            ending &= ~self._known(history, ending)
        parts = (ending, values + self.sums, divisors, history)
        self.finished.add(*(part.numpy() for part in parts))

    def _known(self, history: Tensor, ending: Tensor) -> Tensor:
        """Which hypotheses have finished before with phrases in other places, or do so now, `[N, W]`."""
        same = (history.unsqueeze(2) == history.unsqueeze(1)).all(3) & ending.unsqueeze(1)
        same = same.tril(-1).any(2)
        finished = torch.from_numpy(self.finished.tokens)
        padded = pad(history, (0, finished.size(2) - history.size(2)), value=EOS)
        return same | (padded.unsqueeze(2) == finished.unsqueeze(1)).all(3).any(2)

    def _choose(
        self,
        values: Tensor,
        tokens: Tensor,
        begins: Tensor,
        begun: Tensor,
        goes_on: Tensor,
        tails: Tensor,
        fits: Tensor,
    ) -> None:
        """The hypotheses that stay open: of each bank as many as of the others, if it has so many."""
        forms, rows = self._forms, self._rows
        (width, each), count = values.shape[1:], begins.size(2)
        before = self.sums.unsqueeze(2)
        sums = _joined(values + before, begins + before, goes_on + self.sums)
        every = _joined(tokens, begun.unsqueeze(1).expand(-1, width, -1), tails)
        # The candidates of a row: free subwords, the first ones of forms (number 0 is none), the next one of
        # the form that it is in.
        tail = each + count
        form_of = (torch.arange(tail + 1) - each).clamp_(min=0)
        form_of[tail] = 0
        left = _joined(
            torch.zeros_like(tokens),
            forms.left.gather(1, forms.following.gather(1, forms.first)).unsqueeze(1).expand(-1, width, -1),
            forms.left.gather(1, forms.following.gather(1, rows.place)),
        ).clamp(max=_STAGES)
        banks = (rows.lacking.unsqueeze(2) - (form_of > 0).int()).flatten(1) + left * _LATER
        fits = _joined(values, fits, rows.fit)
        # Of a long phrase hypotheses have paid different parts.
        ranks = torch.where((left == _STAGES) & (sums > IMPOSSIBLE), fits, sums)
        chosen = _allocated(ranks, banks, self.width)
        missing = (0, self.width - chosen.size(1))
        self.sums = pad(sums.gather(1, chosen), missing, value=IMPOSSIBLE)
        # The same in every batch.
        self.sums.masked_fill_(torch.arange(self.width) >= self._widths, IMPOSSIBLE)
        chosen = pad(chosen, missing)
        self.tokens = every.gather(1, chosen)
        parents = chosen // (tail + 1)
        self.parents = parents.numpy()
        kind = chosen % (tail + 1)
        form, on = form_of[kind], kind == tail

        def of_parent(field: Tensor) -> Tensor:
            return field.gather(1, parents)

        begin = form > 0
        place = torch.where(
            begin,
            forms.following.gather(1, forms.first.gather(1, form)),
            forms.following.gather(1, of_parent(rows.place)),
        )
        self._rows = _Rows(
            of_parent(rows.met) | forms.bit.gather(1, form),
            of_parent(rows.lacking) - begin.int(),
            of_parent(rows.need) - forms.longest.gather(1, form),
            place,
            torch.where(begin, forms.whole.gather(1, form) > 0, of_parent(rows.bound) & on),
            self._opened[self.tokens],
            fits.gather(1, chosen),
        )

    def _close(self) -> None:
        """Which sentences have ended: no open hypothesis is likely to enter the n-best list any more."""
        finished, worst = self.finished, torch.from_numpy(self.finished.scores)[:, -1]
        # What lacks phrases looks better than it is. Once all would be longer than the best translation that
        # is there, only what has all phrases counts.
        late = torch.from_numpy(self.step > (finished.tokens[:, 0] != EOS).sum(1))
        rows = self._rows
        left = self._forms.left.gather(1, rows.place)
        lengths = ((self._read + self.step + 1).unsqueeze(1) + left).clamp_(max=len(self._end_divisors) - 1)
        bounds = self.sums / self._end_divisors[lengths]
        bounds = bounds.masked_fill((rows.lacking > 0) & late.unsqueeze(1), IMPOSSIBLE).amax(1)
        none = ~(self.sums > IMPOSSIBLE).any(1)
        finished.ended |= (none | ((worst > IMPOSSIBLE) & (bounds <= worst))).numpy()

    def collect(self, rows: Sequence[int]) -> None:
        """Move the finished hypotheses of these sentences of the batch to the results."""
        finished = self.finished.listed(np.array(rows))
        for row, hypotheses in zip(rows, finished, strict=True):
            begin = self._begins[self.numbers[row]]
            whole = [replace(hypothesis, ids=(*begin, *hypothesis.ids)) for hypothesis in hypotheses]
            self.results[self.numbers[row]] = require_finite(whole) if whole else []

    def keep(self, sentences: Tensor) -> None:
        super().keep(sentences)
        sentences = sentences.cpu()
        self._forms, self._rows = self._forms.keep(sentences), self._rows.mapped(sentences)
        self._read, self._widths = (part.index_select(0, sentences) for part in (self._read, self._widths))


def _joined(free: Tensor, begun: Tensor, going_on: Tensor) -> Tensor:
    """The candidates of all hypotheses of a sentence, `[N, C]`: `[N, W, k]`, `[N, W, J]` and `[N, W]`."""
    return torch.cat([free, begun, going_on.unsqueeze(2)], 2).flatten(1)


def _allocated(values: Tensor, banks: Tensor, width: int) -> Tensor:
    """The candidates `[N, W]` that stay: the best of each bank, then the second of each, and so on."""
    order = values.argsort(dim=1, descending=True, stable=True)
    order = order.gather(1, banks.gather(1, order).argsort(dim=1, stable=True))
    sorted_banks = banks.gather(1, order)
    places = torch.arange(order.size(1), device=order.device).expand_as(order)
    begins = torch.ones_like(order, dtype=torch.bool)
    begins[:, 1:] = sorted_banks[:, 1:] != sorted_banks[:, :-1]
    rank = places - places.masked_fill(~begins, 0).cummax(1).values
    keys = rank * (1 << 20) + sorted_banks
    keys = keys.masked_fill(values.gather(1, order) == IMPOSSIBLE, 1 << 40)
    best = keys.topk(min(width, keys.size(1)), dim=1, largest=False).indices
    return order.gather(1, best)
