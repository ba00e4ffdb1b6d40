"""LAuReL and deep delta learning."""

from __future__ import annotations

import pytest
import torch
from one_socket import connection_of
from torch import Tensor

from deepwire.model.connections.connection import Connection
from deepwire.model.context import Context


def drawn(connection: object) -> Connection:
    """That of an encoder, all its numbers drawn."""
    module = connection_of(connection)
    with torch.no_grad():
        for parameter in module.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return module


def written(module: Connection, x: Tensor, output: Tensor) -> Tensor:
    """The stream after the second sub-layer gave `output`."""
    state = module.start(x, Context())
    return module.write(state, 1, module.read(state, 1, Context()), output, Context())[0]


def test_laurel_with_earlier_inputs_written_out() -> None:
    """Each of the last two inputs joins, times a number of the sub-layer's own; the first reads none."""
    module = drawn({"type": "laurel", "weights": "none", "earlier": 2})
    shares = [parameter for name, parameter in module.named_parameters() if name.startswith("shares")]
    assert [len(share) for share in shares] == [1, 2, 2]  # four sub-layers
    x, outputs = torch.randn(2, 3, 16), torch.randn(4, 2, 3, 16)
    inputs, state = [x], module.start(x, Context())
    for number, output in enumerate(outputs):
        state = module.write(state, number, module.read(state, number, Context()), output, Context())
        expected = inputs[-1] + output
        for back in range(1, min(number, 2) + 1):
            expected = expected + shares[number - 1][back - 1] * inputs[-1 - back]
        assert torch.allclose(state[0], expected, atol=1e-4)
        inputs.append(expected)
    assert len(state) == 3
    (weights,) = module.depth_weights()
    assert weights.values.shape == (3, 2)
    assert weights.values[0].isnan().tolist() == [False, True]


@pytest.mark.parametrize(("strength", "kept"), [(-50.0, 1.0), (0.0, 0.0), (50.0, -1.0)])
def test_delta_keeps_projects_or_reflects(strength: float, kept: float) -> None:
    """b = 0 is the identity, b = 1 writes v along k, b = 2 reflects along k and adds 2 v."""
    module = drawn("delta")
    with torch.no_grad():
        module.get_parameter("weights.1").zero_()
        module.get_parameter("biases.1").copy_(torch.tensor([strength, 0.0]))
    x, output = torch.randn(2, 3, 16), torch.randn(2, 3, 16)
    k = output / output.norm(dim=-1, keepdim=True)
    along = (k * x).sum(-1, keepdim=True)
    expected = x + ((kept - 1) * along + (1 - kept) * 2) * k  # v = 4 s(0) = 2
    assert torch.allclose(written(module, x, output), expected, atol=1e-5)


@pytest.mark.parametrize("kind", ["softmax", "sigmoid"])
def test_laurel_begins_as_pre_norm_but_for_its_scale(kind: str) -> None:
    """The stream is the mean of its input and of all branches, in a stack of any depth."""
    module = connection_of({"type": "laurel", "weights": kind, "rank": 3})
    x, *outputs = torch.randn(5, 1, 2, 16)
    state = module.start(x, Context())
    for index, output in enumerate(outputs):
        state = module.write(state, index, module.read(state, index, Context()), output, Context())
    assert torch.allclose(state[0], (x + sum(outputs)) / 5, atol=1e-6)
