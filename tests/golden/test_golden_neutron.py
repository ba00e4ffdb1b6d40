"""Sub-layers, with self-dependency units too, and the loss against Neutron, the authors' toolkit."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import pytest
import torch
from golden_names import (
    GRADIENT_TOLERANCE,
    OUTPUT_TOLERANCE,
    SMALL,
    Case,
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
from deepwire.model.embedding import SinusoidalConfig
from deepwire.model.layers import NoNorm
from deepwire.model.mixers.self_attention import SelfAttentionConfig
from deepwire.ops.cross_entropy import linear_cross_entropy

KINDS: dict[str, Sublayer] = {"self_attn": "mixer", "cross_attn": "cross", "ffn": "feed_forward"}
PARTS = {
    "self_attn": {
        "net.adaptor.weight": "query_key_value.weight",
        "net.outer.weight": "output.weight",
        "net.rel_pemb.weight": "relative.table",
    },
    "cross_attn": {
        "net.query_adaptor.weight": "query.weight",
        "net.kv_adaptor.weight": "key_value.weight",
        "net.outer.weight": "output.weight",
    },
    "ffn": {"net.0.weight": "input.weight", "net.0.bias": "input.bias", "net.2.weight": "output.weight"},
}
# In Neutron's order v1 the residual is the normalised input, in v2 the input.
CONNECTIONS: dict[str, object] = {
    "v1": {"type": "post_norm", "embedding_norm": True},
    "v2": "pre_norm",
    "sdu_v1": {"type": "sdu", "residual": "normalised", "final_norm": False},
    "sdu_v2": {"type": "sdu", "residual": "input", "final_norm": False},
}
FULL, COMPACT = ({"relative": 3, "relative_table": table} for table in ("full", "compact"))
# Kind, connection, and settings of the mixer; a GLU halves the inner width.
CASES: dict[str, tuple[str, str, Mapping[str, object]]] = {
    "res_self_attn_v1": ("self_attn", "v1", {}),
    "res_self_attn_v2": ("self_attn", "v2", {}),
    "self_attn_rel_bi_k3": ("self_attn", "v2", FULL),
    "self_attn_rel_causal_k3": ("self_attn", "v2", COMPACT),
    "res_cross_attn_v1": ("cross_attn", "v1", {}),
    "res_cross_attn_v2": ("cross_attn", "v2", {}),
    "ffn_v1": ("ffn", "v1", {}),
    "ffn_v2": ("ffn", "v2", {}),
    "ffn_glu_v1": ("ffn", "v1", {}),
    "sdu_self_attn_v1": ("self_attn", "sdu_v1", {}),
    "sdu_self_attn_v2": ("self_attn", "sdu_v2", {}),
    "sdu_cross_attn_v2": ("cross_attn", "sdu_v2", {}),
    "sdu_ffn_v1": ("ffn", "sdu_v1", {}),
    "sdu_ffn_v2": ("ffn", "sdu_v2", {}),
}


class OneSublayer(nn.Module):
    """A sub-layer with its connection, as Neutron cuts them: the norm in front belongs to the sub-layer."""

    def __init__(self, name: str, golden: Case) -> None:
        super().__init__()
        kind, order, mixer = CASES[name]
        decoder = {"layers": 1, "connection": CONNECTIONS[order]}
        activation = "glu" if "glu" in name else "relu"
        config = ModelConfig.model_validate({**SMALL, "decoder": decoder, "activation": activation})
        spec = config.specs()["decoder"]
        connection: Any = config.decoder.connection.build(replace(spec, sublayers=(KINDS[kind],)))
        if order == "v1":
            # Here the norm of a sum ends a sub-layer; there it begins the next one.
            connection.norms[0] = NoNorm()
        elif order == "v2":
            connection.final_norm = None
        self.connection = connection
        sublayers: dict[str, nn.Module] = {
            "self_attn": SelfAttentionConfig.model_validate(mixer).build(spec),
            "cross_attn": CrossAttention(spec),
            "ffn": spec.feed_forward_network(),
        }
        self.sublayer = sublayers[kind]
        memory, mask = golden.tensors.get("in/mem"), golden.tensors.get("in/mask")
        self.memory = None if memory is None else memory.clone().requires_grad_()
        if mask is not None:
            mask = mask.unsqueeze(1).bool()
            self.padding = torch.zeros(mask.shape).masked_fill_(mask, float("-inf"))

    def forward(self, x: Tensor) -> Tensor:
        state = self.connection.start(x, Context())
        read = self.connection.read(state, 0, Context())
        given: object = Context()
        if isinstance(self.sublayer, CrossAttention):
            assert self.memory is not None
            given = self.sublayer.project(self.memory, Context(padding=self.padding))
        written: Tensor = self.connection.write(state, 0, read, self.sublayer(read, given), Context())[0]
        return written


@pytest.mark.parametrize("name", CASES)
def test_sublayer(name: str) -> None:
    """The result, and the gradients of the input, of the encoder's output and of every parameter."""
    kind, order, _ = CASES[name]
    golden = case(name)
    module = OneSublayer(name, golden)
    norm = "embedding_norm" if order == "v1" else "norms.0"
    places: dict[str, Places] = {}
    for theirs in golden.params:
        if theirs in PARTS[kind]:
            places[theirs] = (Place(f"sublayer.{PARTS[kind][theirs]}"),)
        else:
            ours = re.sub(r"^normer\.", f"{norm}.", re.sub(r"^sdu\.0\.", "units.0.", theirs))
            places[theirs] = (Place(f"connection.{ours}"),)
    load(module, golden.params, places)
    check_module(golden, module)
    if module.memory is not None:
        assert module.memory.grad is not None
        assert deviation(module.memory.grad, golden["grad/in/mem"]) < GRADIENT_TOLERANCE
    expected = dict(golden.grads)
    if "causal" in name:  # row 1 of the table, which they take for padding, has no gradient there
        found = module.get_parameter("sublayer.relative.table").grad
        assert found is not None
        assert not expected["net.rel_pemb.weight"][1].any()
        assert found[1].any()
        expected["net.rel_pemb.weight"] = expected["net.rel_pemb.weight"].clone()
        expected["net.rel_pemb.weight"][1] = found[1]
    check_gradients(module, expected, places, GRADIENT_TOLERANCE)


def test_sinusoids() -> None:
    """Sine and cosine in turn, from position 0."""
    expected = case("posemb")["out/w"]
    found = SinusoidalConfig().build(32, 64)(0, expected.size(0), expected)
    assert found is not None
    assert deviation(found, expected) < OUTPUT_TOLERANCE


def test_label_smoothing() -> None:
    """The smoothed loss in Neutron's fast form, and its gradient."""
    golden = case("label_smoothing")
    real = golden["in/target"] != 0
    logits = golden["in/logits"].clone().requires_grad_()
    loss, _ = linear_cross_entropy(
        logits[real], torch.eye(11), None, golden["in/target"][real], smoothing=0.1, form="uniform_wrong"
    )
    assert abs(loss.item() - golden["out/fast"].item()) < OUTPUT_TOLERANCE
    loss.backward()
    assert logits.grad is not None
    assert deviation(logits.grad, golden["grad/logits_fast"]) < GRADIENT_TOLERANCE
