from __future__ import annotations

from typing import Any

import pytest
import torch

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.parametrization import CompletePConfig
from deepwire.model.translation_model import TranslationModel
from deepwire.model.update_scales import update_scales

BASE = {"d_model": 16, "heads": 2, "encoder_layers": 2, "decoder_layers": 1}
COMPLETE_P = {"type": "complete_p", "base": BASE}


def config(width: int = 16, layers: int = 2, heads: int = 2, **changes: Any) -> ModelConfig:
    """A model twice as deep in the encoder as in the decoder."""
    return ModelConfig.model_validate(
        {
            "d_model": width,
            "heads": heads,
            "feed_forward": 2 * width,
            "dropout": 0.0,
            "encoder": {"layers": layers},
            "decoder": {"layers": layers // 2},
            "parametrization": COMPLETE_P,
            **changes,
        }
    )


def build(settings: ModelConfig) -> TranslationModel:
    torch.manual_seed(3)
    return build_model(settings, 40, 40)


def sample() -> tuple[torch.Tensor, torch.Tensor]:
    return torch.tensor([[5, 6, 7, 2], [8, 9, 2, 0]]), torch.tensor([[1, 5, 9], [1, 6, 0]])


def test_the_base_model_is_the_plain_model() -> None:
    """Same values, same function, and no factor anywhere but that norms and biases do not decay."""
    base, plain = build(config()), build(config(parametrization=None, initialization="xavier"))
    for (name, own), (other, there) in zip(base.named_parameters(), plain.named_parameters(), strict=True):
        assert name == other
        assert torch.equal(own, there)
    assert torch.equal(base.log_probs(*sample()), plain.log_probs(*sample()))
    assert {(scale.rate, scale.eps) for scale in update_scales(base).values()} == {(1.0, 1.0)}
    assert update_scales(plain) == {}


@pytest.mark.parametrize("heads", [2, 8])
def test_logits_and_attention_follow_the_width(heads: int) -> None:
    """Logits are divided by m_d, but for their bias; scores by the growth of a head's width."""
    wide = build(config(width=64, heads=heads))
    result = torch.randn(1, 3, 64)
    bias = wide.head.bias
    assert bias is not None
    torch.nn.init.normal_(bias)
    expected = result @ wide.head.table.weight.t() / 4 + bias
    torch.testing.assert_close(wide.head.logits(result), expected)
    targets = torch.tensor([[4, 5, 6]])
    by_target = expected.log_softmax(-1).gather(-1, targets.unsqueeze(-1)).squeeze(-1)
    torch.testing.assert_close(wide.head.target_log_probs([result], targets), by_target)
    sums = wide.head.loss([result], targets, 0.0, "uniform")
    torch.testing.assert_close(sums.smoothed, -by_target.sum())

    plain = build(config(width=64, heads=heads, parametrization=None))
    mixer, other = wide.encoder.mixers[0], plain.encoder.mixers[0]
    mixer.load_state_dict(other.state_dict())
    with torch.no_grad():  # queries are the first rows
        other.query_key_value.weight[:64] *= (64 / heads / 8) ** -0.5
    x = torch.randn(1, 5, 64)
    torch.testing.assert_close(mixer(x, Context()), other(x, Context()))


def test_embeddings_begin_as_in_the_base_at_any_width() -> None:
    """Their vectors have the size that they have in the base, with every initialisation."""
    for initialization in ("lipschitz", "glorot", "xavier", "fairseq", "pytorch"):
        base, wide, narrow = (
            build(config(width, initialization=initialization, positions="learned")) for width in (16, 72, 8)
        )
        for model in (wide, narrow):
            for part in ("table.weight", "positions.table"):
                own, first = (dict(each.source_embedding.named_parameters())[part] for each in (model, base))
                assert own.std().item() == pytest.approx(first.std().item(), rel=0.15)
            assert model.source_embedding.scale == base.source_embedding.scale
            assert not model.source_embedding.table.weight[0].any()  # padding


def test_every_parameter_has_its_factors() -> None:
    model = build(config(width=64, layers=8, parametrization={**COMPLETE_P, "alpha": 0.5}))
    scales = update_scales(model)
    assert scales.keys() == dict(model.named_parameters()).keys()
    eps = 1 / 4 / 2  # m_d = m_L = 4
    for name, scale in scales.items():
        assert scale.eps == pytest.approx(eps)
        if name == "source_embedding.table.weight":
            assert scale[:2] == (1, 1)
        elif "final_norm" in name or name == "head.bias":
            assert scale[:2] == (1, 0)
        elif name.endswith("weight") and "norms" not in name:
            assert scale[:2] == (pytest.approx(1 / 8), 4)
        else:
            assert scale[:2] == (pytest.approx(1 / 2), 0)


def test_without_layers_of_the_base_it_is_mup() -> None:
    width_only = CompletePConfig.model_validate({"base": {"d_model": 16, "heads": 2}})
    scaling = width_only.scaling(64, 8, 12, None)
    assert (scaling.branch, scaling.matrices.rate, scaling.vectors.rate) == (1, 0.25, 1)


DIVIDED = [
    "pre_norm",
    "post_norm",
    "rezero",
    "runge_kutta",
    "branch_norm",
    "b2t",
    "resi_dual",
    "peri_ln",
    {"type": "layer_scale", "initial": 0.1},
]


@pytest.mark.parametrize("connection", DIVIDED, ids=str)
def test_every_sum_is_divided(connection: object) -> None:
    """m_L = 4 divides by 4 what all sub-layers give: with 4 times that, the base's stack gives the same."""
    deep, plain = (
        build(
            config(
                layers=8,
                parametrization=parametrization,
                encoder={"layers": 8, "connection": connection},
                decoder={"layers": 4},
            )
        )
        for parametrization in (COMPLETE_P, None)
    )
    plain.load_state_dict(deep.state_dict())
    factor = 4.0
    if connection == "peri_ln":  # a norm comes between
        factor = 1.0
        for norm in deep.encoder.connection.get_submodule("output_norms").children():
            norm.get_parameter("weight").data.mul_(4.0)
    x, gives = torch.randn(1, 3, 16), torch.randn(1, 3, 16)
    ends = []
    for stack, scale in ((deep.stack("encoder"), factor), (plain.stack("encoder"), 1.0)):
        state = stack.connection.start(x, Context())
        for index in range(len(stack.connection.calls)):
            read = stack.connection.read(state, index, Context())
            state = stack.connection.write(state, index, read, scale * gives, Context())
        ends.append(stack.connection.result(state, Context()))
    torch.testing.assert_close(*ends)
