from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepwire.data.batches.mixture import epoch_weights, share_lines, shares, tempered
from deepwire.data.batches.order import EpochOrder, Part
from deepwire.data.languages import Direction, Languages

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
