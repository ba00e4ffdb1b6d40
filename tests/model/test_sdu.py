"""Self-dependency units."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from one_socket import config_of, connection_of
from torch import Tensor, nn
from torch.nn import functional

from deepwire.model.build import build_model
from deepwire.model.connections.connection import Connection
from deepwire.model.context import Context


def drawn(settings: dict[str, object]) -> Connection:
    connection = connection_of({"type": "sdu", **settings})
    torch.manual_seed(0)
    for parameter in connection.parameters():
        nn.init.normal_(parameter)
    return connection


def parameters(connection: object, layers: int = 6) -> int:
    """Parameters of a Base model in the sizes of Xu et al. 2024, without memory for them."""
    config = config_of(
        layers, connection=connection, model={"d_model": 512, "heads": 8, "feed_forward": 2048}
    )
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
    connection: Any = drawn({"form": form, "gate": gate, "residual": residual})
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
    connection = drawn({"layers": 1})
    x, output = torch.randn(2, 3, 16), torch.randn(2, 3, 16)
    state = connection.start(x, Context())
    read = connection.read(state, 2, Context())
    assert torch.equal(connection.write(state, 2, read, output, Context())[0], read + output)
    assert not torch.equal(connection.write(state, 1, read, output, Context())[0], read + output)
