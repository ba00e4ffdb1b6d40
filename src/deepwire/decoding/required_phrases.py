"""Phrases that a translation must have, as subwords of the target vocabulary."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache

import torch
from torch import Tensor

from deepwire.data.subwords.sentencepiece import SPACE, SentencePieceVocabulary
from deepwire.data.text.language_guess import UNSPACED
from deepwire.data.text.placeholders import SYMBOLS
from deepwire.data.vocabulary import UNK, Vocabulary, symbol_ids

_JOINER = "@@"
_UNSPACED = re.compile(f"[{UNSPACED}]")
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


@dataclass(frozen=True)
class Phrase:
    """What a translation must have: one of several surface forms, as sequences of subwords.

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
        """What a form begins with, ascending."""
        return sorted({form[0] for form in self.forms})

    @property
    def subwords(self) -> list[int]:
        """Of all forms."""
        return [subword for form in self.forms for subword in form]

    def renumbered(self, index_of: Mapping[int, int]) -> Phrase:
        """The phrase where subwords have other numbers, as in a shortlist."""
        return replace(self, forms=tuple(tuple(index_of[subword] for subword in form) for form in self.forms))


@dataclass(frozen=True)
class WordBounds:
    """Which subwords of a vocabulary stand within a word.

    Attributes:
        inside: Subwords that go on with the word of the one before them.
        open: Subwords whose word goes on with the next one.
        symbols: `[k]` subwords for placeholders: only phrases have them.
    """

    inside: frozenset[int]
    open: frozenset[int]
    symbols: Tensor


@lru_cache(maxsize=8)
def word_bounds(vocabulary: Vocabulary) -> WordBounds:
    """Those of a vocabulary, which stays in memory with them."""
    pieces = vocabulary.pieces(range(vocabulary.size))
    inside = frozenset[int]()
    if isinstance(vocabulary, SentencePieceVocabulary):
        inside = frozenset(place for place, piece in enumerate(pieces) if place > UNK and _goes_on(piece))
    joined = frozenset(place for place, piece in enumerate(pieces) if piece.endswith(_JOINER))
    ids = list(symbol_ids(vocabulary).values())
    return WordBounds(inside, joined, torch.tensor(ids, dtype=torch.int64))


def _goes_on(piece: str) -> bool:
    """Whether a piece of SentencePiece belongs to the word before it: no space, no sign, no ideograph."""
    if _BYTE.fullmatch(piece):
        return True
    first = piece[:1]
    return first != SPACE and first.isalnum() and not _UNSPACED.match(first)


def phrase_of(vocabulary: Vocabulary, texts: Mapping[str, bool]) -> Phrase | None:
    """The phrase that is one of some texts; None where the vocabulary can write none of them.

    Args:
        vocabulary: The vocabulary.
        texts: Each with whether its last word may go on behind it.
    """
    known, forms = symbol_ids_of(vocabulary), dict[tuple[int, ...], bool]()
    for text, goes_on in texts.items():
        if form := _written(vocabulary, text, known):
            forms[form] = goes_on or forms.get(form, False)
    open_forms = frozenset(place for place, goes_on in enumerate(forms.values()) if goes_on)
    return Phrase(tuple(forms), open_forms) if forms else None


@lru_cache(maxsize=8)
def symbol_ids_of(vocabulary: Vocabulary) -> dict[str, int]:
    """`symbol_ids`, computed once."""
    return symbol_ids(vocabulary)


def _written(vocabulary: Vocabulary, text: str, symbols: dict[str, int]) -> tuple[int, ...]:
    """A text as subwords from which it can be read again; none where there are no such."""
    if text in SYMBOLS:
        return (symbols[text],) if text in symbols else ()
    ids = vocabulary.encode(text)
    if UNK in ids or vocabulary.decode(ids) != text:
        return ()
    return tuple(ids)


def remaining(phrases: Sequence[Phrase], met: int) -> int:
    """Most subwords of the phrases whose bit in `met` is not set."""
    return sum(phrase.longest for place, phrase in enumerate(phrases) if not met >> place & 1)
