"""The interface of every vocabulary: text to numbers and back, with four numbers set apart."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import chain
from typing import NamedTuple, Protocol

import numpy as np
from numpy.typing import NDArray

from deepwire.data.text.pairs import Pair

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIAL_PIECES = ("<pad>", "<s>", "</s>", "<unk>")
"""How the special numbers are shown; text that says the same is text and gets other numbers."""


class Segmentation(NamedTuple):
    """Piece numbers of many texts, one after the other, and how many each has, `[texts]`."""

    pieces: NDArray[np.integer]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], size: int) -> Segmentation:
        """Numbers of each text, with a vocabulary of so many entries."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return cls(np.fromiter(chain.from_iterable(rows), number_type(size), int(lengths.sum())), lengths)

    def take(self, chosen: NDArray[np.bool_]) -> Segmentation:
        """Some of the texts."""
        if chosen.all():
            return self
        return Segmentation(self.pieces[np.repeat(chosen, self.lengths)], self.lengths[chosen])


def number_type(size: int) -> np.dtype[np.integer]:
    """The smallest numbers that hold the entries of a vocabulary."""
    return np.dtype("<u2" if size <= 1 << 16 else "<u4")


class Vocabulary(ABC):
    """One side's subwords. Ordinary pieces are numbered from 4 (`len(SPECIAL_PIECES)`)."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of entries, the special ones included."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Text to piece numbers; never PAD, BOS or EOS, whatever the text says, and no EOS at the end."""

    def encode_lines(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text; faster for many."""
        return [self.encode(text) for text in texts]

    def segment(self, texts: Sequence[str]) -> Segmentation:
        """`encode` of each text, as arrays."""
        return Segmentation.of(self.encode_lines(texts), self.size)

    @abstractmethod
    def sample(self, text: str, seed: int, strength: float) -> list[int]:
        """A random segmentation: the same for the same text, seed and strength.

        The strength is the probability of BPE-dropout, or alpha of a unigram model; 0 is `encode`.
        """

    def decode(self, ids: Iterable[int]) -> str:
        """Raw text of piece numbers: PAD and BOS are left out, EOS ends it, UNK becomes U+2047 (⁇)."""
        return self._join(_ordinary(ids))

    def spans(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Where each piece begins and ends in `decode(ids)`; one that writes nothing is empty there."""
        ends = [len(self.decode(ids[:count])) for count in range(1, len(ids) + 1)]
        # What is not complete, as a part of a character, may look longer than it becomes.
        for place in reversed(range(len(ends) - 1)):
            ends[place] = min(ends[place], ends[place + 1])
        return list(zip([0, *ends[:-1]], ends, strict=True)) if ends else []

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The pieces as people read them, special ones as `<s>`."""
        return [SPECIAL_PIECES[number] if number < 4 else self._piece(number) for number in map(int, ids)]

    @abstractmethod
    def _join(self, ids: list[int]) -> str:
        """Text of numbers among which only UNK is special."""

    @abstractmethod
    def _piece(self, number: int) -> str: ...

    @abstractmethod
    def files(self, name: str) -> dict[str, bytes]:
        """All there is to keep, as contents of files whose names begin with `name.`."""


class Learner(Protocol):
    """Sees the training text once, in constant memory, then makes the vocabularies of both sides."""

    def add(self, pairs: Sequence[Pair]) -> None:
        """Show the next pairs."""

    def finish(self) -> tuple[Vocabulary, Vocabulary]:
        """Source and target vocabulary; the same object twice when they are one.

        A DataError where the text does not support what was asked for.
        """


def _ordinary(ids: Iterable[int]) -> list[int]:
    ordinary = []
    for number in map(int, ids):
        if number == EOS:
            break
        if number not in (PAD, BOS):
            ordinary.append(number)
    return ordinary
