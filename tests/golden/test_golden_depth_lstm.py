"""Depth-wise LSTM and RNN against an independent implementation (Xu et al. 2024, Eq. 1 to 8)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Literal

import pytest
import torch
from golden_names import (
    GRADIENT_TOLERANCE,
    OUTPUT_TOLERANCE,
    Case,
    Place,
    case,
    check_gradients,
    depth_lstm,
    deviation,
    load,
)
from torch import Tensor

from deepwire.model.config import ModelConfig
from deepwire.model.connections.connection import Connection, Sublayer
from deepwire.model.context import Context

DIM = 32
HIDDEN = {"h1": "one_layer", "h2glu": "glu", "h2gelu": "gelu"}


def build(
    case: Case, connection: Mapping[str, object], layers: int, kinds: tuple[Sublayer, ...]
) -> tuple[Connection, dict[str, tuple[Place, ...]]]:
    """A connection with the golden parameters, and where they lie."""
    side: Literal["encoder", "decoder"] = "encoder" if kinds == ("mixer",) else "decoder"
    settings = {"layers": layers, "connection": {"bias": True, "final_norm": "none", **connection}}
    config = ModelConfig.model_validate(
        {"d_model": DIM, "heads": 4, "feed_forward": 48, "dropout": 0.0, side: settings}
    )
    built = config.stack(side).connection.build(replace(config.specs()[side], sublayers=kinds))
    places = depth_lstm(case.params, DIM, 2 if connection.get("merge") == "two" else 1)
    # The norms in front of the attention are no part of these cases: their outputs are given.
    built.norms = torch.nn.ModuleList()
    load(built, case.params, places)
    return built, places


def assert_as_recorded(
    case: Case,
    outputs: Mapping[str, Tensor],
    inputs: Mapping[str, Tensor],
    connection: Connection,
    places: Mapping[str, tuple[Place, ...]],
) -> None:
    """Outputs, and the gradients of their weighted sum, are those of the independent implementation."""
    expected = case.group("out/")
    assert set(outputs) == set(expected)
    for name, output in outputs.items():
        assert deviation(output, expected[name]) < OUTPUT_TOLERANCE, name
    total = sum((outputs[name] * case[f"cot/{name}"]).sum() for name in outputs)
    assert isinstance(total, Tensor)
    total.backward()
    for name, tensor in inputs.items():
        assert tensor.grad is not None
        assert deviation(tensor.grad, case[f"grad/in/{name}"]) < GRADIENT_TOLERANCE, name
    check_gradients(connection, case.grads, places, GRADIENT_TOLERANCE)


def leaves(case: Case) -> dict[str, Tensor]:
    """The inputs, ready for gradients."""
    return {name: tensor.clone().requires_grad_() for name, tensor in case.group("in/").items()}


@pytest.mark.parametrize("name", ["h1", "h1_jointln", "h2glu", "h2gelu"])
def test_cell(name: str) -> None:
    """One unit: its output, its cell, and all gradients."""
    golden = case(f"dwlstm_cell_{name}")
    hidden, _, joint = name.partition("_")
    config = {
        "type": "depth_lstm",
        "hidden": HIDDEN[hidden],
        "gate_norm": "joint" if joint else "separate",
    }
    connection, places = build(golden, config, 1, ("mixer",))
    # A cell's parameters have no number: `gate.W_i`.
    inputs = leaves(golden)
    state = (inputs["O_prev"], inputs["C_prev"])
    output, cell = connection.write(state, 0, state[0], inputs["x"], Context())
    assert_as_recorded(golden, {"Output": output, "Cell": cell}, inputs, connection, places)


@pytest.mark.parametrize(
    "name",
    ["h1_share_gate", "h2glu_share_gate", "h2glu_share_none", "h2gelu_share_all"],
)
def test_encoder_stack(name: str) -> None:
    """Three layers with every way to share, and every hidden state."""
    hidden, _, share = name.partition("_share_")
    golden = case(f"dwlstm_enc3_{name}")
    config = {
        "type": "depth_lstm",
        "hidden": HIDDEN[hidden],
        "share": {"gate": "gates"}.get(share, share),
    }
    connection, places = build(golden, config, 3, ("mixer",))
    inputs = leaves(golden)
    state = connection.start(inputs["E"], Context())
    outputs: dict[str, Tensor] = {}
    for layer in range(3):
        state = connection.write(state, layer, state[0], inputs[f"A{layer + 1}"], Context())
        outputs |= {f"Output_{layer + 1}": state[0], f"Cell_{layer + 1}": state[1]}
    assert_as_recorded(golden, outputs, inputs, connection, places)


def test_depth_rnn_stack() -> None:
    """The depth-wise RNN: hidden states only."""
    golden = case("dwrnn_enc3_h2glu")
    connection, places = build(golden, {"type": "depth_rnn", "hidden": "glu"}, 3, ("mixer",))
    inputs = leaves(golden)
    state = connection.start(inputs["E"], Context())
    outputs: dict[str, Tensor] = {}
    for layer in range(3):
        state = connection.write(state, layer, state[0], inputs[f"A{layer + 1}"], Context())
        outputs[f"Output_{layer + 1}"] = state[0]
    assert_as_recorded(golden, outputs, inputs, connection, places)


@pytest.mark.parametrize("merge", ["add", "two"])
def test_decoder_stack(merge: str) -> None:
    """Three decoder layers whose attention outputs are added, or read by two units."""
    golden = case(f"dwlstm_dec3_{merge}")
    config = {"type": "depth_lstm", "hidden": "glu", "share": "gates", "merge": merge}
    connection, places = build(golden, config, 3, ("mixer", "cross"))
    inputs = leaves(golden)
    state = connection.start(inputs["E"], Context())
    outputs: dict[str, Tensor] = {}
    for layer in range(3):
        state = connection.write(state, 2 * layer, state[0], inputs[f"S{layer + 1}"], Context())
        if merge == "two":
            outputs[f"OutputA_{layer + 1}"] = state[0]
        state = connection.write(state, 2 * layer + 1, state[0], inputs[f"X{layer + 1}"], Context())
        outputs |= {f"Output_{layer + 1}": state[0], f"Cell_{layer + 1}": state[1]}
    assert_as_recorded(golden, outputs, inputs, connection, places)
