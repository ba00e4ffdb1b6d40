"""Recurrent mixers against Neutron: single cells and sequences."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from golden_names import (
    GRADIENT_TOLERANCE,
    OUTPUT_TOLERANCE,
    case,
    check_gradients,
    check_module,
    deviation,
    load,
    places_of,
    sequence_places,
)

from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.mixers.recurrent import ATRConfig, GRUConfig, LNLSTMConfig, RecurrentMixer

SPEC = replace(
    ModelConfig.model_validate({"dropout": 0.0}).specs()["decoder"], mixer_width=32, dim=32, norm_eps=1e-6
)

CELLS = {
    "lnlstm_cell_tanh": LNLSTMConfig(gate_norm="joint").cell(SPEC),
    "lnlstm_cell_gelu_bias_rect": LNLSTMConfig(gate_norm="joint", activation="gelu", bias=True).cell(
        replace(SPEC, dim=24)
    ),
    "atr_cell": ATRConfig(carried="product").cell(SPEC),
    "gru_cell": GRUConfig().cell(SPEC),
}


@pytest.mark.parametrize("name", CELLS)
def test_cell(name: str) -> None:
    """One step: the new state, and the gradients of input, state and parameters."""
    golden, cell = case(name), CELLS[name]
    places = places_of(type(cell).__name__, golden.params)
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
    "lnlstm_seq": LNLSTMConfig(gate_norm="joint").cell(SPEC),
    "atr_seq": ATRConfig(carried="product").cell(SPEC),
}


@pytest.mark.parametrize("name", SEQUENCES)
def test_sequence(name: str) -> None:
    """A whole sequence from the learned initial state, its gradients, and the same step by step."""
    golden, mixer = case(name), RecurrentMixer(SEQUENCES[name])
    places = sequence_places(type(mixer.cell).__name__, golden.params)
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
