"""IBM model 1: probabilities that a source subword is translated by a target subword, in constant memory."""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from deepwire.data.vocabulary import PAD
from deepwire.lab.experiments.shortlist_learning.training_pairs import TrainingPairs

MAX_SUBWORD_PAIRS = 1 << 24
"""Pairs of subwords whose probability is learned, 16 bytes each."""
Progress = Callable[[str, int, int], None]
"""Called with what is being done, how many sentence pairs are done, and of how many."""


class LexicalProbabilities(NamedTuple):
    """Probabilities of single subwords, sorted by source and then by target; all `[n]`."""

    source: NDArray[np.int64]
    target: NDArray[np.int64]
    probability: NDArray[np.float32]
    """t(target | source), the target subwords that stand beside a source subword nowhere have none."""


class _PairCounts(NamedTuple):
    """How often pairs of subwords stand in the same sentence pair."""

    keys: NDArray[np.int64]
    """`[n]` ascending: source * target size + target."""
    counts: NDArray[np.float32]


def train_ibm_model1(
    pairs: TrainingPairs,
    sizes: tuple[int, int],
    *,
    rounds: int,
    tell: Progress,
    most: int = MAX_SUBWORD_PAIRS,
) -> LexicalProbabilities:
    """t(f | e) of IBM model 1 (Brown et al. 1993, section 4.1), by `rounds` of EM from equal probabilities.

    Every target subword f of a sentence comes from one of its source subwords e or from none (e_0), each of
    them as likely as another. Only pairs (e, f) that stand in one sentence pair have a probability. Where
    there are more than `most`, those with the smallest n(e, f)^2 / (n(e) n(f)) are dropped on the way.

    Args:
        pairs: The text.
        sizes: Entries of the source and the target vocabulary.
        rounds: Passes of EM over the text, besides the one that counts.
        tell: Receives the progress.
        most: Pairs of subwords that memory is taken for.
    """
    keys = torch.from_numpy(_candidates(pairs, sizes, most, tell).keys)
    width = sizes[1]
    owners = keys // width
    probabilities = torch.ones(len(keys))
    for number in range(1, rounds + 1):
        sums = torch.zeros(len(keys), dtype=torch.float64)
        done = 0
        for block in pairs.blocks():
            _add_expected(sums, probabilities, keys, _with_null(block.source, sizes[0]), block.target, width)
            done += len(block.source)
            tell(f"round {number} of {rounds}", done, len(pairs))
        totals = torch.zeros(sizes[0] + 1, dtype=torch.float64).index_add_(0, owners, sums)
        probabilities = (sums / totals[owners].clamp_(min=torch.finfo(torch.float64).tiny)).float()
    # What comes from no source subword at all is of no use here.
    real = int(torch.searchsorted(keys, sizes[0] * width))
    return LexicalProbabilities(
        owners[:real].numpy(), (keys[:real] % width).numpy(), probabilities[:real].numpy()
    )


def _with_null(source: NDArray[np.int64], none: int) -> Tensor:
    """Source subwords `[n, S + 1]` with the one in front that stands for no subword."""
    return torch.from_numpy(np.insert(source, 0, none, axis=1))


def _keys(source: Tensor, target: Tensor, width: int) -> Tensor:
    """`[n, S, T]`: the key of each source subword with each target subword; padding has keys nobody has."""
    keys = source.unsqueeze(2) * width + target.unsqueeze(1)
    return keys.masked_fill_((source == PAD).unsqueeze(2) | (target == PAD).unsqueeze(1), -1)


def _add_expected(
    sums: Tensor, probabilities: Tensor, keys: Tensor, source: Tensor, target: NDArray[np.int64], width: int
) -> None:
    """Add p(target subword j comes from source subword i) of each pair to the sum of its two subwords."""
    pair_keys = _keys(source, torch.from_numpy(target), width)
    indices = torch.searchsorted(keys, pair_keys).clamp_(max=len(keys) - 1)
    flat = indices.view(-1)
    known = keys.index_select(0, flat) == pair_keys.view(-1)
    expected = probabilities.index_select(0, flat).masked_fill_(~known, 0.0)
    by_sentence = expected.view(pair_keys.shape)
    by_sentence /= by_sentence.sum(1, keepdim=True).clamp_(min=torch.finfo(torch.float32).tiny)
    sums.index_add_(0, flat, expected.double())


def _candidates(pairs: TrainingPairs, sizes: tuple[int, int], most: int, tell: Progress) -> _PairCounts:
    """The pairs of subwords that stand in one sentence pair, at most `most`."""
    counts = _PairCounts(np.zeros(0, np.int64), np.zeros(0, np.float32))
    waiting: list[NDArray[np.int64]] = []
    held = done = 0
    for block in pairs.blocks():
        keys = _keys(_with_null(block.source, sizes[0]), torch.from_numpy(block.target), sizes[1]).view(-1)
        waiting.append(keys[keys >= 0].numpy())
        held += len(waiting[-1])
        done += len(block.source)
        if held > most or done == len(pairs):
            counts = _strongest(_merged(counts, np.concatenate(waiting)), sizes, most)
            waiting, held = [], 0
        tell("counting", done, len(pairs))
    return counts


def _merged(counts: _PairCounts, keys: NDArray[np.int64]) -> _PairCounts:
    """With each of these keys counted once more."""
    fresh, times = np.unique(keys, return_counts=True)
    indices = np.searchsorted(counts.keys, fresh)
    known = np.zeros(len(fresh), bool)
    inside = indices < len(counts.keys)
    known[inside] = counts.keys[indices[inside]] == fresh[inside]
    counts.counts[indices[known]] += times[known]
    fresh, times, indices = fresh[~known], times[~known], indices[~known]
    # Each new key stands behind the old ones that are smaller and the new ones before it.
    new = np.zeros(len(counts.keys) + len(fresh), bool)
    new[indices + np.arange(len(fresh))] = True
    merged = _PairCounts(np.empty(len(new), np.int64), np.empty(len(new), np.float32))
    merged.keys[new], merged.keys[~new] = fresh, counts.keys
    merged.counts[new], merged.counts[~new] = times, counts.counts
    return merged


def _strongest(counts: _PairCounts, sizes: tuple[int, int], most: int) -> _PairCounts:
    """The half of `most` that belong together most, where there are more than `most`."""
    if len(counts.keys) <= most:
        return counts
    source, target = np.divmod(counts.keys, sizes[1])
    of_source = np.bincount(source, counts.counts, sizes[0] + 1).astype(np.float32)
    of_target = np.bincount(target, counts.counts, sizes[1]).astype(np.float32)
    strength = counts.counts / of_source[source] * (counts.counts / of_target[target])
    # No subword may lose its place beside nothing (e_0), or its probabilities would be those of the others.
    strength[source == sizes[0]] = np.inf
    kept = np.sort(np.argpartition(strength, -(most // 2))[-(most // 2) :])
    return _PairCounts(counts.keys[kept], counts.counts[kept])
