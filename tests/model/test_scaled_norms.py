"""Connections that scale or place norms in other ways: what the golden cases leave open."""

from __future__ import annotations

import math
from typing import Any

import pytest
import torch
from one_socket import config_of, connection_of, through
from torch import nn
from torch.nn import functional

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel


@pytest.mark.parametrize(("gain", "expected"), [("auto", 12**-0.5), (1, 1.0), (0.3, 0.3)])
def test_gains_of_peri_ln_begin_small_by_depth(gain: object, expected: float) -> None:
    """(2 K)^(-1/2) with K sub-layers, here of three encoder layers: all of them together add 1/2."""
    connection = connection_of({"type": "peri_ln", "output_gain": gain}, layers=3)
    for norm in connection.get_submodule("output_norms").children():
        torch.testing.assert_close(norm.get_parameter("weight").detach(), torch.full((16,), expected))


def test_layer_norm_scaling_written_out() -> None:
    """x + F(LN(x) / sqrt(l)), with one number for all sub-layers of a layer, and a plain final norm."""
    connection = connection_of("layer_norm_scaling", layers=3)
    sublayers = [nn.Linear(16, 16) for _ in range(6)]
    x = expected = torch.randn(2, 3, 16)
    for index, sublayer in enumerate(sublayers):
        normal = functional.layer_norm(expected, (16,), eps=1e-6)
        expected = expected + sublayer(normal / math.sqrt(1 + index // 2))
    expected = functional.layer_norm(expected, (16,), eps=1e-6)
    assert torch.allclose(through(connection, sublayers, x), expected, atol=1e-5)


@pytest.mark.parametrize("name", ["branch_norm", {"type": "admin", "initial": "one"}], ids=str)
def test_begins_or_ends_as_post_norm(name: object) -> None:
    """BranchNorm before and after its updates, and Admin with scales of 1."""
    connection, plain = connection_of(name), connection_of("post_norm")
    sublayers, x = [nn.Linear(16, 16) for _ in range(4)], torch.randn(2, 3, 16)
    expected = through(plain, sublayers, x)
    assert torch.allclose(through(connection, sublayers, x), expected, atol=1e-6)
    connection.begin_update(1)
    same = torch.allclose(through(connection, sublayers, x), expected, atol=1e-3)
    assert same == (name != "branch_norm")
    connection.begin_update(4000)
    assert torch.allclose(through(connection, sublayers, x), expected, atol=1e-6)


@pytest.mark.parametrize(("layers", "start"), [(18, 0.1), (19, 1e-5), (24, 1e-5), (25, 1e-6)])
def test_layer_scale_begins_by_depth(layers: int, start: float) -> None:
    """As in the paper, unless a number is given."""
    for wanted, connection in ((start, "layer_scale"), (0.5, {"type": "layer_scale", "initial": 0.5})):
        (weights,) = connection_of(connection, layers).depth_weights()
        assert torch.allclose(weights.values, torch.full((1, 2 * layers), wanted))


def test_profiling_draws_on_dropout_and_leaves_the_mode() -> None:
    """The pass is one of training, without gradients; afterwards only the scales are others."""
    torch.manual_seed(0)
    model = build_model(config_of(connection="admin", model={"dropout": 0.5}), 23, 23).eval()
    before = {name: value.detach().clone() for name, value in model.named_parameters()}
    source, target = torch.tensor([[4, 9, 5, 2]]), torch.tensor([[1, 5, 9, 12]])
    assert model.needs_profile
    found = []
    for _ in range(2):
        model.profile(source, target)
        found.append(model.encoder.connection.get_parameter("scales.1").detach().clone())
    assert not torch.equal(*found)
    assert not model.training
    changed = {name for name, value in model.named_parameters() if not torch.equal(value, before[name])}
    scales = {f"encoder.connection.scales.{index}" for index in range(1, 4)}
    assert changed == scales | {f"decoder.connection.scales.{index}" for index in range(1, 6)}
    assert not build_model(config_of(connection="deepnorm"), 23, 23).needs_profile


def deep(initialization: str, changes: dict[str, Any] | None = None, **sides: int) -> TranslationModel:
    """A wide model whose stacks have so many layers, for the spread of its numbers."""
    torch.manual_seed(1)
    shape: dict[str, Any] = {"d_model": 64, "heads": 4, "feed_forward": 256}
    stacks = {side: {"layers": layers, **(changes or {}).get(side, {})} for side, layers in sides.items()}
    config = ModelConfig.model_validate({**shape, **stacks, "initialization": initialization})
    return build_model(config, 23, 23)


# What is multiplied by what, in encoder and decoder: queries and keys; values and feed-forward; outputs of
# self-attention; queries and keys of cross-attention; its values and outputs.
GAINS = {
    "deepnorm": ([1, 0.7005633, 0.7005633], [1, 0.451801, 0.451801, 1, 0.451801]),
    "sub_ln": ([1, 0.9099278, 0.9099278], [1, 1.3385662, 1.3385662, 1, 1]),
    "b2t": ([0.5**0.5] * 3, [0.5**0.5] * 5),
}


@pytest.mark.parametrize("initialization", GAINS)
def test_gains_of_initial_matrices(initialization: str) -> None:
    """Glorot's normal times what the paper says, for 2 + 2 layers."""
    model = deep(initialization, encoder=2, decoder=2)
    unit, of_encoder, of_decoder = math.sqrt(2 / 128), *GAINS[initialization]
    for stack, (attending, value, output, *cross) in (
        (model.encoder, of_encoder),
        (model.decoder, of_decoder),
    ):
        found = stack.get_parameter("mixers.1.query_key_value.weight").chunk(3)
        for part, gain in zip(found, (attending, attending, value), strict=True):
            assert part.std().item() == pytest.approx(gain * unit, rel=0.05)
        joined = stack.get_parameter("mixers.0.output.weight")
        assert joined.std().item() == pytest.approx(output * unit, rel=0.05)
        for name in ("input", "output"):
            matrix = stack.get_parameter(f"feed_forwards.1.{name}.weight")
            assert matrix.std().item() == pytest.approx(value * math.sqrt(2 / 320), rel=0.05)
        if cross:
            parts = stack.get_parameter("crosses.0.key_value.weight").chunk(2)
            parts = (stack.get_parameter("crosses.0.query.weight"), *parts)
            for part, gain in zip(parts, (cross[0], *cross), strict=True):
                assert part.std().item() == pytest.approx(gain * unit, rel=0.05)
            joined = stack.get_parameter("crosses.0.output.weight")
            assert joined.std().item() == pytest.approx(cross[1] * unit, rel=0.05)


@pytest.mark.parametrize(
    ("decoder", "maps"),
    [
        ({"mixer": {"type": "value_residual", "form": "first"}}, {"query_key_value": (1, 1)}),
        (
            {"aggregation": {"type": "mudd", "ways": 4}},
            {"apart.0": (1,), "apart.1": (1,), "apart.2": (0.451801,)},
        ),
        ({"size": {"key_value_heads": 2}}, {"query": (1,), "key_value": (1, 0.451801)}),
    ],
)
def test_values_have_their_gain_wherever_they_are_stored(
    decoder: dict[str, Any], maps: dict[str, tuple[float, ...]]
) -> None:
    """Layer 2 of SVFormer makes queries and keys alone."""
    model = deep("deepnorm", {"decoder": decoder}, encoder=2, decoder=2)
    for name, gains in maps.items():
        weight = model.stack("decoder").get_parameter(f"mixers.1.{name}.weight")
        for part, gain in zip(weight.chunk(len(gains)), gains, strict=True):
            assert part.std().item() == pytest.approx(gain * math.sqrt(2 / (64 + len(part))), rel=0.05)


def test_gains_see_both_stacks() -> None:
    """An encoder of DeepNorm begins smaller before a deeper decoder."""
    spread = {
        decoder: [
            stack.get_parameter("feed_forwards.0.input.weight").std().item()
            for stack in (model.encoder, model.decoder)
        ]
        for decoder in (1, 16)
        for model in [deep("deepnorm", encoder=2, decoder=decoder)]
    }
    assert spread[16][0] / spread[1][0] == pytest.approx(16 ** (-1 / 16), rel=0.02)
    assert spread[16][1] / spread[1][1] == pytest.approx(0.5, rel=0.05)
