"""Recurrent mixers and the RNMT+ decoder against Neutron: single cells, sequences and whole models."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from golden_names import (
    GRADIENT_TOLERANCE,
    OUTPUT_TOLERANCE,
    Place,
    Places,
    case,
    check_gradients,
    check_module,
    deviation,
    load,
    neutron,
)
from torch import Tensor
from whole_models import NeutronModel

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.mixers.recurrent import ATRCell, Cell, GRUCell, LNLSTMCell, RecurrentMixer
from deepwire.model.translation_model import TranslationModel

EPS, EOS = 1e-6, 2
Named = dict[str, Places]
PARTS: Mapping[type[Cell], Mapping[str, str]] = {
    LNLSTMCell: {"trans": "linear", "normer": "norm"},
    ATRCell: {"t1": "input", "t2": "recurrent"},
    GRUCell: {
        "trans": "gates",
        "transi": "input",
        "transh": "recurrent",
        "normer1": "gate_norm",
        "normer2": "norm",
    },
}


def places_of(kind: type[Cell], golden: Mapping[str, Tensor], ours: str = "", theirs: str = "") -> Named:
    """Places of a cell's parameters, whose names begin with `theirs` there and `ours` here."""
    places: Named = {}
    for name in golden:
        part, leaf = name.removeprefix(theirs).rsplit(".", 1)
        places[name] = (Place(f"{ours}{PARTS[kind][part]}.{leaf}"),)
    return places


def sequence_places(
    kind: type[Cell], golden: Mapping[str, Tensor], ours: str = "", theirs: str = ""
) -> Named:
    """Places of a cell's parameters and of the learned initial state."""
    initial = {f"{theirs}init_hx": slice(0, 1), f"{theirs}init_cx": slice(1, 2)}
    inner = {name: tensor for name, tensor in golden.items() if name not in initial}
    places = places_of(kind, inner, f"{ours}cell.", f"{theirs}net.")
    return places | {name: (Place(f"{ours}initial", initial[name]),) for name in golden if name in initial}


CELLS = {
    "lnlstm_cell_tanh": LNLSTMCell(32, 32, eps=EPS, gate_norm="joint"),
    "lnlstm_cell_gelu_bias_rect": LNLSTMCell(
        32, 24, eps=EPS, gate_norm="joint", activation="gelu", bias=True
    ),
    "atr_cell": ATRCell(32, 32, carried="product"),
    "gru_cell": GRUCell(32, 32, eps=EPS),
}


@pytest.mark.parametrize("name", CELLS)
def test_cell(name: str) -> None:
    """One step: the new state, and the gradients of input, state and parameters."""
    golden, cell = case(name), CELLS[name]
    places = places_of(type(cell), golden.params)
    load(cell, golden.params, places)
    leaves = [golden[f"in/{leaf}"].clone().requires_grad_() for leaf in "xhc"[: 1 + cell.leaves]]
    input_map, recurrent = cell.linear_maps()
    found = cell(input_map.apply(leaves[0]), tuple(leaves[1:]), recurrent, None, Context())
    total = torch.zeros(())
    for number, output in enumerate(found):
        assert deviation(output, golden[f"out/{number}"]) < OUTPUT_TOLERANCE
        total = total + (output * golden[f"cot/{number}"]).sum()
    total.backward()
    for leaf, name_of_leaf in zip(leaves, "xhc", strict=False):
        assert leaf.grad is not None
        assert deviation(leaf.grad, golden[f"grad/in/{name_of_leaf}"]) < GRADIENT_TOLERANCE
    check_gradients(cell, golden.grads, places, GRADIENT_TOLERANCE)


SEQUENCES = {
    "lnlstm_seq": LNLSTMCell(32, 32, eps=EPS, gate_norm="joint"),
    "atr_seq": ATRCell(32, 32, carried="product"),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequence(name: str) -> None:
    """A whole sequence from the learned initial state, its gradients, and the same step by step."""
    golden, mixer = case(name), RecurrentMixer(SEQUENCES[name])
    places = sequence_places(type(mixer.cell), golden.params)
    load(mixer, golden.params, places)
    x = check_module(golden, lambda x: mixer(x, Context()))
    check_gradients(mixer, golden.grads, places, GRADIENT_TOLERANCE)
    with torch.no_grad():
        state = mixer.init_state(x.size(0), x)
        for position in range(x.size(1)):
            step, state = mixer.step(
                x[:, position : position + 1], state, Context(index=CacheIndex(len(x), position=position))
            )
            assert deviation(step, golden["step/y"][:, position : position + 1]) < OUTPUT_TOLERANCE


SMALL = {"d_model": 32, "heads": 4, "feed_forward": 64, "dropout": 0.0}
NEUTRON = {"type": "pre_norm", "residual": "normalised"}
ATR = {
    "tie": "output",
    "decoder": {
        "mixer": {"type": "atr", "carried": "product"},
        "connection": {**NEUTRON, "mixer_norm": False},
    },
}
RNMT = {"tie": "none", "decoder": {"mixer": {"type": "ln_lstm", "gate_norm": "joint"}, "connection": "rnmt"}}


def build(wanted: Mapping[str, Any]) -> TranslationModel:
    """A model of 2 + 2 layers with Neutron's encoder; the target embedding is unscaled, without positions."""
    stacks = {
        "encoder": {"layers": 2, "connection": NEUTRON},
        "decoder": {"layers": 2, "positions": "none", "scale_embedding": False, **wanted["decoder"]},
    }
    config = ModelConfig.model_validate({**SMALL, "embeddings": {"tie": wanted["tie"]}, **stacks})
    return build_model(config, 40, 40)


def atr_places(golden: Mapping[str, Tensor]) -> Named:
    """ATR in the place of self-attention; the rest is an ordinary Neutron model."""
    places: Named = {}
    for layer in range(2):
        prefix = f"dec.nets.{layer}.net."
        own = {name: tensor for name, tensor in golden.items() if name.startswith(prefix)}
        places |= sequence_places(ATRCell, own, f"decoder.mixers.{layer}.", prefix)
    return places | neutron(
        {name: tensor for name, tensor in golden.items() if name not in places}, post_norm=False
    )


def rnmt_places(golden: Mapping[str, Tensor]) -> Named:
    """The RNMT+ decoder on Neutron's encoder."""
    places: Named = {}
    for layer, prefix in enumerate(("dec.flayer.", "dec.nets.0.")):
        own = {name: tensor for name, tensor in golden.items() if name.startswith(prefix)}
        places |= sequence_places(LNLSTMCell, own, f"decoder.mixers.{layer}.", prefix)
    fixed = {
        "dec.wemb.weight": "target_embedding.table.weight",
        "dec.classifier.weight": "head.table.weight",
        "dec.classifier.bias": "head.bias",
        "dec.out_normer.weight": "decoder.connection.norm.weight",
        "dec.out_normer.bias": "decoder.connection.norm.bias",
        "dec.attn.query_adaptor.weight": "decoder.crosses.0.query.weight",
        "dec.attn.kv_adaptor.weight": "decoder.crosses.0.key_value.weight",
        "dec.attn.outer.weight": "decoder.crosses.0.output.weight",
        "dec.projector.weight": "decoder.crosses.0.projection.weight",
    }
    places |= {name: (Place(ours),) for name, ours in fixed.items()}
    return places | neutron(
        {name: tensor for name, tensor in golden.items() if name not in places}, post_norm=False
    )


MODELS = {"nmt_atr_fn": (ATR, atr_places), "nmt_rnmt": (RNMT, rnmt_places)}


@pytest.fixture(params=list(MODELS))
def loaded(request: pytest.FixtureRequest) -> NeutronModel:
    """A golden case, the model with its parameters, and where they lie."""
    wanted, find = MODELS[request.param]
    golden, model = case(request.param), build(wanted)
    places = find(golden.params)
    load(model, golden.params, places)
    return NeutronModel(golden, model, places)


def test_model_outputs_and_gradients(loaded: NeutronModel) -> None:
    """Log-probabilities, smoothed loss and every gradient of a whole model."""
    loaded.check_outputs_and_gradients()


def test_stepwise_decoding_equals_the_full_pass(loaded: NeutronModel) -> None:
    """One token at a time gives the golden log-probabilities."""
    loaded.check_steps()


def test_greedy_choice(loaded: NeutronModel) -> None:
    """Greedy decoding writes what Neutron's wrote."""
    loaded.check_greedy()


@pytest.mark.parametrize(("name", "penalty"), [("beam4", 0.0), ("beam4_lp06", 0.6)])
def test_scores_of_beam_hypotheses(name: str, penalty: float) -> None:
    """The hypotheses of Neutron's beam search with ATR have the scores that it gave them."""
    golden, model = case("nmt_atr_fn"), build(ATR)
    places = atr_places(golden.params)
    load(model, golden.params, places)
    NeutronModel(golden, model, places).check_beam_scores(name, penalty)
