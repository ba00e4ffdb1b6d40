"""Beam search over a batch of sentences."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from deepwire.data.vocabulary import BOS, EOS, PAD
from deepwire.decoding.config import DecodingConfig
from deepwire.decoding.constraints import Constraints
from deepwire.decoding.contract import StateT, StepModel
from deepwire.decoding.hypotheses import IMPOSSIBLE, Finished, Hypothesis, LengthPenalty
from deepwire.decoding.shrinking import parting
from deepwire.decoding.top import top


@torch.inference_mode()
def beam_search(
    model: StepModel[StateT],
    source: Tensor,
    limits: Sequence[int],
    config: DecodingConfig,
    prefixes: Sequence[Sequence[int]] | None = None,
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
    """
    search = _Search(config, limits, prefixes, source.device)
    state = model.start(source, search.constraints.longest + 1)
    tokens = torch.full((source.size(0),), BOS, dtype=torch.int64, device=source.device)
    while True:
        log_probs, state = model.step(tokens, state)
        search.advance(log_probs)
        ended, unmoved = search.flags()
        if all(ended):
            search.collect(range(len(ended)))
            return search.results
        if search.step == 1:
            state = state.expand(config.beam)
        leaving, staying = parting(ended)
        if leaving:
            search.collect(leaving)
            going = torch.tensor(staying, device=source.device)
            state = state.keep(going)
            search.keep(going)
        if search.step > 1 and not unmoved:
            rows = search.rows()
            state = state.reorder(rows)
            search.reorder(rows)
        tokens = search.append()


class _Search:
    """The open and finished hypotheses of a batch."""

    def __init__(
        self,
        config: DecodingConfig,
        limits: Sequence[int],
        prefixes: Sequence[Sequence[int]] | None,
        device: torch.device,
    ) -> None:
        sentences = len(limits)
        self.beam = config.beam
        self.penalty = LengthPenalty.of(config)
        self.constraints = Constraints(config, limits, prefixes, device)
        steps = self.constraints.longest + 1
        self.divisors = [self.penalty.divisor(length) for length in range(1, steps + 2)]
        self.final = torch.tensor(self.divisors, device=device)
        self.finished = Finished(sentences, self.beam, config.n_best, steps, config.stop, device)
        self.results: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        self.numbers = list(range(sentences))
        self.step = 0
        self.sums = torch.zeros(sentences, 1, device=device)
        self.history = torch.empty(sentences, self.beam, steps, dtype=torch.int64, device=device)
        self.parents = self.tokens = torch.empty(sentences, 0, dtype=torch.int64, device=device)
        self._slots = torch.arange(self.beam, device=device)

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
        self.finished.close(self.sums[:, 0], self._best_divisors())

    def _best_divisors(self) -> Tensor:
        """The best penalty that an open hypothesis of each sentence can still get."""
        return self.final[self.constraints.limits].clamp(min=self.divisors[self.step])

    def _candidates(self, log_probs: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """The best `2 * beam` continuations of each sentence: summed log-probability, parent slot, token."""
        sentences, width, columns = log_probs.shape
        # A row has one EOS, so beam + 1 of its continuations are all that can be needed.
        per_row = min(self.beam + 1, columns)
        values, tokens = top(log_probs.view(sentences * width, columns), per_row)
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

    def flags(self) -> tuple[list[bool], bool]:
        """Which sentences have ended, and whether each slot kept its hypothesis; the one host sync."""
        unmoved = (self.parents == self._slots).all().view(1)
        *ended, still = torch.cat([self.finished.ended, unmoved]).tolist()
        return ended, still

    def rows(self) -> Tensor:
        """The old row of every new row `[N * beam]`."""
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
