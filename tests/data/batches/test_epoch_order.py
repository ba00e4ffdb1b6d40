from __future__ import annotations

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
