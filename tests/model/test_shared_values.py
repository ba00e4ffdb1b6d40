"""Value residual and LIMe: what mixers of higher layers take of those below, within one pass."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from torch import Tensor

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.mixers.mixer import SideState
from deepwire.model.mixers.shared_values import SharedValueAttention
from deepwire.model.stack import Stack
from deepwire.testing import check_mixer, check_model
from deepwire.training.extras import LayerDropConfig

SMALL: dict[str, object] = {"d_model": 16, "heads": 4, "feed_forward": 24, "dropout": 0.0}
CHOICES: list[object] = [
    "value_residual",
    {"type": "value_residual", "form": "learned", "relative": 2},
    {"type": "value_residual", "form": "first"},
    "lime",
    {"type": "lime", "relative": 2, "relative_values": True},
]


def config_of(mixer: object, layers: int = 3, **settings: object) -> ModelConfig:
    stack = {"layers": layers, "mixer": mixer, **settings}
    return ModelConfig.model_validate({**SMALL, "encoder": stack, "decoder": stack})


def encoder_of(mixer: object) -> Stack:
    torch.manual_seed(0)
    return build_model(config_of(mixer), 23, 23).stack("encoder")


def used(stack: Stack, x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The keys and values of every layer, each of which reads `x`."""
    below: SideState = ()
    found = []
    for mixer in stack.mixers:
        assert isinstance(mixer, SharedValueAttention)
        _, key, value, below = mixer._mixed(x, below, None)
        found.append((key, value))
    return found


def own(stack: Stack, x: Tensor, layer: int) -> list[Tensor]:
    """Keys and values `[B, H, T, h]` of a layer alone; keys alone where it makes no values."""
    weight = stack.get_parameter(f"mixers.{layer}.query_key_value.weight")
    return [(x @ part.T).unflatten(-1, (4, 4)).transpose(1, 2) for part in weight.split(16)[1:]]


@pytest.mark.parametrize("mixer", CHOICES)
def test_properties(mixer: object) -> None:
    """Gradients, padding, causality, steps and state selection, also where a layer is evaluated twice."""
    check_mixer(mixer)  # type: ignore[arg-type]
    stack = {"mixer": mixer, "connection": "runge_kutta"}
    check_model({"encoder": stack, "decoder": stack})


@pytest.mark.parametrize(("form", "shares"), [("fixed", (0.5, 0.5)), ("learned", (0.3, 0.9))])
def test_value_residual_written_out(form: str, shares: tuple[float, float]) -> None:
    """v_l <- a v_1 + b v_l above layer 1; keys stay."""
    stack, x = encoder_of({"type": "value_residual", "form": form}), torch.randn(2, 3, 16)
    if form == "learned":
        stack.get_parameter("mixers.2.below.share").data.copy_(torch.tensor(shares))
    keys_and_values = used(stack, x)
    (_, first), (key, third) = own(stack, x, 0), own(stack, x, 2)
    assert torch.allclose(keys_and_values[0][1], first, atol=1e-6)
    assert torch.allclose(keys_and_values[2][1], shares[0] * first + shares[1] * third, atol=1e-6)
    assert torch.allclose(keys_and_values[2][0], key, atol=1e-6)


def test_values_of_the_first_layer_alone() -> None:
    """SVFormer: layers above the first make no values."""
    stack, x = encoder_of({"type": "value_residual", "form": "first"}), torch.randn(2, 3, 16)
    values = [value for _, value in used(stack, x)]
    assert all(torch.equal(value, values[0]) for value in values)
    shapes = [
        tuple(stack.get_parameter(f"mixers.{layer}.query_key_value.weight").shape) for layer in range(3)
    ]
    assert shapes == [(48, 16), (32, 16), (32, 16)]


def test_lime_written_out() -> None:
    """Every head's keys and values are sums over all heads of all layers up to its own, unmixed."""
    stack, x = encoder_of("lime"), torch.randn(2, 3, 16)
    router = stack.get_parameter("mixers.2.below.router")
    router.data.copy_(torch.randn_like(router))
    for number, found in enumerate(used(stack, x)[2]):
        heads = torch.cat([own(stack, x, layer)[number] for layer in range(3)], 1)
        assert torch.allclose(found, torch.einsum("hg,bgtc->bhtc", router, heads), atol=1e-5)


def test_lime_begins_with_its_own_layer_and_a_little_of_others() -> None:
    """The identity on the own layer, uniform in +-sqrt(3 / (l H)) below."""
    router = encoder_of("lime").get_parameter("mixers.2.below.router").detach()
    assert torch.equal(router[:, 8:], torch.eye(4))
    bound = (3 / 12) ** 0.5
    assert 0.8 * bound < router[:, :8].abs().max() <= bound


def test_caches_do_not_grow() -> None:
    """A step keeps as much as that of plain self-attention."""
    sizes = {}
    for mixer in ("self_attention", "lime", "value_residual"):
        model = build_model(config_of(mixer), 23, 23).eval()
        with torch.inference_mode():
            _, state = model.step(torch.tensor([1]), model.start(torch.tensor([[4, 9, 2]])))
        sizes[mixer] = [tuple(leaf.shape) for each in state.states for leaf in each]
    assert sizes["lime"] == sizes["value_residual"] == sizes["self_attention"]


def test_weights_for_analyses() -> None:
    """The learned shares by layer; plain self-attention shows none."""
    nan = float("nan")
    (weights,) = encoder_of({"type": "value_residual", "form": "learned"}).depth_weights()
    expected = torch.tensor([[nan, nan, nan], [0.5, 0.5, nan], [0.5, 0, 0.5]])
    assert torch.equal(weights.values.nan_to_num(-1), expected.nan_to_num(-1))
    (weights,) = encoder_of("lime").depth_weights()
    assert torch.allclose(weights.values[[1, 2], [1, 2]], torch.tensor([0.25, 0.25]))
    assert encoder_of("self_attention").depth_weights() == ()


@pytest.mark.parametrize("mixer", ["value_residual", "lime"])
def test_one_layer_is_refused(mixer: str) -> None:
    """There is nothing to share."""
    with pytest.raises(ValidationError, match=rf"encoder\.mixer: {mixer} mixes values of several layers"):
        config_of(mixer, layers=1)


def test_layers_cannot_be_left_out() -> None:
    """Those above would read what was not made."""
    with pytest.raises(ValueError, match=r"encoder\.mixer lime reads what the layers below made"):
        LayerDropConfig.model_validate({"encoder": 0.2}).check(config_of("lime"))
