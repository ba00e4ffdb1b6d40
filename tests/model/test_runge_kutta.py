"""Runge-Kutta blocks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from math import factorial
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor, nn

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.connections.connection import Connection, Sublayer
from deepwire.model.context import Context
from deepwire.model.layers import NoNorm

SMALL: dict[str, object] = {"d_model": 16, "heads": 4, "feed_forward": 24, "dropout": 0.0}
ENCODER: tuple[Sublayer, ...] = ("mixer", "feed_forward")
Options = dict[str, object]


def config_of(connection: object, decoder: object = "pre_norm", **model: object) -> ModelConfig:
    return ModelConfig.model_validate(
        {
            **SMALL,
            "encoder": {"layers": 2, "connection": connection},
            "decoder": {"layers": 2, "connection": decoder},
            **model,
        }
    )


def connection_of(options: Options, kinds: tuple[Sublayer, ...] = ENCODER) -> Connection:
    config = config_of({"type": "runge_kutta", **options})
    return config.encoder.connection.build(replace(config.specs()["encoder"], sublayers=kinds))


def run(connection: Connection, x: Tensor, sublayers: Callable[[Sublayer, int], nn.Module]) -> Tensor:
    state = connection.start(x, Context())
    for index, call in enumerate(connection.calls):
        read = connection.read(state, index, Context())
        state = connection.write(state, index, read, sublayers(call.kind, call.layer)(read), Context())
        if call.closes:
            assert len(state) == 1
    return state[0]


class Scale(nn.Module):
    """F(x) = h x: a layer whose differential equation has the solution exp(h t)."""

    def __init__(self, size: float) -> None:
        super().__init__()
        self.size = size

    def forward(self, x: Tensor) -> Tensor:
        return self.size * x


@given(size=st.floats(-1, 1), order=st.sampled_from([2, 3, 4]))
@settings(max_examples=25, deadline=None)
def test_the_exponential_to_the_order_of_the_method(size: float, order: int) -> None:
    """One layer without norms, F(x) = h x, gives the Taylor series of exp(h) up to the order."""
    connection = connection_of({"order": order, "combination": "fixed"}, ("feed_forward",))
    connection.norms = nn.ModuleList(NoNorm() for _ in connection.norms)
    x = torch.ones(1, 1, 16, dtype=torch.float64)
    found = run(connection, x, lambda kind, layer: Scale(size))
    series = sum(size**power / factorial(power) for power in range(order + 1))
    assert torch.allclose(found, x * series**2)  # two layers


def block(
    connection: Connection, layer: int, parts: dict[tuple[Sublayer, int], nn.Module]
) -> Callable[[Tensor], Tensor]:
    """The pre-norm layer with its residual connections, L."""

    def evaluate(x: Tensor) -> Tensor:
        for number, kind in enumerate(ENCODER):
            x = x + parts[kind, layer](connection.norms[layer * 2 + number](x))
        return x

    return evaluate


@pytest.mark.parametrize("function", ["increment", "layer"])
@pytest.mark.parametrize(
    "options",
    [
        {"combination": "gate"},
        {"combination": "fixed"},
        {"combination": "learned"},
        {"combination": "learned", "weights": "vector"},
        {"order": 3},
        {"order": 3, "third_order": "released"},
        {"order": 4},
        {"order": 4, "combination": "learned", "initial": "fixed"},
    ],
    ids=str,
)
def test_two_layers_written_out(options: Options, function: str) -> None:
    """Every method and combination, F being the layer with its identity or without."""
    torch.manual_seed(0)
    connection = connection_of({"function": function, **options})
    for parameter in connection.parameters():
        nn.init.normal_(parameter, 1.0, 0.2)
    parts: dict[tuple[Sublayer, int], nn.Module] = {
        (kind, layer): nn.Linear(16, 16) for kind in ENCODER for layer in range(2)
    }
    y = x = torch.randn(2, 3, 16)
    for layer in range(2):
        whole = block(connection, layer, parts)

        def evaluate(z: Tensor, whole: Callable[[Tensor], Tensor] = whole) -> Tensor:
            return whole(z) if function == "layer" else whole(z) - z

        y = written_out(connection, options, y, evaluate)
    found = run(connection, x, lambda kind, layer: parts[kind, layer])
    assert torch.allclose(found, y, atol=2e-4, rtol=1e-5)


def written_out(connection: Any, options: Options, y: Tensor, f: Callable[[Tensor], Tensor]) -> Tensor:
    """One block by the formulas of the paper and of the released code."""
    order, combination = options.get("order", 2), options.get("combination", "fixed")
    if order == 2:
        k1 = f(y)
        k2 = f(y + k1)
        if combination == "gate":
            gate = torch.sigmoid(connection.gate(torch.cat((k1, k2), -1)))
            return y + gate * k1 + (1 - gate) * k2
        if combination == "learned":
            return y + connection.weights[0] * k1 + connection.weights[1] * k2
        return y + (k1 + k2) / 2
    k1 = f(y)
    k2 = f(y + k1 / 2)
    if order == 3:
        k3 = f(y + k2) if "third_order" in options else f(y - k1 + 2 * k2)
        return y + (k1 + 4 * k2 + k3) / 6
    k3 = f(y + k2 / 2)
    k4 = f(y + k3)
    if combination == "learned":
        return y + sum(weight * k for weight, k in zip(connection.weights, (k1, k2, k3, k4), strict=True))
    return y + (k1 + 2 * k2 + 2 * k3 + k4) / 6


@pytest.mark.parametrize(
    ("options", "more"),
    [
        ({}, 1025),
        ({"combination": "fixed"}, 0),
        ({"combination": "learned"}, 2),
        ({"combination": "learned", "weights": "vector"}, 1024),
        ({"order": 4}, 0),
        ({"order": 4, "combination": "learned"}, 4),
        ({"order": 4, "final_norm": False}, -1024),
    ],
    ids=str,
)
def test_parameters(options: Options, more: int) -> None:
    """What the combination adds to a pre-norm encoder, once for the whole stack."""

    def count(connection: object) -> int:
        with torch.device("meta"):
            model = build_model(config_of(connection, d_model=512, heads=8), 40, 40)
            return sum(parameter.numel() for parameter in model.stack("encoder").parameters())

    assert count({"type": "runge_kutta", **options}) - count("pre_norm") == more
