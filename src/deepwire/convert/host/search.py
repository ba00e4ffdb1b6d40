"""Beam search over log-probabilities of subwords."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np

from .graphs import Array

PAD, BOS, EOS, UNK = 0, 1, 2, 3
NEVER = -np.inf


class Hypothesis(NamedTuple):
    """A translation: subwords without EOS, its log-probability, and that under the length penalty."""

    ids: list[int]
    log_probability: float
    score: float


@dataclass
class Search:
    """Beam search over a batch of sentences as deepwire does it; greedy search with a beam of 1.

    Each step looks at the best `2 * beam` continuations of a sentence. Those that end with EOS and stand
    among the first `beam` are finished, and the first `beam` that go on stay open.

    Attributes:
        settings: Of the search.
        limits: Most subwords of each sentence.
        pieces: What has a higher number is never found.
        shortest: Fewest subwords of each sentence.
    """

    settings: Mapping[str, Any]
    limits: list[int]
    pieces: int
    shortest: int = 0
    sums: Array = field(init=False)
    history: Array = field(init=False)
    finished: list[list[Hypothesis]] = field(init=False)

    def __post_init__(self) -> None:
        count = len(self.limits)
        self.beam = self.settings["beam"]
        self.sums = np.zeros((count, 1), np.float32)
        self.history = np.zeros((count, 1, 0), np.int64)
        self.finished = [[] for _ in range(count)]
        self.finished_count = [0] * count
        self.numbers = np.arange(count)

    def divisor(self, length: int) -> float:
        """The length penalty of so many subwords, EOS counted."""
        form, exponent = self.settings["length_penalty_form"], self.settings["length_penalty"]
        return float(((5 + length) / 6 if form == "gnmt" else length) ** exponent)

    def advance(self, log_probs: Array) -> Array:
        """Continue by one subword; returns the index within the beam that each hypothesis continues."""
        length = self.history.shape[2]
        values = self.constrained(log_probs) + self.sums[:, :, None]
        sentences, _, columns = values.shape
        flat = values.reshape(sentences, -1)
        looked_at = min(1 if self.beam == 1 else 2 * self.beam, flat.shape[1])
        best = np.argpartition(-flat, looked_at - 1, axis=1)[:, :looked_at]
        order = np.argsort(-np.take_along_axis(flat, best, 1), axis=1, kind="stable")
        best = np.take_along_axis(best, order, 1)
        sums, parents, tokens = np.take_along_axis(flat, best, 1), best // columns, best % columns
        ends = tokens == EOS
        for row, place in zip(
            *np.nonzero(ends[:, : self.beam] & (sums[:, : self.beam] > NEVER)), strict=True
        ):
            self.finish(row, self.history[row, parents[row, place]].tolist(), float(sums[row, place]))
        order = np.argsort(ends, axis=1, kind="stable")[:, : self.beam]
        ends, sums, parents, tokens = (np.take_along_axis(x, order, 1) for x in (ends, sums, parents, tokens))
        self.sums = np.where(ends, np.float32(NEVER), sums)
        past = np.take_along_axis(self.history, parents[:, :, None], 1) if length else self.history
        past = np.broadcast_to(past, (*tokens.shape, length))
        self.history = np.concatenate((past, tokens[:, :, None]), 2)
        return parents

    def finish(self, row: int, ids: list[int], total: float) -> None:
        """Take in a hypothesis that has ended."""
        number = int(self.numbers[row])
        if self.settings["stop"] == "first" and self.finished_count[number] >= self.beam:
            return
        self.finished_count[number] += 1
        score = float(np.float32(total) / np.float32(self.divisor(len(ids) + 1)))
        best = [*self.finished[number], Hypothesis(ids, total, score)]
        self.finished[number] = sorted(best, key=lambda each: -each.score)[: self.settings["n_best"]]

    def going_on(self) -> Array:
        """The sentences of the batch that need another step, as indices; others leave it."""
        steps = self.history.shape[2]
        open_ = np.array([self.is_open(row, int(number), steps) for row, number in enumerate(self.numbers)])
        (rows,) = np.nonzero(open_)
        self.sums, self.history, self.numbers = self.sums[rows], self.history[rows], self.numbers[rows]
        return rows

    def is_open(self, row: int, number: int, steps: int) -> bool:
        """Whether an open hypothesis can still come into the n-best list, and none has ended the search."""
        best, finished = float(self.sums[row].max()), self.finished[number]
        if best == NEVER or (self.settings["stop"] == "first" and self.finished_count[number] >= self.beam):
            return False
        if len(finished) < self.settings["n_best"]:
            return True
        divisor = max(self.divisor(self.limits[number] + 1), self.divisor(steps + 1))
        return bool(np.float32(best) / np.float32(divisor) > finished[-1].score)

    def constrained(self, log_probs: Array) -> Array:
        """Log-probabilities with -inf at what may not follow."""
        settings, length = self.settings, self.history.shape[2]
        log_probs = log_probs.copy()
        log_probs[:, :, [PAD, BOS]] = NEVER
        log_probs[:, :, self.pieces :] = NEVER  # tags of languages
        if settings["unknown_penalty"] is None:
            log_probs[:, :, UNK] = NEVER
        else:
            log_probs[:, :, UNK] -= np.float32(settings["unknown_penalty"])
        end = log_probs[:, :, EOS].copy()
        if length < self.shortest:
            log_probs[:, :, EOS] = NEVER
            log_probs[:, :, EOS] = np.where(log_probs.max(2) == NEVER, end, NEVER)
        over = np.array([self.limits[number] <= length for number in self.numbers])
        log_probs[over] = NEVER
        log_probs[over, :, EOS] = end[over]
        return log_probs
