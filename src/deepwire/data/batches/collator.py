"""Sentences put into the arrays of a batch: symbols before and behind them, tags of languages, padding."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from deepwire.data.batches.order import Indices
from deepwire.data.batches.token_store import TokenStore
from deepwire.data.languages import Languages
from deepwire.data.subwords.base import BOS, EOS, PAD
from deepwire.errors import DataError

Column = int | NDArray[np.int64]
"""A symbol in front of every row: one for all, or `[B]`."""


@dataclass(frozen=True)
class Batch:
    """One forward pass; int64 arrays, padded with PAD on the right."""

    source: NDArray[np.int64]
    """`[B, S]`: (BOS) (tag) w1..wk EOS."""
    target_input: NDArray[np.int64]
    """`[B, T]`: BOS or a tag, then w1..wk."""
    target_output: NDArray[np.int64]
    """`[B, T]`: w1..wk EOS."""
    source_tokens: int
    """Tokens of `source` that are not PAD."""
    target_tokens: int
    """Tokens of `target_output` that are not PAD."""
    lines: NDArray[np.int64]
    """`[B]`: numbers of the pairs in the store."""
    source_languages: NDArray[np.int64] | None = None
    """`[B]`: index of the source language of each row; None with one direction."""
    target_languages: NDArray[np.int64] | None = None
    """`[B]`: index of the target language of each row; None with one direction."""


class Collator:
    """Puts pairs of a store into batches.

    Args:
        store: The pairs.
        source_bos: Whether a source begins with BOS.
        languages: Of a store with several directions.

    Raises:
        DataError: the store has no directions, but languages were given.
    """

    def __init__(self, store: TokenStore, source_bos: bool, languages: Languages | None) -> None:
        if languages is not None and store.directions is None:
            raise DataError(f"{store.folder}: its pairs have no directions", "delete it, and prepare again")
        self._store, self._source_bos, self._languages = store, source_bos, languages
        self._pairs = None if languages is None else np.array(languages.indices, dtype=np.int64)
        self.before_source = int(source_bos) + int(languages is not None and languages.tags_source)
        """Symbols in front of a source."""

    def collate(
        self,
        source: tuple[NDArray[np.int64], NDArray[np.int64]],
        target: tuple[NDArray[np.int64], NDArray[np.int64]],
        lines: Indices,
    ) -> Batch:
        """The arrays of a batch.

        Args:
            source: The tokens of all rows one after the other, and the length of each row.
            target: The same.
            lines: `[B]`: the pairs in the store.
        """
        languages = self._languages_of(lines)
        before: list[Column] = [BOS] if self._source_bos else []
        start: Column = BOS
        if self._languages is not None and languages is not None:
            if self._languages.tags_source:
                before.append(self._store.source_side.vocabulary + languages[:, 1])
            if self._languages.tags_target:
                start = self._store.target_side.vocabulary + languages[:, 1]
        return Batch(
            source=padded_rows(*source, before=before, end=True),
            target_input=padded_rows(*target, before=[start], end=False),
            target_output=padded_rows(*target, before=[], end=True),
            source_tokens=len(source[0]) + len(lines) * (1 + len(before)),
            target_tokens=len(target[0]) + len(lines),
            lines=lines,
            source_languages=None if languages is None else languages[:, 0],
            target_languages=None if languages is None else languages[:, 1],
        )

    def _languages_of(self, lines: Indices) -> NDArray[np.int64] | None:
        """`[B, 2]`: source and target language of each pair."""
        if self._pairs is None or self._store.directions is None:
            return None
        return self._pairs[self._store.directions[lines]]


def padded_rows(
    tokens: NDArray[np.int64], lengths: NDArray[np.int64], *, before: Sequence[Column], end: bool
) -> NDArray[np.int64]:
    """`[rows, longest]`: tokens with symbols before and EOS behind them where asked for, then PAD."""
    begin = len(before)
    width = int(lengths.max(initial=0)) + begin + end
    columns, ends = np.arange(width), (lengths + begin)[:, None]
    rows = np.full((len(lengths), width), PAD, dtype=np.int64)
    rows[(columns >= begin) & (columns < ends)] = tokens
    for column, symbol in enumerate(before):
        rows[:, column] = symbol
    if end:
        rows[np.arange(len(lengths)), ends[:, 0]] = EOS
    return rows
