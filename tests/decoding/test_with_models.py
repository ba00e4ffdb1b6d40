"""Search and scores of deepwire's own models."""

from __future__ import annotations

import math
import threading

import pytest
import torch

from deepwire.data.vocabulary import BOS, EOS
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.model_inputs import Cancelled, pad_batch
from deepwire.decoding.models import Ensemble
from deepwire.decoding.search import Batch, generate
from deepwire.errors import UsageError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig

SIZE = 40
RELATIVE = {"type": "self_attention", "relative": 3}
STACKS: dict[str, tuple[dict[str, object], dict[str, object]]] = {
    "post-norm": ({"connection": "post_norm"}, {"connection": "post_norm"}),
    "depth-wise LSTM": ({"connection": "depth_lstm"}, {"connection": "depth_lstm"}),
    "DLCL": ({"aggregation": "dlcl"}, {"aggregation": "dlcl"}),
    "groups": (
        {"fusion": {"type": "groups", "size": 1}, "connection": "post_norm"},
        {"fusion": {"type": "groups", "size": 1}, "connection": "post_norm"},
    ),
    "relative": ({"mixer": RELATIVE}, {"mixer": RELATIVE}),
}


def small_model(name, seed=1):
    encoder, decoder = STACKS[name]
    torch.manual_seed(seed)
    config = ModelConfig.model_validate(
        {
            "d_model": 16,
            "heads": 2,
            "feed_forward": 24,
            "encoder": {"layers": 2, **encoder},
            "decoder": {"layers": 2, **decoder},
        }
    )
    model = build_model(config, SIZE, SIZE).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            # Enlarged, so that the distributions are far from uniform and from each other.
            if parameter.dim() > 1:
                parameter.mul_(1.7)
    return model


def score(model, source, ids):
    device = torch.device("cpu")
    rows = (pad_batch([each], device) for each in (source, [BOS, *ids], [*ids, EOS]))
    with torch.inference_mode():
        return float(model.score(*rows).sum())


@pytest.mark.parametrize(
    ("name", "settings"),
    [
        *((name, {"beam": 5, "n_best": 5}) for name in STACKS),
        ("post-norm", {"beam": 1}),
        ("depth-wise LSTM", {"sampling": {"top_k": 10}, "n_best": 3}),
    ],
)
def test_the_search_reports_what_the_model_scores(toys, name, settings):
    model = small_model(name)
    sources = toys.random_sources(11, SIZE)
    config = DecodingConfig.model_validate(settings)
    limits = [len(source) + 5 for source in sources]
    results = generate(model, Batch(toys.padded(sources), limits, range(11)), config)
    for source, found in zip(sources, results, strict=True):
        for one in found:
            assert one.log_probability == pytest.approx(score(model, source, one.ids), abs=1e-4)


def test_different_architectures_make_one_ensemble(toys):
    ensemble = Ensemble([small_model("post-norm"), small_model("depth-wise LSTM", seed=2)])
    sources = toys.random_sources(5, SIZE)
    results = generate(ensemble, Batch(toys.padded(sources), [9] * 5), DecodingConfig(n_best=4))
    for source, found in zip(sources, results, strict=True):
        for one in found:
            assert one.log_probability == pytest.approx(score(ensemble, source, one.ids), abs=1e-4)


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
