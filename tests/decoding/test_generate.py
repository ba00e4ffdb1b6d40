from __future__ import annotations

import math
from collections import Counter

import pytest
import torch

from deepwire.data.vocabulary import BOS, EOS, PAD, UNK
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.search import Batch, generate


def draw(toys, model, sources, numbers, limit=6, n_best=1, **settings):
    config = DecodingConfig.model_validate({"n_best": n_best, "sampling": settings, "min_length": 0})
    assert config.sampling is not None
    return generate(model, Batch(toys.padded(sources), [limit] * len(sources), numbers), config)


def test_draws_follow_the_distribution(toys):
    model = toys.Model(size=6, sharpness=0.5)
    source, count = [4, 5, EOS], 4000
    drawn = Counter(
        found[0].ids for found in draw(toys, model, [source] * count, range(1, count + 1), limit=2)
    )
    allowed = toys.every_translation([4, 5], 2)
    assert set(drawn) <= set(allowed)
    state = model.start(toys.padded([source]))
    log_probs, state = model.step(torch.tensor([BOS]), state)
    log_probs[:, [PAD, BOS, UNK]] = -math.inf
    probability = float(log_probs.softmax(1)[0, EOS])
    spread = math.sqrt(probability * (1 - probability) / count)
    assert drawn[()] / count == pytest.approx(probability, abs=4 * spread)


@pytest.mark.parametrize("settings", [{}, {"top_k": 3}, {"top_p": 0.7}, {"temperature": 0.5, "top_k": 5}])
def test_a_draw_depends_only_on_the_seed_and_its_line(toys, settings):
    model = toys.Model(sharpness=1.0)
    sources = toys.random_sources(12, model.size)
    together = draw(toys, model, sources, range(1, 13), n_best=3, **settings)
    for line, source in enumerate(sources, 1):
        assert draw(toys, model, [source], [line], n_best=3, **settings) == [together[line - 1]]
    other = draw(toys, model, sources, range(1, 13), n_best=3, seed=2, **settings)
    assert other != together


def test_top_p_leaves_out_the_tail(toys):
    model = toys.Model(size=8, sharpness=0.7)
    source = [4, 5, EOS]
    log_probs, _ = model.step(torch.tensor([BOS]), model.start(toys.padded([source])))
    log_probs[:, [PAD, BOS, UNK]] = -math.inf
    probabilities, order = log_probs.softmax(1)[0].sort(descending=True)
    kept = int((probabilities.cumsum(0) - probabilities < 0.6).sum())
    assert 1 < kept < 5
    drawn = draw(toys, model, [source] * 600, range(600), limit=1, top_p=0.6)
    first = {found[0].ids[0] if found[0].ids else EOS for found in drawn}
    assert first == set(order[:kept].tolist())


def test_log_probabilities_are_the_models_own(toys):
    model = toys.Model()
    sources = toys.random_sources(5, model.size)
    for source, found in zip(
        sources, draw(toys, model, sources, range(5), n_best=4, temperature=2.0, top_k=4), strict=True
    ):
        assert len(found) == 4
        assert [one.score for one in found] == sorted((one.score for one in found), reverse=True)
        for one in found:
            expected = toys.log_probability(model, source, one.ids)
            assert one.log_probability == pytest.approx(expected, abs=1e-4)
