"""Transparent attention: whole models against Neutron, and on fairseq's layers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from golden_names import (
    FAIRSEQ,
    OUTPUT_TOLERANCE,
    SMALL,
    Place,
    case,
    deviation,
    fairseq,
    load,
    neutron,
)
from torch import Tensor
from whole_models import FairseqModel, NeutronModel

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.context import Context

PAD, EOS = 1, 2


def fairseq_model(name: str, connection: str) -> FairseqModel:
    """4 encoder layers, 3 decoder layers; W is all that transparent attention adds."""
    golden = case(name)
    encoder = {"layers": 4, "connection": connection, "fusion": "transparent"}
    decoder = {"layers": 3, "connection": connection}
    config = ModelConfig.model_validate({**FAIRSEQ, "encoder": encoder, "decoder": decoder})
    model = build_model(config, 48, 48, pad_id=PAD)
    plain = {key: tensor for key, tensor in golden.params.items() if key != "encoder.ta_weight"}
    places = fairseq(plain, 32) | {"encoder.ta_weight": (Place("encoder.fusion.weights"),)}
    load(model, golden.params, places)
    return FairseqModel(golden, model, places)


@pytest.fixture
def post_norm() -> FairseqModel:
    """The model on fairseq's post-norm layers."""
    return fairseq_model("own_ta_postnorm", "post_norm")


def test_outputs_and_gradients(post_norm: FairseqModel) -> None:
    """Log-probabilities, both losses and gradients, W's included, whole and step by step."""
    assert "encoder.ta_weight" in post_norm.golden.grads
    post_norm.check_outputs_and_gradients()
    post_norm.check_steps()


def test_pre_norm_mixes_normalised_layers() -> None:
    """With the layers of the golden pre-norm Transformer: every layer passes the final norm and is mixed."""
    golden = case("fairseq_prenorm")
    encoder = {"layers": 4, "connection": "pre_norm", "fusion": "transparent"}
    config = ModelConfig.model_validate(
        {**FAIRSEQ, "encoder": encoder, "decoder": {"layers": 3, "connection": "pre_norm"}}
    )
    model = build_model(config, 48, 48, pad_id=PAD)
    weights = torch.randn(5, 3, generator=torch.Generator().manual_seed(0))
    params: Mapping[str, Tensor] = golden.params | {"W": weights}
    load(model, params, fairseq(golden.params, 32) | {"W": (Place("encoder.fusion.weights"),)})
    source = golden["in/src_tokens_rightpad"]
    top = model.get_parameter("encoder.fusion.weights")
    with torch.no_grad():
        mixed = model.encode(source)[0]
        layers = []
        for layer in range(5):  # a share of 1 shows one layer alone
            top.fill_(-1e9)[layer] = 0.0
            layers.append(model.encode(source)[0][0])
    words = source != PAD
    assert (
        deviation(layers[4][words], golden["act/enc_out"][golden["in/src_tokens"] != PAD]) < OUTPUT_TOLERANCE
    )
    final = model.encoder.connection.normalise
    with torch.no_grad():
        assert deviation(layers[0], final(model.source_embedding(source), Context())) < OUTPUT_TOLERANCE
    for decoder_layer in range(3):
        shares = weights[:, decoder_layer].softmax(0)
        expected = sum(share * layer for share, layer in zip(shares, layers, strict=True))
        assert isinstance(expected, Tensor)
        assert deviation(mixed[decoder_layer], expected) < OUTPUT_TOLERANCE


@pytest.fixture
def neutron_model() -> NeutronModel:
    """Neutron's whole model: the embedding is normalised, and layers are post-norm without a final norm.

    The norm of its embedding is kept under the name of the final norm, which it has no use for.
    """
    golden = case("nmt_ta")
    connection = {"type": "post_norm", "embedding_norm": True}
    config = ModelConfig.model_validate(
        {
            **SMALL,
            "embeddings": {"tie": "output"},
            "encoder": {"layers": 2, "connection": connection, "fusion": "transparent"},
            "decoder": {"layers": 2, "connection": connection},
        }
    )
    model = build_model(config, 40, 40)
    places = neutron(
        {k: v for k, v in golden.params.items() if not k.startswith("enc.tattn")}, post_norm=True
    )
    places["enc.tattn_w"] = (Place("encoder.fusion.weights"),)
    for leaf in ("weight", "bias"):
        places[f"enc.out_normer.{leaf}"] = (Place(f"encoder.connection.embedding_norm.{leaf}"),)
        for call in range(4):
            part = f"enc.nets.{call // 2}.{('attn', 'ff')[call % 2]}.normer.{leaf}"
            places[part] = (Place(f"encoder.connection.norms.{call}.{leaf}"),)
    load(model, golden.params, places)
    return NeutronModel(golden, model, places)


def test_neutron_outputs_and_gradients(neutron_model: NeutronModel) -> None:
    """Log-probabilities, smoothed loss and every gradient, whole and step by step."""
    assert len(neutron_model.golden.grads) == len(neutron_model.places)
    neutron_model.check_outputs_and_gradients()
    neutron_model.check_steps()


def test_neutron_greedy_choice(neutron_model: NeutronModel) -> None:
    """Greedy decoding writes what Neutron's wrote."""
    neutron_model.check_greedy()
