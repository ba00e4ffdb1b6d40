"""The table of a shortlist: what each source subword may bring forth, and what every text may need."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepwire.data.vocabulary import UNK, Vocabularies, Vocabulary
from deepwire.decoding.shortlist.alignment import Translations
from deepwire.errors import ModelError

LEAST = 1e-4
"""Less probable translations are left out, however few there are."""
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


@dataclass(frozen=True)
class Table:
    """Target subwords of each source subword, for one target language.

    Attributes:
        always: `[k]` what is part of every shortlist: special subwords, bytes, the most frequent subwords.
        offsets: `[V_s + 1]` where the subwords of each source subword begin in `targets`; of source subwords
            after these there are none.
        targets: `[n]` target subwords, those of source subword 0 first.
        size: Entries of the target vocabulary.

    Raises:
        ModelError: The parts do not fit each other.
    """

    always: Tensor
    offsets: Tensor
    targets: Tensor
    size: int

    def __post_init__(self) -> None:
        parts = (self.always, self.offsets, self.targets)
        if any(part.dim() != 1 or part.dtype != torch.int64 for part in parts) or len(self.offsets) < 2:
            raise ModelError("the table of the shortlist is no table")
        named = torch.cat([self.always, self.targets])
        steps = self.offsets.diff()
        if (
            int(self.offsets[0]) != 0
            or int(self.offsets[-1]) != len(self.targets)
            or bool((steps < 0).any())
            or bool((named < 0).any() or (named >= self.size).any())
            or not bool(torch.isin(torch.arange(UNK + 1), self.always).all())
        ):
            raise ModelError("the table of the shortlist is damaged")

    @classmethod
    def of_all(cls, always: Tensor, size: int) -> Table:
        """The table of subwords that every text may need, and of no others."""
        return cls(always, torch.zeros(2, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), size)

    def mark(self, source: Tensor, marks: Tensor) -> None:
        """Set what the source subwords `[...]` may bring forth in `marks` `[size]`; tags bring nothing."""
        found = torch.zeros(len(self.offsets) - 1, dtype=torch.bool)
        found[source[source < len(found)]] = True
        ids = found.nonzero().squeeze(1)
        starts, counts = self.offsets[ids], self.offsets[ids + 1] - self.offsets[ids]
        first = torch.repeat_interleave(starts - (counts.cumsum(0) - counts), counts)
        marks[self.targets[first + torch.arange(len(first))]] = True
        marks[self.always] = True


def table_of(
    learned: Translations, counts: NDArray[np.int64], vocabularies: Vocabularies, *, best: int, first: int
) -> Table:
    """The table of some probabilities.

    Args:
        learned: Probabilities of single subwords.
        counts: `[V_t]` how often each target subword stands in the text.
        vocabularies: Whose subwords these are.
        best: Most target subwords of a source subword.
        first: How many of the most frequent target subwords every shortlist has.
    """
    source, target = vocabularies.source, vocabularies.target
    likely = learned.probability >= LEAST
    owners, words, strength = (values[likely] for values in learned)
    order = np.lexsort((words, -strength, owners))
    owners, words = owners[order], words[order]
    starts = np.searchsorted(owners, np.arange(source.size))
    kept = np.arange(len(owners)) - starts[owners] < best
    same = np.array(list(_same_pieces(vocabularies)), np.int64).reshape(-1, 2)
    keys = np.concatenate([owners[kept] * target.size + words[kept], same[:, 0] * target.size + same[:, 1]])
    owners, words = np.divmod(np.unique(keys), target.size)
    offsets = np.searchsorted(owners, np.arange(source.size + 1))
    return Table(
        torch.from_numpy(_always(counts, target, first)),
        torch.from_numpy(offsets),
        torch.from_numpy(words),
        target.size,
    )


def _always(counts: NDArray[np.int64], target: Vocabulary, first: int) -> NDArray[np.int64]:
    frequent = np.argsort(-counts, kind="stable")[:first]
    spelled = [number for number, piece in _ordinary(target) if _BYTE.fullmatch(piece)]
    return np.unique(np.concatenate([np.arange(UNK + 1), frequent, np.array(spelled, np.int64)]))


def _same_pieces(vocabularies: Vocabularies) -> Iterator[tuple[int, int]]:
    """Source subwords with the target subword that is written alike: names and numbers stay as they are."""
    numbers = {piece: number for number, piece in _ordinary(vocabularies.target)}
    for number, piece in _ordinary(vocabularies.source):
        if piece in numbers:
            yield number, numbers[piece]


def _ordinary(vocabulary: Vocabulary) -> Iterable[tuple[int, str]]:
    ids = range(UNK + 1, vocabulary.size)
    return zip(ids, vocabulary.pieces(ids), strict=True)


class Part(NamedTuple):
    """The sentences of a batch that are translated into one language."""

    language: int
    """Its number; 0 with a model of one direction."""
    table: Table
    source: Tensor
    """`[N, S]` source subwords."""
    prefixes: Sequence[Sequence[int]] = ()
    """What their translations must begin with; all of it is in the shortlist."""

    def marks(self) -> Tensor:
        """`[V_t]`: which target subwords they are translated with."""
        marks = torch.zeros(self.table.size, dtype=torch.bool)
        self.table.mark(self.source, marks)
        for prefix in self.prefixes:
            marks[list(prefix)] = True
        return marks


class Chosen(NamedTuple):
    """The shortlist of a batch."""

    tokens: Tensor
    """`[k]` ascending: it begins with PAD, BOS, EOS and UNK."""
    allowed: Tensor | None
    """`[L, k]`: which of them each target language may have; None: all have the same."""

    def to(self, device: torch.device) -> Chosen:
        """The same on a device."""
        return Chosen(self.tokens.to(device), None if self.allowed is None else self.allowed.to(device))


def chosen(parts: Sequence[Part], languages: int = 1) -> Chosen:
    """The shortlist of a batch of one language or several; `languages` is how many the model has."""
    marks = torch.stack([part.marks() for part in parts])
    tokens = marks.any(0).nonzero().squeeze(1)
    own = marks[:, tokens]
    if bool(own.all()):
        return Chosen(tokens, None)
    allowed = torch.ones(languages, len(tokens), dtype=torch.bool)
    allowed[[part.language for part in parts]] = own
    return Chosen(tokens, allowed)
