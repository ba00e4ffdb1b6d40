"""Starting values that papers name, of what no initialisation sets."""

from __future__ import annotations

import math

import pytest
import torch

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.stack import Stack

WIDTH, HEADS = 256, 4
DYNAMIC = {"width_scale": 0.01, "depth_scale": 0.01, "read_map": 0, "mix_map": 0, "write_map": 0}
MANIFOLD = [-1.0, 1.0, -1.0, 1.0, 0.0, -8.0]  # reading and writing of lane 2; the identity, the exchange
STARTS = [
    ("connection", "hyper", "weights.1", {**DYNAMIC, "read": [0, 1], "mix": [[1, 0], [0, 1]], "write": 1}),
    ("connection", "frac", "weights.1", {"scale": 0.01, "read_map": 0, "mix_map": 0}),
    ("connection", "frac", "weights.1", {"read": [[1, 0], [0, 1]], "mix": [[1, 0, 1], [0, 1, 1]]}),
    ("connection", "mhc", "weights.1", {"scale": 0.01, "projection": 0}),
    ("connection", "mhc", "weights.1", {"base": [*MANIFOLD, -8.0, 0.0]}),
    ("connection", "mhc_lite", "weights.1", {"scale": 0.01, "projection": 0, "gain": 1, "base": MANIFOLD}),
    ("connection", "attn_res", "queries.1", {"query": 0, "gain": 1}),
    ("connection", {"type": "attn_res", "bias": 3.0}, "queries.1", {"bias": 3.0}),
    ("connection", "delta", "biases", {"1": 0}),
    ("connection", "rezero", "", {"alpha": 0}),
    ("connection", "admin", "scales", {"0": 1, "1": 1}),
    ("connection", "layer_scale", "scales", {"1": 0.1}),
    ("connection", {"type": "runge_kutta", "combination": "learned"}, "", {"weights": 1}),
    ("connection", {"type": "laurel", "rank": 4}, "up", {"1": 0}),
    ("aggregation", "dlcl", "", {"mix": [[[1], [0], [0]], [[0.5], [0.5], [0]], [[1 / 3], [1 / 3], [1 / 3]]]}),
    ("aggregation", "dwa", "mix", {"1": [0, 0, 1]}),
    ("aggregation", "mudd", "makers.1", {"output": 0, "static": [[0, 0, 1]]}),
    ("mixer", {"type": "value_residual", "form": "learned"}, "below", {"share": 0.5}),
    ("mixer", "mhplstm", "cells", {"initial": 0}),
    ("mixer", "ln_lstm", "ahead", {"initial": 0}),
    ("mixer", "gla", "ahead.decay.1", {"bias": 0}),
    ("fusion", "transparent", "", {"weights": 0}),
    ("fusion", {"type": "groups", "size": 1}, "", {"gates": 0}),
]


def encoder(socket: str, choice: object) -> Stack:
    """Two layers with a choice, as training begins with them."""
    settings = {
        "d_model": WIDTH,
        "heads": HEADS,
        "encoder": {"layers": 2, socket: choice},
        "decoder": {"layers": 2},
    }
    torch.manual_seed(1)
    return build_model(ModelConfig.model_validate(settings), 9, 9).stack("encoder")


@pytest.mark.parametrize(("socket", "choice", "place", "values"), STARTS, ids=str)
def test_starting_values_of_papers(
    socket: str, choice: object, place: str, values: dict[str, object]
) -> None:
    stack = encoder(socket, choice)
    module = stack.get_submodule("mixers.1" if socket == "mixer" else socket).get_submodule(place)
    for name, value in values.items():
        found = module.get_parameter(name)
        assert torch.allclose(found, torch.tensor(value, dtype=found.dtype).expand_as(found)), name


def test_maps_of_mudd_begin_with_a_variance_of_1_over_d() -> None:
    for maker in encoder("aggregation", "mudd").aggregation.makers:
        assert maker.input.std().item() == pytest.approx(WIDTH**-0.5, rel=0.15)
        assert maker.input.abs().max().item() > 2 * WIDTH**-0.5  # normal, not uniform


def test_routers_of_lime_begin_with_the_own_layer_and_a_bound() -> None:
    """Uniform in +-sqrt(3 / (l H)) for layers below, l from 1."""
    older, own = encoder("mixer", "lime").mixers[1].below.router.split(HEADS, 1)
    assert torch.equal(own, torch.eye(HEADS))
    bound = math.sqrt(3 / (2 * HEADS))
    assert 0.7 * bound < older.abs().max().item() <= bound
