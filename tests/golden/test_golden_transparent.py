"""Transparent attention: whole models against Neutron, and on fairseq's layers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from golden_names import (
    GRADIENT_TOLERANCE,
    OUTPUT_TOLERANCE,
    Case,
    Place,
    Places,
    case,
    check_gradients,
    deviation,
    fairseq,
    load,
    neutron,
)
from torch import Tensor

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translator import TranslationModel

SMALL: dict[str, object] = {"d_model": 32, "heads": 4, "feed_forward": 64, "dropout": 0.0}
FAIRSEQ: dict[str, object] = {
    "norm_eps": 1e-5,
    "bias": {"attention": True, "feed_forward": "both", "output": False},
    "positions": {"type": "sinusoidal", "layout": "halves", "first": 2},
}
PAD, EOS = 1, 2
Loaded = tuple[Case, TranslationModel, dict[str, Places]]


def fairseq_model(name: str, connection: str) -> Loaded:
    """4 encoder layers, 3 decoder layers; W is all that transparent attention adds."""
    golden = case(name)
    encoder = {"layers": 4, "connection": connection, "fusion": "transparent"}
    decoder = {"layers": 3, "connection": connection}
    config = ModelConfig.model_validate({**SMALL, **FAIRSEQ, "encoder": encoder, "decoder": decoder})
    model = build_model(config, 48, 48, pad_id=PAD)
    plain = {key: tensor for key, tensor in golden.params.items() if key != "encoder.ta_weight"}
    places = fairseq(plain, 32) | {"encoder.ta_weight": (Place("encoder.fusion.weights"),)}
    load(model, golden.params, places)
    return golden, model, places


@pytest.fixture
def post_norm() -> Loaded:
    """The model on fairseq's post-norm layers."""
    return fairseq_model("own_ta_postnorm", "post_norm")


def test_outputs_and_gradients(post_norm: Loaded) -> None:
    """Log-probabilities, smoothed loss and gradients, W's included."""
    golden, model, places = post_norm
    source, target = golden["in/src_tokens_rightpad"], golden["in/prev_output_tokens"]
    real = golden["in/target"] != PAD
    expected = golden["out/logits"].log_softmax(-1)
    assert deviation(model.log_probs(source, target)[real], expected[real]) < OUTPUT_TOLERANCE
    loss = model.loss(source, target, golden["in/target"], 0.1, "uniform")
    assert loss.smoothed.item() == pytest.approx(golden["out/loss_sum"].item(), abs=1e-4)
    assert loss.nll.item() == pytest.approx(golden["out/nll_sum"].item(), abs=1e-4)
    loss.smoothed.backward()
    assert "encoder.ta_weight" in golden.grads
    check_gradients(model, golden.grads, places, GRADIENT_TOLERANCE)
    check_steps(model, source, target, expected, real)


def test_pre_norm_mixes_normalised_layers() -> None:
    """With the layers of the golden pre-norm Transformer: every layer passes the final norm and is mixed."""
    golden = case("fairseq_prenorm")
    encoder = {"layers": 4, "connection": "pre_norm", "fusion": "transparent"}
    config = ModelConfig.model_validate(
        {**SMALL, **FAIRSEQ, "encoder": encoder, "decoder": {"layers": 3, "connection": "pre_norm"}}
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
        assert deviation(layers[0], final(model.source_embedding(source))) < OUTPUT_TOLERANCE
    for decoder_layer in range(3):
        shares = weights[:, decoder_layer].softmax(0)
        expected = sum(share * layer for share, layer in zip(shares, layers, strict=True))
        assert isinstance(expected, Tensor)
        assert deviation(mixed[decoder_layer], expected) < OUTPUT_TOLERANCE


@pytest.fixture
def neutron_model() -> Loaded:
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
    return golden, model, places


def test_neutron_outputs_and_gradients(neutron_model: Loaded) -> None:
    """Log-probabilities, smoothed loss and every gradient."""
    golden, model, places = neutron_model
    source, target = golden["in/src"], golden["in/tgt_in"]
    real = golden["in/tgt_out"] != 0
    assert deviation(model.log_probs(source, target)[real], golden["out/logp"][real]) < OUTPUT_TOLERANCE
    loss = model.loss(source, target, golden["in/tgt_out"], 0.1)
    assert abs(loss.smoothed.item() - golden["out/loss_fast"].item()) < 5e-5
    loss.smoothed.backward()
    assert len(golden.grads) == len(places)
    check_gradients(model, golden.grads, places, GRADIENT_TOLERANCE)
    check_steps(model, source, target, golden["out/logp"], real)


def test_neutron_greedy_choice(neutron_model: Loaded) -> None:
    """The most probable token at each step is the one that Neutron's greedy search wrote, up to its EOS."""
    golden, model, _ = neutron_model
    written = golden["decode/greedy"]
    tokens, unfinished = torch.ones(written.size(0), dtype=torch.long), torch.ones(written.size(0)).bool()
    with torch.no_grad():
        state = model.start(golden["in/src"], written.size(1))
        for position in range(written.size(1)):
            found, state = model.step(tokens, state)
            tokens = found.argmax(-1)
            assert torch.equal(tokens[unfinished], written[unfinished, position])
            unfinished &= tokens != EOS


def check_steps(
    model: TranslationModel, source: Tensor, target: Tensor, expected: Tensor, real: Tensor
) -> None:
    """One token at a time gives the golden log-probabilities."""
    with torch.no_grad():
        state = model.start(source, target.size(1))
        for position in range(target.size(1)):
            found, state = model.step(target[:, position], state)
            here = real[:, position]
            assert deviation(found[here], expected[:, position][here]) < OUTPUT_TOLERANCE
