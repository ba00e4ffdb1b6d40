"""IBM model 1 against its equations, with little memory, and the text that it learns from."""

from __future__ import annotations

from collections import defaultdict

import numpy as np
import pytest
from shortlist_texts import SIZE, random_pairs, silent, store_of

from deepwire.lab.shortlist_learning import TrainingPairs, train_ibm_model1


def expected_model_1(pairs, rounds):
    """IBM model 1 word by word."""
    probability: defaultdict[tuple[int | None, int], float] = defaultdict(lambda: 1.0)
    for _ in range(rounds):
        sums: defaultdict[tuple[int | None, int], float] = defaultdict(float)
        totals: defaultdict[int | None, float] = defaultdict(float)
        for source, target in pairs:
            for f in target:
                whole = sum(probability[e, f] for e in [None, *source])
                for e in [None, *source]:
                    sums[e, f] += probability[e, f] / whole
                    totals[e] += probability[e, f] / whole
        probability.update({(e, f): value / totals[e] for (e, f), value in sums.items()})
    return {pair: value for pair, value in probability.items() if pair[0] is not None}


@pytest.mark.parametrize("products", [40, 1 << 21], ids=["many blocks", "one block"])
def test_probabilities_are_those_of_model_1(tmp_path, products):
    text = random_pairs(40)
    store = store_of(tmp_path / "store", text)
    found = train_ibm_model1(
        TrainingPairs(store, np.arange(40), products), (SIZE, SIZE), rounds=3, tell=silent
    )
    expected = expected_model_1(text, 3)
    assert sorted(expected) == list(zip(found.source.tolist(), found.target.tolist(), strict=True))
    assert found.probability == pytest.approx([expected[pair] for pair in sorted(expected)], rel=1e-4)


def test_pairs_that_belong_together_survive_a_small_memory(tmp_path):
    """Each source subword e is translated by e + 13, among others drawn at random."""
    draw = np.random.default_rng(1)
    text = [(ids, [number + 13 for number in ids]) for ids in draw.integers(4, 17, (300, 4)).tolist()]
    store = store_of(tmp_path / "store", text)
    found = train_ibm_model1(
        TrainingPairs(store, np.arange(300), 100), (SIZE, SIZE), rounds=4, tell=silent, most=120
    )
    assert len(found.source) < 120
    best = {
        e: found.target[found.source == e][found.probability[found.source == e].argmax()]
        for e in range(4, 17)
    }
    assert best == {e: e + 13 for e in range(4, 17)}


def test_empty_and_overlong_pairs_are_left_out_and_the_rest_is_spread(tmp_path):
    text = [([], [5]), *random_pairs(10), ([5], []), ([5] * 600, [5])]
    store = store_of(tmp_path / "store", text)
    assert TrainingPairs.of(store, 1000).lines.tolist() == list(range(1, 11))
    assert TrainingPairs.of(store, 5).lines.tolist() == [1, 3, 5, 7, 9]
