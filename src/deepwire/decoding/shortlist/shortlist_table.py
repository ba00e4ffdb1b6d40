"""The tables of shortlists, and the shortlist of a batch: the target subwords that its source may need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor

from deepwire.data.vocabulary import UNK
from deepwire.errors import ModelError


@dataclass(frozen=True)
class ShortlistTable:
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
    def of_all(cls, always: Tensor, size: int) -> ShortlistTable:
        """The table of subwords that every text may need, and of no others."""
        return cls(always, torch.zeros(2, dtype=torch.int64), torch.zeros(0, dtype=torch.int64), size)

    def mark(self, source: Tensor, marks: Tensor) -> None:
        """Set in `marks` `[size]` the target subwords of the source subwords `[...]`; tags have none."""
        present = torch.zeros(len(self.offsets) - 1, dtype=torch.bool)
        present[source[source < len(present)]] = True
        ids = present.nonzero().squeeze(1)
        starts, counts = self.offsets[ids], self.offsets[ids + 1] - self.offsets[ids]
        first = torch.repeat_interleave(starts - (counts.cumsum(0) - counts), counts)
        marks[self.targets[first + torch.arange(len(first))]] = True
        marks[self.always] = True


class LanguageRows(NamedTuple):
    """The sentences of a batch that have the same target language."""

    language_id: int
    """Its number; 0 with a model of one direction."""
    table: ShortlistTable
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


class BatchShortlist(NamedTuple):
    """The shortlist of a batch."""

    tokens: Tensor
    """`[k]` ascending: it begins with PAD, BOS, EOS and UNK."""
    allowed: Tensor | None
    """`[L, k]`: which of them each target language may have; None: all have the same."""

    def to(self, device: torch.device) -> BatchShortlist:
        """The same on a device."""
        return BatchShortlist(
            self.tokens.to(device), None if self.allowed is None else self.allowed.to(device)
        )


def batch_shortlist(parts: Sequence[LanguageRows], languages: int = 1) -> BatchShortlist:
    """The shortlist of a batch of one language or several; `languages` is how many the model has."""
    marks = torch.stack([part.marks() for part in parts])
    tokens = marks.any(0).nonzero().squeeze(1)
    own = marks[:, tokens]
    if bool(own.all()):
        return BatchShortlist(tokens, None)
    allowed = torch.ones(languages, len(tokens), dtype=torch.bool)
    allowed[[part.language_id for part in parts]] = own
    return BatchShortlist(tokens, allowed)
