"""The interface of every vocabulary: text to subword ids and back; the ids 0 to 3 are special."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from itertools import chain, takewhile
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepwire.data.text.pairs import Texts
from deepwire.errors import UsageError

PAD, BOS, EOS, UNK = 0, 1, 2, 3
SPECIAL_PIECES = ("<pad>", "<s>", "</s>", "<unk>")
"""How special ids are shown; the same characters in a text are encoded as ordinary pieces."""


class Segmentation(NamedTuple):
    """Piece ids of many texts, concatenated, and how many each text has, `[texts]`."""

    pieces: NDArray[np.integer]
    lengths: NDArray[np.int64]

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]], size: int) -> Segmentation:
        """Concatenates the ids of each text; `size` is that of the vocabulary."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        return cls(np.fromiter(chain.from_iterable(rows), id_dtype(size), int(lengths.sum())), lengths)

    def take(self, chosen: NDArray[np.bool_]) -> Segmentation:
        """The texts where `chosen` `[texts]` is true."""
        if chosen.all():
            return self
        return Segmentation(self.pieces[np.repeat(chosen, self.lengths)], self.lengths[chosen])


def id_dtype(size: int) -> np.dtype[np.integer]:
    """The smallest integer type that holds the ids of a vocabulary of this size."""
    return np.dtype("<u2" if size <= 1 << 16 else "<u4")


class Vocabulary(ABC):
    """One side's subwords. Ordinary pieces are numbered from 4 (`len(SPECIAL_PIECES)`)."""

    @property
    @abstractmethod
    def size(self) -> int:
        """Number of entries, the special ones included."""

    @abstractmethod
    def encode(self, text: str) -> list[int]:
        """Text to piece ids; never PAD, BOS or EOS, whatever the text says, and no EOS at the end."""

    def encode_lines(self, texts: Sequence[str]) -> list[list[int]]:
        """`encode` of each text; faster for many."""
        return [self.encode(text) for text in texts]

    def segment(self, texts: Texts) -> Segmentation:
        """`encode` of each text, as arrays."""
        return Segmentation.of(self.encode_lines(texts.strings()), self.size)

    def tag_of(self, text: str) -> str:  # noqa: ARG002 - others have tags
        """The language tag in front of a text, with the spaces behind it; empty where there is none."""
        return ""

    def sample(self, text: str, seed: int, strength: float) -> list[int]:  # noqa: ARG002 - others draw by it
        """A random segmentation: the same for the same text, seed and strength.

        The strength is the probability of BPE-dropout, or alpha of a unigram model; 0 is `encode`.

        Raises:
            UsageError: There is only one segmentation.
        """
        if strength:
            raise UsageError("words cannot be segmented at random", "set data.vocabulary.sampling to 0")
        return self.encode(text)

    def decode(self, ids: Iterable[int]) -> str:
        """Raw text of piece ids: PAD and BOS are left out, EOS ends it, UNK becomes U+2047 (⁇)."""
        before_eos = takewhile(lambda i: i != EOS, map(int, ids))
        return self._decode_ids([i for i in before_eos if i not in (PAD, BOS)])

    def spans(self, ids: Sequence[int]) -> list[tuple[int, int]]:
        """Start and end of each piece in `decode(ids)`; a piece without text has an empty span."""
        ends = [len(self.decode(ids[:count])) for count in range(1, len(ids) + 1)]
        # An incomplete character may decode to more characters than the complete one.
        for place in reversed(range(len(ends) - 1)):
            ends[place] = min(ends[place], ends[place + 1])
        return list(zip([0, *ends[:-1]], ends, strict=True)) if ends else []

    def pieces(self, ids: Iterable[int]) -> list[str]:
        """The piece of each id as a string, special ones as `<s>`."""
        return [SPECIAL_PIECES[i] if i < len(SPECIAL_PIECES) else self._piece(i) for i in map(int, ids)]

    @abstractmethod
    def _decode_ids(self, ids: list[int]) -> str:
        """Text of ids among which only UNK is special."""

    @abstractmethod
    def _piece(self, number: int) -> str: ...

    @abstractmethod
    def files(self, name: str) -> dict[str, bytes]:
        """The contents of the files to store, by name; each name begins with `name.`."""
