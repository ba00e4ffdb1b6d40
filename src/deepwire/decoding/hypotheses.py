"""Translations that the search has found, their scores, and when a sentence needs no further step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import Tensor

from deepwire.data.vocabulary import EOS
from deepwire.decoding.config import DecodingConfig, LengthPenaltyForm, StopRule
from deepwire.errors import ModelError

IMPOSSIBLE = -torch.inf


@dataclass(frozen=True)
class Hypothesis:
    """One translation in subword ids."""

    ids: tuple[int, ...]
    """Without BOS and EOS."""
    log_probability: float
    """Natural logarithm, summed over the subwords and EOS; an unknown penalty, if set, is in it."""
    score: float
    """`log_probability` under the length penalty; what hypotheses are ranked by."""


@dataclass(frozen=True)
class LengthPenalty:
    """The divisor that makes log-probabilities of different lengths comparable.

    `gnmt`: ((5 + len) / 6)^a, Wu et al. 2016, eq. 14; `average`: len^a. EOS counts in `len`.
    """

    exponent: float
    form: LengthPenaltyForm

    @classmethod
    def of(cls, config: DecodingConfig) -> LengthPenalty:
        """The penalty that `config` asks for."""
        return cls(config.length_penalty, config.length_penalty_form)

    def divisor(self, length: int) -> float:
        """The penalty of `length` subwords, EOS counted."""
        base = (5.0 + length) / 6.0 if self.form == "gnmt" else float(length)
        return float(base**self.exponent)


class Finished:
    """The best finished hypotheses of every sentence in a batch.

    Kept on the device of the search; `sentences` rows of `n_best` slots, best first, empty slots score -inf.

    Args:
        sentences: Sentences in the batch.
        beam: Hypotheses that end a sentence under the rule `first`.
        n_best: Slots.
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

    def add(self, ends: Tensor, log_probabilities: Tensor, divisor: float, history: Tensor) -> None:
        """Take in the hypotheses that end in this step.

        Under the rule `first` only the first `beam` of a sentence count; those of one step in order of rank.

        Args:
            ends: `[N, k]` bool, which of the candidates end here, best first.
            log_probabilities: `[N, k]`, EOS included.
            divisor: The length penalty of this step.
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
            ModelError: a sentence has none, because the model gave no finite probabilities.
        """
        scores = self.scores.index_select(0, sentences).tolist()
        sums = self.log_probabilities.index_select(0, sentences).tolist()
        tokens = self.tokens.index_select(0, sentences).tolist()
        return [
            checked(
                [
                    Hypothesis(tuple(ids[: ids.index(EOS)]), total, score)
                    for score, total, ids in zip(*row, strict=True)
                    if score > IMPOSSIBLE
                ]
            )
            for row in zip(scores, sums, tokens, strict=True)
        ]


def checked(hypotheses: list[Hypothesis]) -> list[Hypothesis]:
    """The hypotheses of a sentence, if there is one and all are finite.

    Raises:
        ModelError: otherwise.
    """
    if hypotheses and all(math.isfinite(hypothesis.score) for hypothesis in hypotheses):
        return hypotheses
    raise ModelError(
        "the model gives no finite probabilities", "its weights are damaged or it diverged in training"
    )
