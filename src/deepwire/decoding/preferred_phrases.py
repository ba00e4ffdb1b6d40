"""Phrases that a search prefers, without demanding them: a likely beginning of one costs less than it does.

That is the contextual biasing of speech recognition (Zhao et al. 2019, Shallow-Fusion End-to-End Contextual
Biasing), with a condition: a phrase may begin only where the model likes it nearly as much as its own best
subword. Without it phrases stand too early. Every hypothesis pays for all phrases at the beginning, and gets
that back with the phrases: so the preference does not shorten translations.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

import torch
from torch import Tensor

from deepwire.data.vocabulary import PAD
from deepwire.decoding.required_phrases import Phrase

BONUS = 3.0
"""Nats for each subword of a phrase."""
_GATE = 4.0
"""A phrase may begin where it is at most so many nats less probable than the best subword."""
_NONE = -1


class PreferredPhrases:
    """What a batch of sentences prefers.

    Args:
        phrases: Of each sentence, each as often as it is wanted; perhaps none.
        device: Where the search takes place.

    Attributes:
        most: `[N]` what the phrases of a sentence can bring: the longest form of each.
    """

    def __init__(self, phrases: Sequence[Sequence[Phrase]], device: torch.device) -> None:
        firsts: list[list[tuple[int, int, int]]] = []
        pairs: list[list[tuple[int, int]]] = []
        for sentence_phrases in phrases:
            wanted = enumerate(Counter(sentence_phrases).items())
            firsts.append(
                [(first, number, count) for number, (phrase, count) in wanted for first in phrase.firsts]
            )
            forms = [form for phrase in dict.fromkeys(sentence_phrases) for form in phrase.forms]
            pairs.append(list(dict.fromkeys(pair for form in forms for pair in pairwise(form))))
        first, number, self._count = _columns(firsts, (PAD, _NONE, 0), device)
        self._first = first
        self._same = (number.unsqueeze(1) == number.unsqueeze(2)).float()
        self._before, self._next = _columns(pairs, (_NONE, PAD), device)
        self.most = BONUS * torch.tensor(
            [float(sum(phrase.longest for phrase in sentence_phrases)) for sentence_phrases in phrases],
            device=device,
        )

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences stay."""
        self._first, self._same = (part.index_select(0, sentences) for part in (self._first, self._same))
        self._before, self._next = (part.index_select(0, sentences) for part in (self._before, self._next))
        self._count, self.most = (part.index_select(0, sentences) for part in (self._count, self.most))

    def add(self, log_probs: Tensor, history: Tensor) -> None:
        """Prefer the phrases, in place.

        Args:
            log_probs: `[N, W, V]`, changed.
            history: `[N, W, t]` the subwords of each hypothesis so far.
        """
        width = log_probs.size(1)
        if self._first.size(1):
            index = self._first.unsqueeze(1).expand(-1, width, -1)
            likely = log_probs.gather(2, index) >= log_probs.amax(2, keepdim=True) - _GATE
            # [N, W, K]: how often each phrase was begun, whichever of its forms that was.
            begun = (history.unsqueeze(3) == self._first[:, None, None]).sum(2).float() @ self._same
            bonus = BONUS * (likely & (begun < self._count.unsqueeze(1))).float()
        if history.size(2) and self._next.size(1):
            goes_on = BONUS * (history[:, :, -1:] == self._before.unsqueeze(1)).float()
            log_probs.scatter_add_(2, self._next.unsqueeze(1).expand(-1, width, -1), goes_on)
        if self._first.size(1):
            log_probs.scatter_add_(2, index, bonus)
        if not history.size(2):
            log_probs -= self.most.view(-1, 1, 1)


def _columns(
    rows: Sequence[Sequence[tuple[int, ...]]], fill: tuple[int, ...], device: torch.device
) -> list[Tensor]:
    """Each part of the tuples of all rows as a tensor `[N, longest]`, filled up."""
    longest = max(map(len, rows))
    return [
        torch.tensor(
            [[*(entry[part] for entry in row), *[empty] * (longest - len(row))] for row in rows],
            dtype=torch.int64,
            device=device,
        )
        for part, empty in enumerate(fill)
    ]
