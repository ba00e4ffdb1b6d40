"""Average attention against Neutron, merged attention against an implementation of its equations."""

from __future__ import annotations

import re
from typing import Literal

import pytest
from golden_names import (
    FAIRSEQ,
    GRADIENT_TOLERANCE,
    OUTPUT_TOLERANCE,
    SMALL,
    Place,
    Places,
    case,
    check_gradients,
    deviation,
    fairseq,
    load,
)
from whole_models import FairseqModel

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.mixers.average_attention import AverageAttention, AverageAttentionConfig, running_mean

DIM, PAD, VOCABULARY = 32, 1, 48
AVERAGE_PLACES = {
    "gate": "gates",
    "ffn.0": "feed_forward.input",
    "ffn.1": "feed_forward.norm",
    "ffn.3": "feed_forward.output",
}


@pytest.mark.parametrize(("name", "network"), [("aan_noffn", "none"), ("aan_ffn_relu", "normalised")])
def test_average_attention(name: str, network: Literal["none", "normalised"]) -> None:
    """Outputs and gradients with and without the network on the average.

    The file averages other vectors than it gates, which inside a decoder are the same.
    """
    golden = case(name)
    config = AverageAttentionConfig(feed_forward=network)
    mixer = config.build(ModelConfig.model_validate(SMALL).specs()["decoder"])
    assert isinstance(mixer, AverageAttention)
    places = {key: average_place(key) for key in golden.params}
    load(mixer, golden.params, places)
    query, value = (golden[f"in/{key}"].clone().requires_grad_() for key in "qv")
    found = mixer.combine(query, running_mean(value), Context())
    assert deviation(found, golden["out/y"]) < OUTPUT_TOLERANCE
    (found * golden["cot/R"]).sum().backward()
    for key, tensor in (("q", query), ("v", value)):
        assert tensor.grad is not None
        assert deviation(tensor.grad, golden[f"grad/in/{key}"]) < GRADIENT_TOLERANCE
    check_gradients(mixer, golden.grads, places, GRADIENT_TOLERANCE)


def average_place(name: str) -> Places:
    """Where a parameter of Neutron's average attention lies."""
    stem, leaf = name.rsplit(".", 1)
    return (Place(f"{AVERAGE_PLACES[stem]}.{leaf}"),)


@pytest.fixture
def merged() -> FairseqModel:
    """The whole post-norm model whose decoder has merged attention."""
    golden = case("own_matt_postnorm")
    config = ModelConfig.model_validate(
        {
            **FAIRSEQ,
            "encoder": {"layers": 4, "connection": "post_norm"},
            "decoder": {"layers": 3, "connection": "post_norm", "mixer": "merged_attention"},
        }
    )
    model = build_model(config, VOCABULARY, VOCABULARY, pad_id=PAD)
    standard = {key: value for key, value in golden.params.items() if key.startswith("encoder.")}
    places = fairseq(standard, DIM)
    places |= {key: merged_place(key) for key in golden.params if key.startswith("decoder.")}
    places["embed"] = (Place("source_embedding.table.weight"),)
    load(model, golden.params, places)
    return FairseqModel(golden, model, places)


def merged_place(name: str) -> Places:
    """Where a parameter of a decoder layer of two sub-layers lies."""
    found = re.fullmatch(r"decoder\.layers\.(\d)\.(.+)\.(weight|bias)", name)
    assert found is not None, name
    layer, part, leaf = int(found[1]), found[2], found[3]
    if part == "matt_layer_norm":
        return (Place(f"decoder.connection.norms.{2 * layer}.{leaf}"),)
    if part == "final_layer_norm":
        return (Place(f"decoder.connection.norms.{2 * layer + 1}.{leaf}"),)
    parts = {
        "fc1": f"feed_forwards.{layer}.input",
        "fc2": f"feed_forwards.{layer}.output",
        "matt.q_proj": f"mixers.{layer}.query",
        "matt.k_proj": f"mixers.{layer}.key",
        "matt.v_proj": f"mixers.{layer}.value",
        "matt.out_proj": f"mixers.{layer}.output",
    }
    return (Place(f"decoder.{parts[part]}.{leaf}"),)


def test_merged_attention(merged: FairseqModel) -> None:
    """Log-probabilities, both losses and gradients of the whole model."""
    merged.check_outputs_and_gradients()


def test_merged_attention_step_by_step(merged: FairseqModel) -> None:
    """One token at a time gives the golden log-probabilities, also with two rows a sentence."""
    merged.check_steps(width=2)
