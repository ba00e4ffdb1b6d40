"""From learned probabilities of subwords to the table that a search takes its shortlist from."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator

import numpy as np
import torch
from numpy.typing import NDArray

from deepwire.data.vocabulary import UNK, Vocabularies, Vocabulary
from deepwire.decoding.shortlist import ShortlistTable
from deepwire.lab.experiments.shortlist_learning.ibm_model1 import LexicalProbabilities

MIN_PROBABILITY = 1e-4
"""Less probable translations are left out, however few there are."""
_BYTE = re.compile(r"<0x[0-9A-F]{2}>")


def build_table(
    learned: LexicalProbabilities,
    counts: NDArray[np.int64],
    vocabularies: Vocabularies,
    *,
    best: int,
    first: int,
) -> ShortlistTable:
    """The table of lexical probabilities.

    Args:
        learned: Those of pairs of subwords.
        counts: `[V_t]` how often each target subword stands in the text.
        vocabularies: Whose subwords these are.
        best: Most target subwords of a source subword.
        first: How many of the most frequent target subwords every shortlist has.
    """
    source, target = vocabularies.source, vocabularies.target
    likely = learned.probability >= MIN_PROBABILITY
    owners, words, strength = (values[likely] for values in learned)
    order = np.lexsort((words, -strength, owners))
    owners, words = owners[order], words[order]
    starts = np.searchsorted(owners, np.arange(source.size))
    kept = np.arange(len(owners)) - starts[owners] < best
    same = np.array(list(_same_pieces(vocabularies)), np.int64).reshape(-1, 2)
    keys = np.concatenate([owners[kept] * target.size + words[kept], same[:, 0] * target.size + same[:, 1]])
    owners, words = np.divmod(np.unique(keys), target.size)
    offsets = np.searchsorted(owners, np.arange(source.size + 1))
    return ShortlistTable(
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
