"""Minimum Bayes risk decoding: of many drawn translations, the one that agrees best with all of them."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from numpy.typing import NDArray

from deepwire.decoding.translation_io import Candidate

_ORDERS = range(1, 7)
_FACTOR = 4.0
"""The square of chrF's beta, 2."""


def most_agreed(candidates: Sequence[Candidate], count: int) -> tuple[Candidate, ...]:
    """The candidates of a sentence that agree best with all, best first (Eikema and Aziz 2022).

    A candidate's score becomes its expected utility: its mean chrF (0 to 100) with every candidate as a
    reference.

    Args:
        candidates: Drawn from the model, each as often as it was drawn.
        count: How many to give; none twice while there are others.
    """
    if len(candidates) == 1:
        return tuple(candidates)  # nothing was drawn: an empty line, or one that is its own translation
    drawn = Counter(candidate.text for candidate in candidates)
    utilities = dict(zip(drawn, expected_chrf(list(drawn), list(drawn.values())), strict=True))
    scored = [replace(candidate, score=float(utilities[candidate.text])) for candidate in candidates]
    first: dict[str, Candidate] = {}
    again: list[Candidate] = []
    for candidate in sorted(scored, key=lambda candidate: -candidate.score):
        if first.setdefault(candidate.text, candidate) is not candidate:
            again.append(candidate)
    return (*first.values(), *again)[:count]


def expected_chrf(texts: Sequence[str], weights: Sequence[float]) -> NDArray[np.float64]:
    """Of each text the mean chrF2 with all texts as references, `[N]`, 0 to 100.

    chrF is that of sacrebleu for sentences: character n-grams up to 6 without spaces, precision and recall
    averaged over the orders that both texts have.

    Args:
        texts: N texts.
        weights: How often each counts as reference.
    """
    size = len(texts)
    precision, recall, orders = (np.zeros((size, size)) for _ in range(3))
    joined = ["".join(text.split()) for text in texts]
    for order in _ORDERS:
        counts = _counts(joined, order)
        totals = counts.sum(1).astype(np.float64)
        both = (totals[:, None] > 0) & (totals[None, :] > 0)
        shared = np.stack([np.minimum(row, counts).sum(1) for row in counts])
        one = np.maximum(totals, 1)
        precision += np.where(both, shared / one[:, None], 0)
        recall += np.where(both, shared / one[None, :], 0)
        orders += both
    orders = np.maximum(orders, 1)
    precision, recall = precision / orders, recall / orders
    below = _FACTOR * precision + recall
    chrf = 100 * (1 + _FACTOR) * precision * recall / np.where(below > 0, below, 1)
    expected: NDArray[np.float64] = chrf @ (np.array(weights, np.float64) / sum(weights))
    return expected


def _counts(texts: Sequence[str], order: int) -> NDArray[np.int32]:
    """How often each text has each n-gram that one of them has, `[N, n-grams]`."""
    places: dict[str, int] = {}
    rows = [
        [places.setdefault(text[at : at + order], len(places)) for at in range(len(text) - order + 1)]
        for text in texts
    ]
    counts = np.zeros((len(texts), len(places)), np.int32)
    for row, found in zip(counts, rows, strict=True):
        np.add.at(row, found, 1)
    return counts
