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
    mix,
    share_lines,
    shares,
    tempered,
)
from deepwire.data.languages import Direction, Languages


@settings(max_examples=150, deadline=None)
@given(count=st.integers(1, 5000), seed=st.integers(0, 2**64 - 1))
def test_a_permutation_is_a_bijection(count: int, seed: int) -> None:
    entries = Permutation(count, seed).all()
    assert np.array_equal(np.sort(entries), np.arange(count))


@given(
    count=st.integers(1, 2**40), seed=st.integers(0, 99), places=st.lists(st.integers(0, 2**40), max_size=12)
)
def test_entries_do_not_depend_on_what_else_is_asked(count: int, seed: int, places: list[int]) -> None:
    permutation = Permutation(count, seed)
    wanted = np.array(places, dtype=np.int64) % count
    together = permutation[wanted]
    assert [int(permutation[np.array([place])][0]) for place in wanted] == together.tolist()
    assert len(set(together.tolist())) == len(set(wanted.tolist()))
    assert all(0 <= entry < count for entry in together.tolist())


def test_every_place_is_equally_likely_for_every_entry() -> None:
    count, draws = 5, 800
    hits = np.zeros((count, count))
    for seed in range(draws):
        hits[np.arange(count), Permutation(count, seed).all()] += 1
    expected = draws / count
    assert ((hits - expected) ** 2 / expected).sum() < 47  # chi-square, 16 degrees of freedom: p < 0.0001


def test_neighbours_are_torn_apart() -> None:
    entries = Permutation(10_000, 3)[np.arange(10_000)]
    assert abs(np.corrcoef(entries[:-1], entries[1:])[0, 1]) < 0.04
    assert abs(np.corrcoef(np.arange(10_000), entries)[0, 1]) < 0.04


def test_mix_depends_on_every_argument_and_its_place() -> None:
    values = [mix(*numbers) for numbers in [(1,), (1, 0), (0, 1), (1, 1), (1, 2), (2, 1), (1, 1, 1), ()]]
    assert len(set(values)) == len(values)
    assert mix(1, 2) == mix(1, 2)
    assert all(0 <= value < 2**64 for value in values)


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


def test_epochs_and_seeds_differ() -> None:
    orders = [
        EpochOrder([Part(0, 100)], seed).sentences(epoch, 0, 100) for seed in (1, 2) for epoch in (0, 1)
    ]
    assert len({tuple(order.tolist()) for order in orders}) == 4


def test_weight_two_reads_everything_twice_and_half_a_weight_half_now_half_next() -> None:
    order = EpochOrder([Part(0, 10, 2.0), Part(10, 50, 0.5)], 1)
    first, second = counts(order, 0, 50), counts(order, 1, 50)
    assert (first[:10] == 2).all()
    assert (second[:10] == 2).all()
    assert (first[10:] + second[10:] == 1).all()
    assert first[10:].sum() == 20


@pytest.mark.parametrize("weight", [0.1, 0.3, 1 / 3, 1.7, 2.5])
def test_over_many_epochs_weights_are_met(weight: float) -> None:
    order, epochs = EpochOrder([Part(0, 30, weight), Part(30, 40)], 2), 30
    total = sum(counts(order, epoch, 40) for epoch in range(epochs))
    assert abs(total[:30].sum() - weight * 30 * epochs) <= 1
    assert total[:30].max() - total[:30].min() <= 1
    assert (total[30:] == epochs).all()


def test_a_tiny_weight_gives_epochs_without_that_corpus() -> None:
    order = EpochOrder([Part(0, 1, 0.25)], 1)
    assert [order.size(epoch) for epoch in range(8)] == [0, 0, 0, 1, 0, 0, 0, 1]
    assert order.sentences(0, 0, 0).tolist() == []


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


def test_temperature_1_leaves_weights_as_they_are() -> None:
    assert epoch_weights([10, 90], [1.0, 0.1], [0, 1], 1.0) == [1.0, 0.1]


def test_corpora_of_one_direction_keep_their_ratio() -> None:
    one, other, third = epoch_weights([100, 50, 1000], [1.0, 2.0, 1.0], [0, 0, 1], 5.0)
    assert other == pytest.approx(2 * one, rel=1e-5)
    assert third < 1 < one


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


def test_the_mix_is_shown() -> None:
    languages = Languages((Direction("en", "de"), Direction("en", "br")))
    mix = shares(languages, [9000, 1000], [1.0, 1.0], [0, 1], 5.0)
    assert [share.pairs for share in mix] == [9000, 1000]
    assert [share.of_text for share in mix] == pytest.approx([0.9, 0.1])
    assert mix[0].of_training + mix[1].of_training == pytest.approx(1)
    assert mix[1].of_training == pytest.approx(1 / (1 + 9**0.2), abs=1e-4)
    assert mix[1].passes == pytest.approx(mix[1].of_training * 10, abs=1e-3)
    title, german, breton = share_lines(mix, 5.0)
    assert title == "mix of 2 directions, sampling_temperature 5:"
    assert "en-de" in german
    assert "90.0% of the text" in german
    assert "en-br" in breton
