"""ReZero, self-dependency units and Runge-Kutta blocks against their authors' code."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import pytest
import torch
from golden_names import (
    FAIRSEQ,
    GRADIENT_TOLERANCE,
    OUTPUT_TOLERANCE,
    SMALL,
    Place,
    Places,
    case,
    check_gradients,
    check_module,
    deviation,
    fairseq,
    load,
    neutron,
)
from torch import Tensor, nn
from whole_models import FairseqModel

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.connections.connection import Sublayer
from deepwire.model.context import Context
from deepwire.model.cross_attention import CrossAttention
from deepwire.model.mixers.self_attention import SelfAttentionConfig

DIM, PAD = 32, 1


def rezero_places(golden: Mapping[str, Tensor]) -> dict[str, Places]:
    """Places of the ReZero model, whose layers are torch's and whose scale is called resweight."""
    fixed = {"embed.weight": "encoder.embed_tokens.weight"}
    renamed = {
        name: fixed.get(name)
        or name.replace("multihead_attn", "encoder_attn").replace("linear1", "fc1").replace("linear2", "fc2")
        for name in golden
    }
    plain = fairseq({new: golden[old] for old, new in renamed.items() if "resweight" not in old}, DIM)
    places = {old: plain[new] for old, new in renamed.items() if new in plain}
    for name in renamed.keys() - places.keys():
        side, _, layer, _ = name.split(".")
        places[name] = (Place(f"{side}.connection.alpha", slice(int(layer), int(layer) + 1)),)
    return places


def ode_places(golden: Mapping[str, Tensor]) -> dict[str, Places]:
    """Places of a Runge-Kutta model: those of a pre-norm one, the combination, and relative positions."""
    fixed = {
        "encoder.gate_linear.weight": "encoder.connection.gate.weight",
        "encoder.gate_linear.bias": "encoder.connection.gate.bias",
        "encoder.alpha": "encoder.connection.weights",
    }
    own = {name: (Place(place),) for name, place in fixed.items() if name in golden}
    for name in golden:
        table = re.fullmatch(r"(\w+)\.layers\.(\d+)\.self_attn\.relative_position_keys", name)
        if table:
            own[name] = (Place(f"{table[1]}.mixers.{table[2]}.relative.table"),)
    rest = {name: value for name, value in golden.items() if name not in own}
    # The history has no norm for the embedding and counts from the first layer.
    return {**fairseq(rest, DIM, first_history_norm=1), **own}


RELATIVE = {"type": "self_attention", "relative": 3, "relative_table": "full"}
DENSE = {"aggregation": {"type": "dlcl", "embedding_norm": "none"}, "mixer": RELATIVE}
RELEASED = {"type": "runge_kutta", "function": "layer"}
ODE: dict[str, tuple[Mapping[str, object], Mapping[str, object]]] = {
    "ode_rk2_gate": (RELEASED, {}),
    "ode_rk2_standard": ({**RELEASED, "combination": "fixed"}, {}),
    "ode_rk2_alpha": ({**RELEASED, "combination": "learned"}, {}),
    "ode_rk3_ascoded": ({**RELEASED, "order": 3, "third_order": "released"}, {}),
    "ode_rk2_gate_dlcl_rpr": (RELEASED, DENSE),
}


@pytest.fixture(params=["rezero", *ODE])
def loaded(request: pytest.FixtureRequest) -> FairseqModel:
    """A golden case, the model with its parameters, and where they lie."""
    golden = case(request.param)
    if request.param == "rezero":
        encoder: dict[str, object] = {"connection": "rezero"}
        decoder = encoder
        places = rezero_places(golden.params)
    else:
        connection, both = ODE[request.param]
        encoder, decoder = {"connection": connection, **both}, {"connection": "pre_norm", **both}
        places = ode_places(golden.params)
    config = ModelConfig.model_validate(
        {**FAIRSEQ, "encoder": {**encoder, "layers": 4}, "decoder": {**decoder, "layers": 3}}
    )
    model = build_model(config, 48, 48, pad_id=PAD)
    own = dict(model.named_parameters())
    # Cases share one file of parameters; a gate is in it that the others do not have.
    unused = {name for name, parts in places.items() if any(part.name not in own for part in parts)}
    assert all(".gate_linear." in name for name in unused), unused
    places = {name: parts for name, parts in places.items() if name not in unused}
    load(model, golden.params, places)
    return FairseqModel(golden, model, places)


def test_outputs_and_gradients(loaded: FairseqModel) -> None:
    """Log-probabilities, both losses and gradients of a whole model."""
    loaded.check_outputs_and_gradients()


def test_stepwise_decoding_equals_the_full_pass(loaded: FairseqModel) -> None:
    """One token at a time gives the golden log-probabilities."""
    loaded.check_steps()


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


def sdu_places(golden: Mapping[str, Tensor]) -> dict[str, Places]:
    """Places of a whole model with units: Neutron's, and one unit for each call."""
    plain = neutron({name: value for name, value in golden.items() if ".sdu." not in name}, post_norm=False)
    for name in golden.keys() - plain.keys():
        # The unit of a sub-layer lies where its norm does.
        norm = plain[name.replace(".sdu.0.", ".normer.")][0].name
        plain[name] = (Place(norm.replace(".norms.", ".units.")),)
    return plain


def test_sdu_model() -> None:
    """A whole model: log-probabilities, loss, gradients, and one token at a time."""
    golden = case("nmt_sdu")
    stack = {"layers": 2, "connection": "sdu"}
    config = ModelConfig.model_validate(
        {**SMALL, "encoder": stack, "decoder": stack, "embeddings": {"tie": "output"}}
    )
    model = build_model(config, 40, 40)
    places = sdu_places(golden.params)
    load(model, golden.params, places)
    source, target = golden["in/src"], golden["in/tgt_in"]
    real = golden["in/tgt_out"] != 0
    assert deviation(model.log_probs(source, target)[real], golden["out/logp"][real]) < OUTPUT_TOLERANCE
    loss = model.loss(source, target, golden["in/tgt_out"], 0.1)
    assert loss.smoothed.item() == pytest.approx(golden["out/loss_fast"].item(), abs=5e-5)
    loss.smoothed.backward()
    check_gradients(model, golden.grads, places, GRADIENT_TOLERANCE)
    with torch.no_grad():
        state = model.start(source)
        for position in range(8):
            found, state = model.step(target[:, position], state)
            here = real[:, position]
            assert deviation(found[here], golden["out/logp"][:, position][here]) < OUTPUT_TOLERANCE
