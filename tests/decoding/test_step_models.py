from __future__ import annotations

import math
import threading

import pytest
import torch

from deepwire.data.vocabulary import EOS
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.model_inputs import Cancelled
from deepwire.decoding.models import Ensemble, as_one
from deepwire.decoding.search import Batch, generate
from deepwire.errors import UsageError

CONFIG = DecodingConfig(beam=4, n_best=4)


def test_probabilities_are_averaged(toys):
    models = [toys.Model(seed=seed) for seed in (1, 2, 3)]
    weights = [2.0, 1.0, 1.0]
    source = toys.padded([[4, 5, EOS], [6, EOS]])
    tokens = torch.tensor([1, 1])
    log_probs, _ = Ensemble(models, weights).step(tokens, Ensemble(models).start(source))
    parts = [model.step(tokens, model.start(source))[0].exp() for model in models]
    expected = parts[0] / 2 + parts[1] / 4 + parts[2] / 4
    torch.testing.assert_close(log_probs.exp(), expected)


def test_search_and_score_agree(toys):
    ensemble = Ensemble([toys.Model(seed=1), toys.Model(seed=2)], [0.3, 0.7])
    sources = toys.random_sources(7, 12)
    results = generate(ensemble, Batch(toys.padded(sources), [9] * 7), CONFIG)
    for source, found in zip(sources, results, strict=True):
        for one in found:
            expected = toys.log_probability(ensemble, source, one.ids)
            assert one.log_probability == pytest.approx(expected, abs=1e-4)


def test_a_model_with_itself_changes_nothing(toys):
    model = toys.Model()
    sources = toys.padded(toys.random_sources(7, 12))
    alone = generate(model, Batch(sources, [9] * 7), CONFIG)
    assert generate(as_one([model]), Batch(sources, [9] * 7), CONFIG) == alone
    several = generate(Ensemble([model] * 3), Batch(sources, [9] * 7), CONFIG)
    for one, other in zip(alone, several, strict=True):
        assert [found.ids for found in one] == [found.ids for found in other]


@pytest.mark.parametrize("weights", [[1.0], [1.0, 0.0], [1.0, -1.0], [1.0, math.nan], [1.0, math.inf]])
def test_wrong_weights(toys, weights):
    with pytest.raises(UsageError, match="weights"):
        Ensemble([toys.Model(), toys.Model()], weights)


def test_a_search_that_is_called_off_takes_no_further_step(toys):
    model, stop = toys.Model(), threading.Event()
    stop.set()
    with pytest.raises(Cancelled):
        generate(model, Batch(torch.tensor([[5, 6, 2]]), [9], stop=stop), CONFIG)
    assert not model.rows_seen
