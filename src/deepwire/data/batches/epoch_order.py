"""The order in which an epoch reads its sentences, and how much each direction has of it: pure functions.

Nothing is shuffled in memory: any stretch of any epoch costs what its own length costs, so a corpus may be
larger than memory and an interrupted run finds its place again at once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepwire.data.languages import Languages

Indices = NDArray[np.int64]

_MASK = (1 << 64) - 1
_GOLDEN, _FIRST, _SECOND = 0x9E3779B97F4A7C15, 0xBF58476D1CE4E5B9, 0x94D049BB133111EB
"""The constants of SplitMix64 (Steele, Lea, Flood 2014)."""
_ROUNDS = 6
_SMALLEST_HALF = 3
"""Bits of half a number in the permutation: with fewer, too few permutations are possible."""


def mix(*values: int) -> int:
    """Whole numbers to one of 64 bits, as good as random; every argument and its place count."""
    state = 0
    for value in values:
        state = (state + _GOLDEN ^ (value & _MASK)) & _MASK
        state = (state ^ state >> 30) * _FIRST & _MASK
        state = (state ^ state >> 27) * _SECOND & _MASK
        state ^= state >> 31
    return state


class Permutation:
    """A random permutation of 0 .. count-1 that takes no memory: ask for any of its entries.

    A Feistel network over the smallest even number of bits that holds `count`; numbers that fall outside
    walk on along their cycle until they are inside (Black and Rogaway 2002, "Ciphers with arbitrary finite
    domains").
    """

    def __init__(self, count: int, seed: int) -> None:
        self.count = count
        half = max(_SMALLEST_HALF, ((max(count, 1) - 1).bit_length() + 1) // 2)
        self._half, self._low = np.uint64(half), np.uint64((1 << half) - 1)
        self._keys = [np.uint64(mix(seed, number)) for number in range(_ROUNDS)]

    def all(self) -> Indices:
        """Every entry, in order."""
        return self[np.arange(self.count)]

    def __getitem__(self, places: Indices) -> Indices:
        """The entries at `places`, numbers from 0 to count-1 in an array of any shape."""
        numbers = places.astype(np.uint64)
        outside = np.arange(numbers.size)
        flat = numbers.reshape(-1)
        while outside.size:
            flat[outside] = self._shuffled(flat[outside])
            outside = outside[flat[outside] >= self.count]
        return flat.reshape(places.shape).astype(np.int64)

    def _shuffled(self, numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
        left, right = numbers >> self._half, numbers & self._low
        for key in self._keys:
            left, right = right, left ^ (_hashed(right ^ key) & self._low)
        return (left << self._half) | right


@dataclass(frozen=True)
class Part:
    """A corpus in the store: its sentences `start` to `stop`, and how often an epoch reads each."""

    start: int
    stop: int
    weight: float = 1.0


class EpochOrder:
    """Which sentences an epoch reads, and in which order.

    Each corpus is an endless row of passes, each pass a permutation of all its sentences. An epoch takes the
    next `weight` times its size from each row: weight 2 reads every sentence twice, weight 0.5 one half now
    and the other half in the next epoch. What was taken is shuffled over all corpora.
    """

    def __init__(self, parts: Sequence[Part], seed: int) -> None:
        self._parts = [part for part in parts if part.stop > part.start]
        self._seed = seed
        # Decimal of the text, because a weight of 0.1 means one tenth and not the nearest binary fraction.
        self._shares = [
            Fraction(Decimal(str(part.weight))) * (part.stop - part.start) for part in self._parts
        ]

    def size(self, epoch: int) -> int:
        """How many sentences the epoch reads; weights below 1 can make it vary by a few."""
        return sum(stop - start for start, stop in self._taken(epoch))

    def sentences(self, epoch: int, start: int, stop: int) -> Indices:
        """The store's numbers of the sentences at places `start` to `stop` of the epoch."""
        taken = self._taken(epoch)
        bounds = np.cumsum([0, *(last - first for first, last in taken)])
        places = Permutation(int(bounds[-1]), mix(self._seed, epoch))[np.arange(start, stop)]
        sentences = np.empty(len(places), dtype=np.int64)
        for number, (part, (first, _)) in enumerate(zip(self._parts, taken, strict=True)):
            here = (places >= bounds[number]) & (places < bounds[number + 1])
            sentences[here] = part.start + self._pass_entries(number, places[here] - bounds[number] + first)
        return sentences

    def _taken(self, epoch: int) -> list[tuple[int, int]]:
        """From where to where the epoch reads in the endless row of each corpus."""
        return [(int(share * epoch), int(share * (epoch + 1))) for share in self._shares]

    def _pass_entries(self, number: int, places: Indices) -> Indices:
        count = self._parts[number].stop - self._parts[number].start
        passes, inside = np.divmod(places, count)
        entries = np.empty(len(places), dtype=np.int64)
        for pass_number in np.unique(passes):
            here = passes == pass_number
            entries[here] = Permutation(count, mix(self._seed, 1, number, int(pass_number)))[inside[here]]
        return entries


def _hashed(numbers: NDArray[np.uint64]) -> NDArray[np.uint64]:
    numbers = (numbers ^ (numbers >> np.uint64(30))) * np.uint64(_FIRST)
    numbers = (numbers ^ (numbers >> np.uint64(27))) * np.uint64(_SECOND)
    return numbers ^ (numbers >> np.uint64(31))


class DirectionShare(NamedTuple):
    """The share of a direction in the text and in an epoch.

    Attributes:
        name: Such as `de-en`.
        pairs: Training pairs.
        of_text: Share of all pairs, weights of corpora counted.
        of_training: Share of the pairs that an epoch reads.
        passes: How often an epoch reads a pair of it, on average.
    """

    name: str
    pairs: int
    of_text: float
    of_training: float
    passes: float


def tempered(counts: Sequence[float], temperature: float) -> list[float]:
    """Shares p_i proportional to (n_i / sum n) ^ (1 / temperature), Arivazhagan et al. 2019; the sum is 1."""
    total = sum(counts)
    powers = [(count / total) ** (1 / temperature) if count else 0.0 for count in counts]
    return [power / sum(powers) for power in powers]


def epoch_weights(
    sizes: Sequence[int], weights: Sequence[float], groups: Sequence[int], temperature: float
) -> list[float]:
    """How often an epoch reads each pair of each corpus, so that directions have their tempered shares.

    An epoch has as many pairs as with temperature 1. A direction's share is exact and not drawn, so the order
    of sentences stays a function of seed, epoch and place.

    Args:
        sizes: Pairs of each corpus.
        weights: The weight that the run file gives each.
        groups: The direction of each.
        temperature: 1 leaves the weights as they are.
    """
    if temperature == 1:
        return list(weights)
    counts = _counts(sizes, weights, groups)
    wanted = dict(zip(counts, tempered(list(counts.values()), temperature), strict=True))
    total = sum(counts.values())
    factors = {group: wanted[group] * total / count for group, count in counts.items() if count}
    # Six digits: the last bits of a power may differ between machines, and the order must not.
    return [
        float(f"{weight * factors.get(group, 1.0):.6g}")
        for weight, group in zip(weights, groups, strict=True)
    ]


def shares(
    languages: Languages,
    sizes: Sequence[int],
    weights: Sequence[float],
    groups: Sequence[int],
    temperature: float,
) -> list[DirectionShare]:
    """The effective mix of directions, in their order; arguments as in `epoch_weights`."""
    pairs = _counts(sizes, [1.0] * len(sizes), groups)
    text = _counts(sizes, weights, groups)
    epoch = _counts(sizes, epoch_weights(sizes, weights, groups, temperature), groups)
    return [
        DirectionShare(
            name=str(direction),
            pairs=round(pairs.get(group, 0)),
            of_text=text.get(group, 0) / max(sum(text.values()), 1),
            of_training=epoch.get(group, 0) / max(sum(epoch.values()), 1),
            passes=epoch.get(group, 0) / max(pairs.get(group, 0), 1),
        )
        for group, direction in enumerate(languages.directions)
    ]


def share_lines(mix: Sequence[DirectionShare], temperature: float) -> list[str]:
    """The mix as a table for people."""
    width = max(len(share.name) for share in mix)
    lines = [f"mix of {len(mix)} direction{'s' * (len(mix) > 1)}, sampling_temperature {temperature:g}:"]
    lines += [
        f"  {share.name:<{width}}  {share.pairs:>11,} pairs, {share.of_text:6.1%} of the text, "
        f"{share.of_training:6.1%} of training, read {share.passes:.3g} times an epoch"
        for share in mix
    ]
    return lines


def _counts(sizes: Sequence[int], weights: Sequence[float], groups: Sequence[int]) -> dict[int, float]:
    counts: dict[int, float] = {}
    for size, weight, group in zip(sizes, weights, groups, strict=True):
        counts[group] = counts.get(group, 0.0) + size * weight
    return counts
