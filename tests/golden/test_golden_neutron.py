"""Sub-layers and whole models against Neutron, the authors' toolkit of the depth-wise LSTM papers."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, Literal

import pytest
import torch
from golden_names import (
    GRADIENT_TOLERANCE,
    OUTPUT_TOLERANCE,
    Case,
    Place,
    case,
    check_gradients,
    check_module,
    deviation,
    load,
)
from torch import Tensor, nn

from deepwire.model.config import ModelConfig
from deepwire.model.connections.connection import Connection, Sublayer
from deepwire.model.context import Context
from deepwire.model.cross_attention import CrossAttention
from deepwire.model.embedding import SinusoidalConfig
from deepwire.model.layers import FeedForward, NoNorm
from deepwire.model.mixers.self_attention import SelfAttentionConfig
from deepwire.ops.cross_entropy import linear_cross_entropy

Order = Literal["v1", "v2"]
SMALL = {"d_model": 32, "heads": 4, "feed_forward": 64, "dropout": 0.0}
EOS = 2


class Sublayers(nn.Module):
    """One sub-layer and its connection, as Neutron cuts them: the norm in front belongs to the sub-layer."""

    def __init__(self, order: Order, kind: Sublayer, sublayer: nn.Module, config: ModelConfig) -> None:
        super().__init__()
        self.sublayer = sublayer
        context = replace(config.specs()["decoder"], sublayers=(kind,))
        connection: Any = config.decoder.connection.build(context)
        if order == "v1":
            # Here the norm of a sum ends a sub-layer; there it begins the next one.
            connection.norms[0] = NoNorm()
        else:
            connection.final_norm = None
        self.connection: Connection = connection

    def forward(self, x: Tensor) -> Tensor:
        state = self.connection.start(x, Context())
        read = self.connection.read(state, 0, Context())
        given = (read, Context()) if isinstance(self.sublayer, FeedForward) else (read,)
        return self.connection.write(state, 0, read, self.sublayer(*given), Context())[0]


def settings(order: Order, **changes: object) -> ModelConfig:
    connection = {"type": "post_norm", "embedding_norm": True} if order == "v1" else "pre_norm"
    decoder = {"layers": 1, "connection": connection}
    return ModelConfig.model_validate({**SMALL, "decoder": decoder, **changes})


def check_sublayer(
    golden: Case, module: Sublayers, order: Order, parts: dict[str, str]
) -> dict[str, tuple[Place, ...]]:
    """Load, run and compare; the places of the parameters."""
    norm = "connection.embedding_norm" if order == "v1" else "connection.norms.0"
    places = {name: (Place(f"sublayer.{part}"),) for name, part in parts.items()}
    places |= {f"normer.{leaf}": (Place(f"{norm}.{leaf}"),) for leaf in ("weight", "bias")}
    load(module, golden.params, places)
    check_module(golden, module)
    return places


ATTENTION = {"net.adaptor.weight": "query_key_value.weight", "net.outer.weight": "output.weight"}


class Causal(nn.Module):
    """A token mixer over whole sequences."""

    def __init__(self, config: SelfAttentionConfig, model: ModelConfig) -> None:
        super().__init__()
        self.mixer = config.build(model.specs()["decoder"])

    def forward(self, x: Tensor) -> Tensor:
        return self.mixer(x, Context())


@pytest.mark.parametrize("order", ["v1", "v2"])
def test_self_attention(order: Order) -> None:
    """Masked self-attention with its residual connection and norm."""
    golden = case(f"res_self_attn_{order}")
    config = settings(order)
    module = Sublayers(order, "mixer", Causal(SelfAttentionConfig(), config), config)
    places = check_sublayer(golden, module, order, {k: f"mixer.{v}" for k, v in ATTENTION.items()})
    check_gradients(module, golden.grads, places, GRADIENT_TOLERANCE)


@pytest.mark.parametrize(("name", "table"), [("bi", "full"), ("causal", "compact")])
def test_relative_positions(name: str, table: Literal["full", "compact"]) -> None:
    """Relative positions on the keys, clipped at 3, with both sizes of the table."""
    golden = case(f"self_attn_rel_{name}_k3")
    config = settings("v2")
    mixer = Causal(SelfAttentionConfig(relative=3, relative_table=table), config)
    module = Sublayers("v2", "mixer", mixer, config)
    parts = {k: f"mixer.{v}" for k, v in {**ATTENTION, "net.rel_pemb.weight": "relative.table"}.items()}
    places = check_sublayer(golden, module, "v2", parts)
    expected = dict(golden.grads)
    if name == "causal":
        table_of_module = module.get_parameter("sublayer.mixer.relative.table")
        expected["net.rel_pemb.weight"] = without_padding_row(table_of_module, expected)
    check_gradients(module, expected, places, GRADIENT_TOLERANCE)


def without_padding_row(table: Tensor, grads: dict[str, Tensor], name: str = "net.rel_pemb.weight") -> Tensor:
    """The golden gradient of a causal table, with our row 1, which theirs takes for padding (no gradient)."""
    expected = grads[name].clone()
    assert table.grad is not None
    assert not expected[1].any()
    assert table.grad[1].any()
    expected[1] = table.grad[1]
    return expected


@pytest.mark.parametrize("order", ["v1", "v2"])
def test_cross_attention(order: Order) -> None:
    """Attention to the encoder, whose padding is hidden; the encoder's output gets its gradient."""
    golden = case(f"res_cross_attn_{order}")
    config = settings(order)
    cross = CrossAttention(config.specs()["decoder"])
    encoded = golden["in/mem"].clone().requires_grad_()
    bias = torch.zeros(golden["in/mask"].unsqueeze(1).shape).masked_fill_(
        golden["in/mask"].unsqueeze(1).bool(), float("-inf")
    )
    module = Sublayers(order, "cross", cross, config)

    class Bound(nn.Module):
        """The cross-attention with its memory."""

        def __init__(self) -> None:
            super().__init__()
            self.cross = cross

        def forward(self, x: Tensor) -> Tensor:
            return cross(x, cross.project(encoded, Context(padding=bias)))

    module.sublayer = Bound()
    parts = {
        "net.query_adaptor.weight": "cross.query.weight",
        "net.kv_adaptor.weight": "cross.key_value.weight",
        "net.outer.weight": "cross.output.weight",
    }
    places = check_sublayer(golden, module, order, parts)
    assert encoded.grad is not None
    assert deviation(encoded.grad, golden["grad/in/mem"]) < GRADIENT_TOLERANCE
    check_gradients(module, golden.grads, places, GRADIENT_TOLERANCE)


@pytest.mark.parametrize(
    ("name", "order", "activation"),
    [("ffn_v1", "v1", "relu"), ("ffn_v2", "v2", "relu"), ("ffn_glu_v1", "v1", "glu")],
)
def test_feed_forward(name: str, order: Order, activation: str) -> None:
    """The feed-forward sub-layer; a GLU halves the inner width."""
    golden = case(name)
    config = settings(order, activation=activation)
    module = Sublayers(order, "feed_forward", config.specs()["decoder"].feed_forward_network(), config)
    parts = {"net.0.weight": "input.weight", "net.0.bias": "input.bias", "net.2.weight": "output.weight"}
    places = check_sublayer(golden, module, order, parts)
    check_gradients(module, golden.grads, places, GRADIENT_TOLERANCE)


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
