"""Self-dependency units."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.connections.connection import Connection
from deepwire.model.context import Context

SMALL: dict[str, object] = {"d_model": 16, "heads": 4, "feed_forward": 24, "dropout": 0.0}


def config_of(connection: object, layers: int = 2, **model: object) -> ModelConfig:
    stack = {"layers": layers, "connection": connection}
    return ModelConfig.model_validate({**SMALL, "encoder": stack, "decoder": stack, **model})


def connection_of(settings: dict[str, object]) -> Connection:
    config = config_of({"type": "sdu", **settings})
    connection = config.encoder.connection.build(config.specs()["encoder"])
    torch.manual_seed(0)
    for parameter in connection.parameters():
        nn.init.normal_(parameter)
    return connection


def parameters(connection: object, layers: int = 6) -> int:
    """Parameters of a Base model in the sizes of Xu et al. 2024, without memory for them."""
    config = config_of(connection, layers, d_model=512, heads=8, feed_forward=2048)
    with torch.device("meta"):
        return sum(parameter.numel() for parameter in build_model(config, 35_627, 35_627).parameters())


def written_out(
    form: str, gate: str, residual: Tensor, read: Tensor, output: Tensor, unit: nn.Linear
) -> Tensor:
    """The papers' formulas, with the unit's matrix cut in two."""
    value = functional.linear(read, unit.weight[:16], unit.bias[:16])
    transform = functional.linear(read, unit.weight[16:], unit.bias[16:])
    transform = torch.sigmoid(transform) if gate == "sigmoid" else torch.tanh(transform)
    if form == "add":
        return residual + output + transform * value
    if form == "highway":
        return (1 - transform) * residual + transform * value + output
    return residual + transform * value + (1 - transform) * output


@pytest.mark.parametrize("residual", ["normalised", "input"])
@pytest.mark.parametrize(
    ("form", "gate"), [("add", "sigmoid"), ("add", "tanh"), ("highway", "sigmoid"), ("gated", "sigmoid")]
)
def test_two_layers_written_out(form: str, gate: str, residual: str) -> None:
    """Every form, in both orders of norm and residual."""
    connection: Any = connection_of({"form": form, "gate": gate, "residual": residual})
    sublayers = [nn.Linear(16, 16) for _ in range(4)]
    x = torch.randn(2, 3, 16)
    state, expected = connection.start(x, Context()), x
    for index, sublayer in enumerate(sublayers):
        read = connection.read(state, index, Context())
        state = connection.write(state, index, read, sublayer(read), Context())
        norm = connection.norms[index]
        normal = functional.layer_norm(expected, (16,), norm.weight, norm.bias, norm.eps)
        expected = written_out(
            form,
            gate,
            normal if residual == "normalised" else expected,
            normal,
            sublayer(normal),
            connection.units[index],
        )
    assert torch.allclose(state[0], expected, atol=1e-4)


def test_units_in_the_lowest_layers_only() -> None:
    """Layers above are plain and hold no parameters of units."""
    assert parameters({"type": "sdu", "layers": 2}) - parameters("pre_norm") == 2 * 5 * 525_312
    connection = connection_of({"layers": 1})
    x, output = torch.randn(2, 3, 16), torch.randn(2, 3, 16)
    state = connection.start(x, Context())
    read = connection.read(state, 2, Context())
    assert torch.equal(connection.write(state, 2, read, output, Context())[0], read + output)
    assert not torch.equal(connection.write(state, 1, read, output, Context())[0], read + output)
