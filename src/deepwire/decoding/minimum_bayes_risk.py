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
_AT_ONCE = 4096
"""N-grams that are counted together."""


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
    """The mean chrF2 of each text with all texts as references, `[N]`, 0 to 100.

    chrF is that of sacrebleu for sentences: character n-grams up to 6 without spaces, precision and recall
    averaged over the orders that both texts have.
    """
    size = len(texts)
    precision, recall, orders = (np.zeros((size, size)) for _ in range(3))
    joined = ["".join(text.split()) for text in texts]
    for order in _ORDERS:
        shared = _shared(joined, order)
        totals = shared.diagonal()
        both = (totals[:, None] > 0) & (totals[None, :] > 0)
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


def _shared(texts: Sequence[str], order: int) -> NDArray[np.float64]:
    """How many n-grams each two texts have in common, `[N, N]`; each with itself all that it has.

    The sum of minima is a sum of products: of n-grams that both have once, that both have twice, and so on.
    """
    places: dict[str, int] = {}
    grams = [
        places.setdefault(text[at : at + order], len(places))
        for text in texts
        for at in range(len(text) - order + 1)
    ]
    owners = np.repeat(np.arange(len(texts)), [max(0, len(text) - order + 1) for text in texts])
    by_gram = np.argsort(grams, kind="stable")
    owners, sorted_grams = owners[by_gram], np.array(grams, np.int64)[by_gram]
    shared = np.zeros((len(texts), len(texts)))
    for begin in range(0, len(places), _AT_ONCE):
        part = slice(*np.searchsorted(sorted_grams, [begin, begin + _AT_ONCE]))
        counts = np.zeros((len(texts), min(_AT_ONCE, len(places) - begin)), np.int32)
        np.add.at(counts, (owners[part], sorted_grams[part] - begin), 1)
        least = 1
        while counts.size:
            there = (counts >= least).astype(np.float32)
            shared += there @ there.T
            least += 1
            counts = counts[:, counts.max(0) >= least]
    return shared
