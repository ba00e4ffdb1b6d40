"""Sub-layers with self-dependency units against Neutron."""

from __future__ import annotations

from dataclasses import replace
from typing import Literal

import pytest
import torch
from golden_names import (
    GRADIENT_TOLERANCE,
    SMALL,
    Place,
    Places,
    case,
    check_gradients,
    check_module,
    deviation,
    load,
)
from torch import Tensor, nn

from deepwire.model.config import ModelConfig
from deepwire.model.connections.connection import Sublayer
from deepwire.model.context import Context
from deepwire.model.cross_attention import CrossAttention
from deepwire.model.mixers.self_attention import SelfAttentionConfig

DIM, PAD = 32, 1


Order = Literal["v1", "v2"]
SUBLAYER_PARTS = {
    "self_attn": {"net.adaptor.weight": "query_key_value.weight", "net.outer.weight": "output.weight"},
    "cross_attn": {
        "net.query_adaptor.weight": "query.weight",
        "net.kv_adaptor.weight": "key_value.weight",
        "net.outer.weight": "output.weight",
    },
    "ffn": {"net.0.weight": "input.weight", "net.0.bias": "input.bias", "net.2.weight": "output.weight"},
}
KINDS: dict[str, Sublayer] = {"self_attn": "mixer", "cross_attn": "cross", "ffn": "feed_forward"}


class OneSublayer(nn.Module):
    """A sub-layer with its connection."""

    def __init__(self, name: str, order: Order, memory: Tensor | None, mask: Tensor | None) -> None:
        super().__init__()
        residual = "normalised" if order == "v1" else "input"
        connection = {"type": "sdu", "residual": residual, "final_norm": False}
        config = ModelConfig.model_validate({**SMALL, "decoder": {"layers": 1, "connection": connection}})
        context = config.specs()["decoder"]
        self.connection = config.decoder.connection.build(replace(context, sublayers=(KINDS[name],)))
        mixer, cross, feed_forward = (
            SelfAttentionConfig().build(context),
            CrossAttention(context),
            context.feed_forward_network(),
        )
        self.sublayer = {"self_attn": mixer, "cross_attn": cross, "ffn": feed_forward}[name]
        self.memory, self.mask = memory, mask

    def evaluate(self, read: Tensor) -> Tensor:
        if isinstance(self.sublayer, CrossAttention):
            assert self.memory is not None
            assert self.mask is not None
            bias = torch.zeros(self.mask.unsqueeze(1).shape)
            bias = bias.masked_fill_(self.mask.unsqueeze(1).bool(), float("-inf"))
            return self.sublayer(read, self.sublayer.project(self.memory, Context(padding=bias)))
        return self.sublayer(read, Context())

    def forward(self, x: Tensor) -> Tensor:
        state = self.connection.start(x, Context())
        read = self.connection.read(state, 0, Context())
        return self.connection.write(state, 0, read, self.evaluate(read), Context())[0]


@pytest.mark.parametrize(
    ("name", "order"),
    [("self_attn", "v1"), ("self_attn", "v2"), ("cross_attn", "v2"), ("ffn", "v1"), ("ffn", "v2")],
)
def test_sdu_sublayers(name: str, order: Order) -> None:
    """Each kind of sub-layer with its self-dependency unit, in both orders."""
    golden = case(f"sdu_{name}_{order}")
    memory = golden.tensors.get("in/mem")
    if memory is not None:
        memory = memory.clone().requires_grad_()
    module = OneSublayer(name, order, memory, golden.tensors.get("in/mask"))
    places: dict[str, Places] = {
        theirs: (Place(f"sublayer.{ours}"),) for theirs, ours in SUBLAYER_PARTS[name].items()
    }
    for leaf in ("weight", "bias"):
        places[f"normer.{leaf}"] = (Place(f"connection.norms.0.{leaf}"),)
        places[f"sdu.0.{leaf}"] = (Place(f"connection.units.0.{leaf}"),)
    load(module, golden.params, places)
    check_module(golden, module)
    if memory is not None:
        assert memory.grad is not None
        assert deviation(memory.grad, golden["grad/in/mem"]) < GRADIENT_TOLERANCE
    check_gradients(module, golden.grads, places, GRADIENT_TOLERANCE)
