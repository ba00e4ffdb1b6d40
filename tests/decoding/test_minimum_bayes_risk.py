"""Which of several drawn translations agrees best with all: against sacrebleu, and through the translator."""

from __future__ import annotations

import random

import numpy as np
import pytest
import sacrebleu
from hypothesis import given, settings
from hypothesis import strategies as st

from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.minimum_bayes_risk import expected_chrf, most_agreed
from deepwire.decoding.translation_io import Candidate
from deepwire.decoding.translator import Translator

PIECES = 12


@given(st.lists(st.text("ab cd", max_size=12), min_size=1, max_size=6), st.integers(0, 99))
@settings(max_examples=60, deadline=None)
def test_the_utility_is_the_mean_chrf_of_sacrebleu(texts: list[str], seed: int) -> None:
    weights = [random.Random(seed + place).randint(1, 4) for place in range(len(texts))]
    expected = [
        np.average([sacrebleu.sentence_chrf(text, [other]).score for other in texts], weights=weights)
        for text in texts
    ]
    np.testing.assert_allclose(expected_chrf(texts, weights), expected, atol=1e-9)


def candidate(text: str, probability: float = -1.0) -> Candidate:
    return Candidate(text, tuple(text), probability, probability)


def test_the_one_in_the_middle_comes_first_and_none_twice() -> None:
    drawn = [candidate(text) for text in ("ein hund", "der hund", "der hund schläft", "der hund", "katze")]
    best = most_agreed(drawn, 3)
    means = {
        each.text: np.mean([sacrebleu.sentence_chrf(each.text, [other.text]).score for other in drawn])
        for each in drawn
    }
    assert [each.text for each in best] == sorted(means, key=means.__getitem__, reverse=True)[:3]
    assert [each.score for each in best] == pytest.approx(sorted(means.values(), reverse=True)[:3])
    assert best[0].log_probability == -1.0
    everything = [each.text for each in most_agreed(drawn, 5)]
    assert sorted(everything[:4]) == sorted(means)
    assert everything[4] == "der hund", "again, when no other is left"
    assert most_agreed([candidate("one")], 1) == (candidate("one"),), "nothing was drawn"


def test_a_translator_draws_so_many_and_returns_the_best(toys) -> None:
    sampling = {"mbr": 16, "seed": 3}
    tool = Translator(
        [toys.Model(size=PIECES)], toys.vocabularies(PIECES), DecodingConfig(max_length_extra=6, n_best=2)
    )
    lines = ["abc", "", "defgh"]
    drawn = list(tool.with_search(n_best=16, sampling={"seed": 3}).translations(lines))
    chosen = list(tool.with_search(sampling=sampling).translations(lines))
    for all_drawn, best in zip(drawn, chosen, strict=True):
        assert best.candidates == most_agreed(all_drawn.candidates, 2)
    assert tool.translate(lines, sampling=sampling) == [each.text for each in chosen]
