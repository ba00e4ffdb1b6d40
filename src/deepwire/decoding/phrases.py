"""Phrases that translations must or should rather have, as subwords of the target vocabulary.

A search that prefers phrases demands none: a likely beginning of one costs less than it does. That is the
contextual biasing of speech recognition (Zhao et al. 2019, Shallow-Fusion End-to-End Contextual Biasing),
with a condition: a phrase may begin only where the model likes it nearly as much as its own best subword.
Without it phrases stand too early. Every hypothesis pays for all phrases at the beginning, and gets that back
with the phrases: so the preference does not shorten translations.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import pairwise
from typing import NamedTuple

import torch
from torch import Tensor

from deepwire.data.subwords.sentencepiece import SPACE, SentencePieceVocabulary
from deepwire.data.text.language_guess import UNSPACED
from deepwire.data.vocabulary import PAD, UNK, Vocabulary

_JOINER = "@@"
_UNSPACED = re.compile(f"[{UNSPACED}]")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")

BONUS = 3.0
"""Nats for each subword of a preferred phrase."""
_GATE = 4.0
"""A phrase may begin where it is at most so many nats less probable than the best subword."""
_NONE = -1


@dataclass(frozen=True)
class Phrase:
    """One of several surface forms, as sequences of subwords.

    Attributes:
        forms: The sequences; none is empty.
        open: Which of them, from 0, may be the beginning of a longer word; with the others the word ends.
    """

    forms: tuple[tuple[int, ...], ...]
    open: frozenset[int] = frozenset()

    @property
    def longest(self) -> int:
        """Subwords of the longest form."""
        return max(map(len, self.forms))

    @property
    def firsts(self) -> list[int]:
        """First subwords of its forms, ascending."""
        return sorted({form[0] for form in self.forms})

    @property
    def subwords(self) -> list[int]:
        """All subwords of its forms."""
        return [subword for form in self.forms for subword in form]

    def renumbered(self, index_of: Mapping[int, int]) -> Phrase:
        """The phrase where subwords have other numbers, as in a shortlist."""
        return replace(self, forms=tuple(tuple(index_of[subword] for subword in form) for form in self.forms))


def remaining(phrases: Sequence[Phrase]) -> int:
    """Most subwords of some phrases."""
    return sum(phrase.longest for phrase in phrases)


@dataclass(frozen=True)
class WordBounds:
    """Which subwords of a vocabulary stand within a word.

    Attributes:
        inside: Subwords that go on with the word of the one before them.
        open: Subwords whose word goes on with the next one.
    """

    inside: frozenset[int]
    open: frozenset[int]


@lru_cache(maxsize=8)
def word_bounds(vocabulary: Vocabulary) -> WordBounds:
    """The word bounds of a vocabulary, which stays in memory with them."""
    pieces = vocabulary.pieces(range(vocabulary.size))
    inside = frozenset[int]()
    if isinstance(vocabulary, SentencePieceVocabulary):
        inside = frozenset(place for place, piece in enumerate(pieces) if place > UNK and _goes_on(piece))
    joined = frozenset(place for place, piece in enumerate(pieces) if piece.endswith(_JOINER))
    return WordBounds(inside, joined)


def _goes_on(piece: str) -> bool:
    """Whether a piece of SentencePiece belongs to the word before it: no space, no sign, no ideograph."""
    if _BYTE.fullmatch(piece):
        return True
    first = piece[:1]
    return first != SPACE and first.isalnum() and not _UNSPACED.match(first)


def phrase_of(vocabulary: Vocabulary, texts: Mapping[str, bool]) -> Phrase | None:
    """The phrase that is one of some texts; None where the vocabulary can write none of them."""
    forms = dict[tuple[int, ...], bool]()
    for text, goes_on in texts.items():
        if form := _written(vocabulary, text):
            forms[form] = goes_on or forms.get(form, False)
    open_forms = frozenset(place for place, goes_on in enumerate(forms.values()) if goes_on)
    return Phrase(tuple(forms), open_forms) if forms else None


def _written(vocabulary: Vocabulary, text: str) -> tuple[int, ...]:
    """A text as subwords from which it can be read again; none where there are no such."""
    ids = vocabulary.encode(text)
    return () if UNK in ids or vocabulary.decode(ids) != text else tuple(ids)


class PreferredPhrases:
    """Makes the preferred phrases of a batch of sentences cheaper.

    Attributes:
        most: `[N]` what the phrases of a sentence can bring: the longest form of each.
    """

    def __init__(self, phrases: Sequence[Sequence[Phrase]], device: torch.device) -> None:
        firsts: list[list[tuple[int, int, int]]] = []
        pairs: list[list[tuple[int, int, int, int, int]]] = []
        for sentence_phrases in phrases:
            wanted = list(enumerate(Counter(sentence_phrases).items()))
            firsts.append(
                [(first, number, count) for number, (phrase, count) in wanted for first in phrase.firsts]
            )
            pairs.append(
                [
                    (*pair, number, count, count * (phrase.longest - 1))
                    for number, (phrase, count) in wanted
                    for pair in dict.fromkeys(pair for form in phrase.forms for pair in pairwise(form))
                ]
            )
        first, of_phrase, count = _columns(firsts, (PAD, _NONE, 0), device)
        before, following, pair_of_phrase, pair_wanted, most_pairs = _columns(
            pairs, (_NONE, PAD, _NONE, 0, 0), device
        )
        self._parts = _Parts(
            first,
            count,
            _is_same(of_phrase),
            before,
            following,
            pair_wanted,
            most_pairs,
            _is_same(pair_of_phrase),
        )
        self.most = BONUS * torch.tensor(
            [float(sum(phrase.longest for phrase in sentence_phrases)) for sentence_phrases in phrases],
            device=device,
        )

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences stay."""
        self._parts = _Parts(*(part.index_select(0, sentences) for part in self._parts))
        self.most = self.most.index_select(0, sentences)

    def add(self, log_probs: Tensor, history: Tensor) -> None:
        """Prefer the phrases, in place."""
        width, first, following = log_probs.size(1), self._parts.first, self._parts.next
        if first.size(1):
            index = first.unsqueeze(1).expand(-1, width, -1)
            likely = log_probs.gather(2, index) >= log_probs.amax(2, keepdim=True) - _GATE
            begins = BONUS * (likely & self._may_begin(history)).float()
        if history.size(2) and following.size(1):
            goes_on = BONUS * self._goes_on(history).float()
            log_probs.scatter_add_(2, following.unsqueeze(1).expand(-1, width, -1), goes_on)
        if first.size(1):
            log_probs.scatter_add_(2, index, begins)
        if not history.size(2):
            log_probs -= self.most.view(-1, 1, 1)

    def _may_begin(self, history: Tensor) -> Tensor:
        """`[N, W, K]`: whether a phrase was begun less often than it is wanted, in whichever of its forms."""
        parts = self._parts
        begun = (history.unsqueeze(3) == parts.first[:, None, None]).sum(2).float() @ parts.same_phrase
        return begun < parts.wanted.unsqueeze(1)

    def _goes_on(self, history: Tensor) -> Tensor:
        """`[N, W, P]`: whether the next of two subwords of a phrase is wanted now.

        No pair counts more often than its phrase is wanted, and all of a phrase together no more than the
        longest form has: a hypothesis never gets more than it has paid.
        """
        parts = self._parts
        before, following = parts.before[:, None, None], parts.next[:, None, None]
        seen = ((history[:, :, :-1, None] == before) & (history[:, :, 1:, None] == following)).sum(2)
        count = parts.pair_wanted.unsqueeze(1)
        of_phrase = seen.minimum(count).float() @ parts.same_phrase_of_pair
        is_wanted = (seen < count) & (of_phrase < parts.most_pairs.unsqueeze(1))
        return is_wanted & (history[:, :, -1:] == parts.before.unsqueeze(1))


class _Parts(NamedTuple):
    """The subwords of the phrases of each sentence.

    Attributes:
        first: `[N, K]` what a form of a phrase begins with.
        wanted: `[N, K]` how often that phrase is wanted.
        same_phrase: `[N, K, K]` 1 where two of them belong to one phrase.
        before, next: `[N, P]` two subwords of a form that stand side by side.
        pair_wanted: `[N, P]` how often their phrase is wanted.
        most_pairs: `[N, P]` how many pairs of their phrase count.
        same_phrase_of_pair: `[N, P, P]` as `same_phrase`.
    """

    first: Tensor
    wanted: Tensor
    same_phrase: Tensor
    before: Tensor
    next: Tensor
    pair_wanted: Tensor
    most_pairs: Tensor
    same_phrase_of_pair: Tensor


def _is_same(numbers: Tensor) -> Tensor:
    """`[N, K, K]` from numbers `[N, K]`: 1.0 where two are the same."""
    return (numbers.unsqueeze(1) == numbers.unsqueeze(2)).float()


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
