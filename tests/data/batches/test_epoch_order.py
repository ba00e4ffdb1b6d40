from __future__ import annotations

from collections import Counter
from itertools import pairwise

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepwire.data.batches.epoch_order import (
    EpochOrder,
    Part,
    Permutation,
    epoch_weights,
    tempered,
)


@settings(max_examples=150, deadline=None)
@given(count=st.integers(1, 5000), seed=st.integers(0, 2**64 - 1))
def test_a_permutation_is_a_bijection(count: int, seed: int) -> None:
    entries = Permutation(count, seed).all()
    assert np.array_equal(np.sort(entries), np.arange(count))


def test_every_place_is_equally_likely_for_every_entry() -> None:
    count, draws = 5, 800
    hits = np.zeros((count, count))
    for seed in range(draws):
        hits[np.arange(count), Permutation(count, seed).all()] += 1
    expected = draws / count
    assert ((hits - expected) ** 2 / expected).sum() < 47  # chi-square, 16 degrees of freedom: p < 0.0001


def counts(order: EpochOrder, epoch: int, total: int) -> np.ndarray:
    return np.bincount(order.sentences(epoch, 0, order.size(epoch)), minlength=total)


@given(
    sizes=st.lists(st.integers(0, 200), min_size=1, max_size=4),
    seed=st.integers(0, 9),
    epoch=st.integers(0, 9),
)
def test_every_sentence_once_an_epoch(sizes: list[int], seed: int, epoch: int) -> None:
    ends = np.cumsum([0, *sizes])
    order = EpochOrder([Part(int(a), int(b)) for a, b in pairwise(ends)], seed)
    assert order.size(epoch) == sum(sizes)
    assert (counts(order, epoch, sum(sizes)) == 1).all()


def test_a_stretch_is_a_part_of_the_whole() -> None:
    order = EpochOrder([Part(0, 70), Part(70, 100, 1.5)], 4)
    whole = order.sentences(2, 0, order.size(2))
    for start, stop in ((0, 5), (17, 60), (90, order.size(2)), (3, 3)):
        assert order.sentences(2, start, stop).tolist() == whole[start:stop].tolist()


def test_weight_two_reads_everything_twice_and_half_a_weight_half_now_half_next() -> None:
    order = EpochOrder([Part(0, 10, 2.0), Part(10, 50, 0.5)], 1)
    first, second = counts(order, 0, 50), counts(order, 1, 50)
    assert (first[:10] == 2).all()
    assert (second[:10] == 2).all()
    assert (first[10:] + second[10:] == 1).all()
    assert first[10:].sum() == 20


def test_huge_corpora_cost_nothing_up_front() -> None:
    order = EpochOrder([Part(0, 10**12)], 1)
    some = order.sentences(5, 10**11, 10**11 + 1000)
    assert len(set(some.tolist())) == 1000
    assert some.min() >= 0
    assert some.max() < 10**12


SIZES = st.lists(st.integers(1, 10**8), min_size=1, max_size=8)
TEMPERATURES = st.floats(1, 100)


@given(SIZES, TEMPERATURES)
def test_shares_follow_the_formula(sizes: list[int], temperature: float) -> None:
    found = tempered(sizes, temperature)
    assert sum(found) == pytest.approx(1)
    for one, size in zip(found, sizes, strict=True):
        for other, second in zip(found, sizes, strict=True):
            assert one / other == pytest.approx((size / second) ** (1 / temperature))


@given(SIZES, TEMPERATURES)
def test_an_epoch_keeps_its_size_and_small_directions_gain(sizes: list[int], temperature: float) -> None:
    groups = list(range(len(sizes)))
    weights = epoch_weights(sizes, [1.0] * len(sizes), groups, temperature)
    read = [size * weight for size, weight in zip(sizes, weights, strict=True)]
    assert sum(read) == pytest.approx(sum(sizes), rel=1e-4)
    assert np.all(np.diff(np.array(weights)[np.argsort(sizes)]) <= 1e-4)


def test_the_order_reads_the_shares_and_every_pair_of_a_direction_as_often() -> None:
    sizes = [900, 90, 10]
    weights = epoch_weights(sizes, [1.0] * 3, [0, 1, 2], 5.0)
    bounds = np.cumsum([0, *sizes]).tolist()
    parts = [
        Part(start, stop, weight)
        for start, stop, weight in zip(bounds[:-1], bounds[1:], weights, strict=True)
    ]
    order, wanted = EpochOrder(parts, seed=3), tempered(sizes, 5.0)
    counts: Counter[int] = Counter()
    for epoch in range(5):
        read = order.sentences(epoch, 0, order.size(epoch))
        found = [int(((read >= part.start) & (read < part.stop)).sum()) for part in parts]
        assert found == pytest.approx([share * 1000 for share in wanted], abs=1.5)
        counts.update(read.tolist())
    for part in parts:
        times = [counts[line] for line in range(part.start, part.stop)]
        assert max(times) - min(times) <= 1
