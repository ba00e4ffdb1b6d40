"""Hierarchical aggregation against Neutron, and dense residual connections against the authors of DLCL."""

from __future__ import annotations

import re
from collections.abc import Mapping

import pytest
import torch
from golden_names import (
    FAIRSEQ,
    GRADIENT_TOLERANCE,
    OUTPUT_TOLERANCE,
    Place,
    Places,
    case,
    check_gradients,
    deviation,
    fairseq,
    load,
    neutron,
)
from whole_models import FairseqModel, NeutronModel

from deepwire.model.aggregations.hierarchical import Combiner
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.layers import LayerNorm

COMBINER = {
    "net.0.weight": "input.weight",
    "net.0.bias": "input.bias",
    "net.2.weight": "output.weight",
    "net.2.bias": "output.bias",
    "out_normer.weight": "norm.weight",
    "out_normer.bias": "norm.bias",
}
EOS, PAD = 2, 1


@pytest.mark.parametrize(
    ("name", "combiner"),
    [
        ("agg_combiner2_sigmoid", Combiner(2, 32, 64, LayerNorm(32, 1e-6))),
        ("agg_combiner3_gelu_bias", Combiner(3, 32, 64, LayerNorm(32, 1e-6), activation="gelu", bias="both")),
    ],
)
def test_combiner(name: str, combiner: Combiner) -> None:
    """The merged outputs of two or three layers; gradients of inputs and parameters."""
    golden = case(name)
    places = {key: (Place(COMBINER[key]),) for key in golden.params}
    load(combiner, golden.params, places)
    inputs = [tensor.clone().requires_grad_() for _, tensor in sorted(golden.group("in/x").items())]
    merged = combiner(inputs, Context())
    assert deviation(merged, golden["out/y"]) < OUTPUT_TOLERANCE
    (merged * golden["cot/R"]).sum().backward()
    for number, x in enumerate(inputs):
        assert x.grad is not None
        assert deviation(x.grad, golden[f"grad/in/x{number}"]) < GRADIENT_TOLERANCE
    check_gradients(combiner, golden.grads, places, GRADIENT_TOLERANCE)


BLOCKS = re.compile(r"(enc|dec)\.nets\.(\d+)\.(nets\.(\d+)|combiner)\.(.+)")


def hierarchical_places(golden: Mapping[str, torch.Tensor], block: int) -> dict[str, Places]:
    """Places of a whole Neutron model with blocks, whose layers are counted anew in every block."""
    plain: dict[str, str] = {}
    places: dict[str, Places] = {}
    for name in golden:
        found = BLOCKS.fullmatch(name)
        if found is None:
            plain[name] = name
        elif found[4] is None:
            side = {"enc": "encoder", "dec": "decoder"}[found[1]]
            leaf = COMBINER[found[5]]
            places[name] = (Place(f"{side}.aggregation.combiners.{found[2]}.{leaf}"),)
        else:
            plain[name] = f"{found[1]}.nets.{int(found[2]) * block + int(found[4])}.{found[5]}"
    inside = neutron({flat: golden[name] for name, flat in plain.items()}, post_norm=False)
    return places | {name: inside[flat] for name, flat in plain.items()}


@pytest.fixture
def hierarchical() -> NeutronModel:
    """Neutron's whole model: blocks of two layers in its default order of norm and residual."""
    golden = case("nmt_hier")
    stack = {
        "layers": 4,
        "connection": {"type": "pre_norm", "residual": "normalised", "final_norm": False},
        "aggregation": {"type": "hierarchical", "block": 2},
    }
    config = ModelConfig.model_validate(
        {
            "d_model": 32,
            "heads": 4,
            "feed_forward": 64,
            "dropout": 0.0,
            "embeddings": {"tie": "output"},
            "encoder": stack,
            "decoder": stack,
        }
    )
    model = build_model(config, 40, 40)
    places = hierarchical_places(golden.params, 2)
    load(model, golden.params, places)
    return NeutronModel(golden, model, places)


def test_hierarchical_model(hierarchical: NeutronModel) -> None:
    """Log-probabilities, smoothed loss and every gradient."""
    hierarchical.check_outputs_and_gradients()


def test_hierarchical_model_step_by_step(hierarchical: NeutronModel) -> None:
    """One token at a time, where Neutron's own incremental decoding fails; then its greedy translation."""
    hierarchical.check_steps()
    hierarchical.check_greedy()


def dense_model(name: str, connection: str, aggregation: Mapping[str, object]) -> FairseqModel:
    """A whole fairseq model of 4 and 3 layers with an aggregation; what has no place is not learned here."""
    golden = case(name)
    stack = {"layers": 4, "connection": connection, "aggregation": aggregation}
    config = ModelConfig.model_validate(
        {
            **FAIRSEQ,
            "encoder": stack,
            "decoder": {**stack, "layers": 3},
        }
    )
    model = build_model(config, 48, 48, pad_id=PAD)
    places = fairseq(golden.params, 32, first_history_norm=1 if name.startswith("hist") else 0)
    own = dict(model.named_parameters())
    places = {key: parts for key, parts in places.items() if all(part.name in own for part in parts)}
    load(model, golden.params, places)
    return FairseqModel(golden, model, places)


@pytest.mark.parametrize(
    ("name", "connection"),
    [
        ("hist_dense_avg_prenorm", "pre_norm"),
        ("hist_dense_avg_postnorm", "post_norm"),
        ("dlcl_prenorm_fixed_avg", "pre_norm"),
    ],
)
def test_dense_average(name: str, connection: str) -> None:
    """The dense history of the ODE Transformer's code, and DLCL with weights fixed to 1/N: one model here."""
    loaded = dense_model(name, connection, {"type": "dense", "embedding_norm": "none"})
    loaded.check_outputs_and_gradients()
    loaded.check_steps()


@pytest.mark.parametrize("connection", ["pre_norm", "post_norm"])
@pytest.mark.parametrize("weights", ["average", "sum"])
def test_fixed_weights_equal_learned_ones_of_that_value(connection: str, weights: str) -> None:
    """Golden DLCL models, their weights set to 1/N or 1: fixing these weights gives the same numbers."""
    name = f"dlcl_{connection.replace('_', '')}"
    loaded = dense_model(name, connection, {"type": "dlcl", "embedding_norm": "none"})
    learned, batch = loaded.model, loaded.batch()
    with torch.no_grad():
        for stack in (learned.encoder, learned.decoder):
            mix = stack.get_parameter("aggregation.mix")
            row = torch.arange(1.0, mix.size(0) + 1).view(-1, 1, 1)
            mix.copy_((1 / row if weights == "average" else torch.ones_like(row)).expand_as(mix))
    initial = "one" if weights == "sum" else "average"
    for aggregation in (
        {"type": "dense", "weights": weights, "embedding_norm": "none"},
        {"type": "dlcl", "learned": False, "initial": initial, "embedding_norm": "none"},
    ):
        fixed = dense_model(name, connection, aggregation).model
        with torch.no_grad():
            one, other = (each.log_probs(batch.source, batch.target) for each in (fixed, learned))
        assert deviation(one, other) < OUTPUT_TOLERANCE
