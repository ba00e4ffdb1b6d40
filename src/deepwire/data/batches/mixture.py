"""How much each direction has of an epoch: temperature sampling, as exact shares."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from deepwire.data.languages import Languages


class DirectionShare(NamedTuple):
    """What a direction has of the text and of an epoch."""

    name: str
    pairs: int
    """Training pairs."""
    of_text: float
    """Share of all pairs, weights of corpora counted."""
    of_training: float
    """Share of the pairs that an epoch reads."""
    passes: float
    """How often an epoch reads a pair of it, on average."""


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
