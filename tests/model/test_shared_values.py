"""Value residual and LIMe: what mixers of higher layers take of those below, within one pass."""

from __future__ import annotations

import torch
from one_socket import config_of
from torch import Tensor

from deepwire.model.build import build_model
from deepwire.model.mixers.mixer import SideState
from deepwire.model.mixers.shared_values import SharedValueAttention
from deepwire.model.stack import Stack


def encoder_of(mixer: object) -> Stack:
    torch.manual_seed(0)
    return build_model(config_of(3, mixer=mixer), 23, 23).stack("encoder")


def used(stack: Stack, x: Tensor) -> list[tuple[Tensor, Tensor]]:
    """The keys and values of every layer, each of which reads `x`."""
    below: SideState = ()
    found = []
    for mixer in stack.mixers:
        assert isinstance(mixer, SharedValueAttention)
        _, key, value, below = mixer._mixed(x, below, None)
        found.append((key, value))
    return found


def test_values_of_the_first_layer_alone() -> None:
    """SVFormer: layers above the first make no values."""
    stack, x = encoder_of({"type": "value_residual", "form": "first"}), torch.randn(2, 3, 16)
    values = [value for _, value in used(stack, x)]
    assert all(torch.equal(value, values[0]) for value in values)
    shapes = [
        tuple(stack.get_parameter(f"mixers.{layer}.query_key_value.weight").shape) for layer in range(3)
    ]
    assert shapes == [(48, 16), (32, 16), (32, 16)]


def test_caches_do_not_grow() -> None:
    """A step keeps as much as that of plain self-attention."""
    sizes = {}
    for mixer in ("self_attention", "lime", "value_residual"):
        model = build_model(config_of(3, mixer=mixer), 23, 23).eval()
        with torch.inference_mode():
            _, state = model.step(torch.tensor([1]), model.start(torch.tensor([[4, 9, 2]])))
        sizes[mixer] = [tuple(leaf.shape) for each in state.states for leaf in each]
    assert sizes["lime"] == sizes["value_residual"] == sizes["self_attention"]
