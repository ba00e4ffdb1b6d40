"""Beam search over a batch of sentences.

Each step extends all open hypotheses by one subword, keeps the best, and moves finished ones to a list.

The beam reorder, by which each row of the decoder's state becomes the row that its hypothesis continues, is
the call of `state.reorder` in `searched`; `BeamSearch.parent_rows` says which row that is. What it does
to the key/value cache is in `deepwire.model.kv_cache.CacheIndex.reorder`: no key or value moves.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from deepwire.data.vocabulary import BOS, EOS, PAD
from deepwire.decoding.decoding_config import DecodingConfig, StopRule
from deepwire.decoding.hypotheses import (
    IMPOSSIBLE,
    Constraints,
    Hypothesis,
    LengthPenalty,
    chunked_top_k,
    require_finite,
)
from deepwire.decoding.model_inputs import batch_compaction
from deepwire.decoding.required_phrases import Phrase
from deepwire.decoding.step_models import StateT, StepModel


@torch.inference_mode()
def beam_search(
    model: StepModel[StateT],
    source: Tensor,
    limits: Sequence[int],
    config: DecodingConfig,
    prefixes: Sequence[Sequence[int]] | None = None,
    before: Sequence[Sequence[int]] | None = None,
    preferred: Sequence[Sequence[Phrase]] | None = None,
) -> list[list[Hypothesis]]:
    """The best hypotheses of each sentence, best first; at most `n_best`, at least one.

    Each step ranks all continuations of the open hypotheses of a sentence by log-probability (they are
    equally long) and looks at the best `2 * beam`. Those that end with EOS and stand among the first `beam`
    are finished, other ends are dropped; the first `beam` that go on stay open. The rule `optimal` goes on
    until no open hypothesis can enter the n-best list, since a log-probability only falls; `first` also stops
    a sentence at its `beam`-th finished hypothesis, as fairseq does. Finished hypotheses are ranked by score.

    Args:
        source: `[N, S]` subword ids, padded with PAD.
        limits: Most subwords of each translation; EOS comes on top.
        prefixes: Subwords that each translation must begin with.
        before: Subwords that the model has read before each.
        preferred: Phrases that each translation should rather have.
    """
    constraints = Constraints(config, limits, prefixes, source.device, before, preferred)
    return searched(model, source, BeamSearch(config, constraints, source.device))


def searched(model: StepModel[StateT], source: Tensor, search: BeamSearch) -> list[list[Hypothesis]]:
    """What a search finds for `source` `[N, S]`."""
    state = model.start(source)
    tokens = torch.full((source.size(0),), BOS, dtype=torch.int64, device=source.device)
    while True:
        log_probs, state = model.step(tokens, state)
        search.advance(log_probs)
        ended, unmoved = search.read_flags()
        if all(ended):
            search.collect(range(len(ended)))
            return search.results
        if search.step == 1:
            state = state.expand(search.beam)
        leaving, staying = batch_compaction(ended)
        if leaving:
            search.collect(leaving)
            sentences = torch.tensor(staying, device=source.device)
            state = state.keep(sentences)
            search.keep(sentences)
        if search.step > 1 and not unmoved:
            # The beam reorder of the key/value cache and of all other state; see the top of this file.
            rows = search.parent_rows()
            state = state.reorder(rows)
            search.reorder(rows)
        tokens = search.append()


class BeamSearch:
    """The open and finished hypotheses of a batch.

    Args:
        config: How to search.
        constraints: What may follow.
        device: Where the search takes place.
        beam: Open hypotheses of a sentence; None: as `config` says.
    """

    def __init__(
        self,
        config: DecodingConfig,
        constraints: Constraints,
        device: torch.device,
        beam: int | None = None,
    ) -> None:
        sentences = constraints.limits.numel()
        self.beam = config.beam if beam is None else beam
        self.penalty = LengthPenalty.of(config)
        self.constraints = constraints
        steps = self.constraints.longest + 1
        self.divisors = [self.penalty.divisor(length) for length in range(1, steps + 2)]
        self.final_divisors = torch.tensor(self.divisors, device=device)
        self.finished = FinishedHypotheses(sentences, self.beam, config.n_best, steps, config.stop, device)
        self.results: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        self.numbers = list(range(sentences))
        self.step = 0
        self.sums = torch.zeros(sentences, 1, device=device)
        self.history = torch.empty(sentences, self.beam, steps, dtype=torch.int64, device=device)
        self.parents = self.tokens = torch.empty(sentences, 0, dtype=torch.int64, device=device)
        self._beam_indices = torch.arange(self.beam, device=device)

    def advance(self, log_probs: Tensor) -> None:
        """Continue every hypothesis by one subword; `log_probs` is `[N * W, V]`, W = 1 at first."""
        sentences, width = self.sums.shape
        log_probs = log_probs.view(sentences, width, -1)
        log_probs = self.constraints.apply(log_probs, self.history[:, :width, : self.step])
        sums, parents, tokens = self._candidates(log_probs)
        ends = tokens == EOS
        # Looking costs nothing on a CPU; on a GPU it would wait for all that was queued.
        if ends.device.type != "cpu" or bool(ends.any()):
            self._finish(ends, sums, parents)
            # Sorting the flags alone (stable, False first) lists the open candidates in their order of rank.
            order = ends.to(torch.int8).sort(dim=1, stable=True).indices
            tokens, parents = tokens.gather(1, order), parents.gather(1, order)
            sums = sums.gather(1, order).masked_fill_(ends.gather(1, order), IMPOSSIBLE)
        first = slice(0, self.beam)
        self.tokens, self.parents, self.sums = tokens[:, first], parents[:, first], sums[:, first]
        self.step += 1
        self.finished.close(self.constraints.reachable(self.sums[:, 0]), self._best_divisors())

    def _best_divisors(self) -> Tensor:
        """The best penalty that an open hypothesis of each sentence can still get."""
        return self.final_divisors[self.constraints.limits].clamp(min=self.divisors[self.step])

    def _candidates(self, log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The best `2 * beam` continuations of each sentence: summed log-probability, parent, token.

        A parent is the index, within the beam, of the hypothesis that is continued.
        """
        sentences, width, columns = log_probs.shape
        # A row has one EOS, so beam + 1 of its continuations are all that can be needed.
        per_row = min(self.beam + 1, columns)
        values, tokens = chunked_top_k(log_probs.view(sentences * width, columns), per_row)
        values = values.view(sentences, width, per_row) + self.sums.unsqueeze(2)
        missing = 2 * self.beam - width * per_row
        values, tokens = values.view(sentences, -1), tokens.view(sentences, -1)
        if missing > 0:
            values = torch.nn.functional.pad(values, (0, missing), value=IMPOSSIBLE)
            tokens = torch.nn.functional.pad(tokens, (0, missing), value=PAD)
        sums, index = values.topk(2 * self.beam, dim=1)
        parents = (index // per_row).clamp_(max=width - 1)
        return sums, parents, tokens.gather(1, index)

    def _finish(self, ends: Tensor, sums: Tensor, parents: Tensor) -> None:
        first = slice(0, self.beam)
        ends = ends[:, first] & (sums[:, first] > IMPOSSIBLE)
        index = parents[:, first].unsqueeze(2).expand(-1, -1, self.step)
        history = self.history.gather(1, index)
        self.finished.add(ends, sums[:, first], self.divisors[self.step], history)

    def read_flags(self) -> tuple[list[bool], bool]:
        """Which sentences have ended, and whether each hypothesis continues that of its own index.

        The one synchronisation of a step with the device.
        """
        unmoved = (self.parents == self._beam_indices).all().view(1)
        *ended, still = torch.cat([self.finished.ended, unmoved]).tolist()
        return ended, still

    def parent_rows(self) -> Tensor:
        """For each row `[N * beam]` of the state, the row of the hypothesis that it continues."""
        first = torch.arange(0, self.parents.numel(), self.beam, device=self.parents.device)
        return (first.unsqueeze(1) + self.parents).view(-1)

    def reorder(self, rows: Tensor) -> None:
        """New hypothesis i continues old hypothesis `rows[i]`."""
        self.history = self.history.flatten(0, 1).index_select(0, rows).view(self.history.shape)

    def append(self) -> Tensor:
        """Add the chosen subwords to the hypotheses that they continue; returns them, `[N * beam]`."""
        self.history[:, :, self.step - 1] = self.tokens
        return self.tokens.reshape(-1)

    def collect(self, rows: Sequence[int]) -> None:
        """Move the finished hypotheses of these sentences of the batch to the results."""
        index = torch.tensor(list(rows), device=self.sums.device)
        for row, hypotheses in zip(rows, self.finished.hypotheses(index), strict=True):
            self.results[self.numbers[row]] = hypotheses

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences stay in the batch."""
        self.numbers = [self.numbers[row] for row in sentences.tolist()]
        self.constraints.keep(sentences)
        self.finished.keep(sentences)
        self.sums = self.sums.index_select(0, sentences)
        self.history = self.history.index_select(0, sentences)
        self.parents = self.parents.index_select(0, sentences)
        self.tokens = self.tokens.index_select(0, sentences)


class FinishedHypotheses:
    """The best finished hypotheses of every sentence in a batch, and which sentences need no further step.

    Kept on the device of the search: `sentences` rows of `n_best` places, best first; empty: -inf.

    Args:
        sentences: Sentences in the batch.
        beam: Hypotheses that end a sentence under the rule `first`.
        n_best: Places.
        steps: Most subwords of a hypothesis, EOS counted.
        rule: When a sentence has ended.
    """

    def __init__(
        self,
        sentences: int,
        beam: int,
        n_best: int,
        steps: int,
        rule: StopRule,
        device: torch.device,
    ) -> None:
        self.beam, self.rule = beam, rule
        self.scores = torch.full((sentences, n_best), IMPOSSIBLE, device=device)
        self.log_probabilities = torch.full((sentences, n_best), IMPOSSIBLE, device=device)
        self.tokens = torch.full((sentences, n_best, steps), EOS, dtype=torch.int64, device=device)
        self.counts = torch.zeros(sentences, dtype=torch.int64, device=device)
        self.ended = torch.zeros(sentences, dtype=torch.bool, device=device)

    def add(self, ends: Tensor, log_probabilities: Tensor, divisor: float | Tensor, history: Tensor) -> None:
        """Take in the hypotheses that end in this step.

        Under the rule `first` only the first `beam` of a sentence count; those of one step in order of rank.

        Args:
            ends: `[N, k]` bool, which of the candidates end here, best first.
            log_probabilities: `[N, k]`, EOS included.
            divisor: The length penalty of this step, perhaps `[N, 1]`.
            history: `[N, k, t]` their subwords without EOS.
        """
        ends = ends & ~self.ended.unsqueeze(1)
        if self.rule == "first":
            ends = ends & (self.counts.unsqueeze(1) + ends.cumsum(1) <= self.beam)
        self.counts = self.counts + ends.sum(1)
        scores = torch.where(ends, log_probabilities / divisor, IMPOSSIBLE)
        n_best, length = self.scores.size(1), history.size(2)
        # Stable: of two equal scores the earlier one stays ahead, whatever the batch.
        merged, order = torch.cat([self.scores, scores], 1).sort(dim=1, descending=True, stable=True)
        order = order[:, :n_best]
        self.scores = merged[:, :n_best]
        sums = torch.cat([self.log_probabilities, log_probabilities], 1)
        self.log_probabilities = sums.gather(1, order)
        index = order.unsqueeze(2).expand(-1, -1, self.tokens.size(2))
        padded = self.tokens.new_full((*history.shape[:2], self.tokens.size(2)), EOS)
        padded[:, :, :length] = history
        self.tokens = torch.cat([self.tokens, padded], 1).gather(1, index)

    def close(self, best_open: Tensor, divisors: Tensor) -> Tensor:
        """Which sentences have ended, `[N]` bool.

        Args:
            best_open: `[N]` log-probability of the best open hypothesis, -inf when there is none.
            divisors: `[N]`, the best penalty that an open hypothesis can still get.
        """
        # A log-probability can only fall, so no continuation scores better than this bound: then the n-best
        # list is what it will be under either rule.
        worst = self.scores[:, -1]
        ended = (worst > IMPOSSIBLE) & (best_open / divisors <= worst)
        if self.rule == "first":
            ended = ended | (self.counts >= self.beam)
        self.ended = self.ended | ended | ~(best_open > IMPOSSIBLE)
        return self.ended

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences stay."""
        self.scores = self.scores.index_select(0, sentences)
        self.log_probabilities = self.log_probabilities.index_select(0, sentences)
        self.tokens = self.tokens.index_select(0, sentences)
        self.counts = self.counts.index_select(0, sentences)
        self.ended = self.ended.index_select(0, sentences)

    def hypotheses(self, sentences: Tensor) -> list[list[Hypothesis]]:
        """The finished hypotheses of these sentences, best first.

        Raises:
            ModelError: A sentence has none, because the model gave no finite probabilities.
        """
        return [require_finite(finished) for finished in self.listed(sentences)]

    def listed(self, sentences: Tensor) -> list[list[Hypothesis]]:
        """The finished hypotheses of these sentences, best first; perhaps none."""
        scores = self.scores.index_select(0, sentences).tolist()
        sums = self.log_probabilities.index_select(0, sentences).tolist()
        tokens = self.tokens.index_select(0, sentences).tolist()
        return [
            [
                Hypothesis(tuple(ids[: ids.index(EOS)]), total, score)
                for score, total, ids in zip(*row, strict=True)
                if score > IMPOSSIBLE
            ]
            for row in zip(scores, sums, tokens, strict=True)
        ]
