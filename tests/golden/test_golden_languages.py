"""Parameters of each target language against Neutron: norms (LALN), transform (LALT), embeddings, biases."""

from __future__ import annotations

import pytest
import torch
from golden_names import OUTPUT_TOLERANCE, case, deviation, load, neutron
from whole_models import NeutronModel

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig

LANGUAGES = 3


@pytest.fixture(scope="module")
def loaded() -> NeutronModel:
    """A model of three languages with the golden parameters; the batch has one target language."""
    golden = case("nmt_mulang")
    stack = {"layers": 2, "connection": {"type": "post_norm", "embedding_norm": True}}
    config = ModelConfig.model_validate(
        {
            "d_model": 32,
            "heads": 4,
            "feed_forward": 64,
            "dropout": 0.0,
            "encoder": stack,
            "decoder": stack,
            "embeddings": {"tie": "output"},
            "languages": {"norm": True, "transform": "released", "embedding": "both", "output_bias": True},
        }
    )
    model = build_model(config, 40, 40, languages=LANGUAGES)
    places = neutron(golden.params, post_norm=True)
    load(model, golden.params, places)
    (language,) = golden.grads["dec.task_emb.weight"].abs().amax(1).nonzero().flatten().tolist()
    rows = golden["in/src"].size(0)
    return NeutronModel(golden, model, places, torch.full((rows,), language))


def test_outputs_and_gradients(loaded: NeutronModel) -> None:
    """Log-probabilities, loss and every gradient: those of the other languages are zero."""
    loaded.check_outputs_and_gradients()


def test_encoder_output(loaded: NeutronModel) -> None:
    """What leaves the encoder, through the transform of the target language."""
    source = loaded.golden["in/src"]
    with torch.no_grad():
        (encoded,), _ = loaded.model.encode(source, languages=loaded.languages)
    words = source != 0
    assert deviation(encoded[words], loaded.golden["mid/enc"][words]) < OUTPUT_TOLERANCE


def test_steps_equal_the_full_pass(loaded: NeutronModel) -> None:
    """One token at a time, with one row and with several rows a sentence."""
    loaded.check_steps()
    loaded.check_steps(3)


def test_greedy_choice(loaded: NeutronModel) -> None:
    """Greedy decoding writes what Neutron's wrote."""
    loaded.check_greedy()


@pytest.mark.parametrize(("name", "penalty"), [("beam4", 0.0), ("beam4_lp06", 0.6)])
def test_scores_of_beam_hypotheses(loaded: NeutronModel, name: str, penalty: float) -> None:
    """The hypotheses of Neutron's beam search have the scores that it gave them."""
    loaded.check_beam_scores(name, penalty)
