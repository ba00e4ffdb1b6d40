"""Connections with several lanes or sources: what they begin as, blocks, biases, mixes."""

from __future__ import annotations

import pytest
import torch
from one_socket import config_of, connection_of
from torch import Tensor, nn

from deepwire.model.build import build_model
from deepwire.model.context import Context


def stir(module: nn.Module) -> None:
    """Take it far from where it begins."""
    for parameter in module.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))


def as_pre_norm_and_with(connection: object, aggregation: str = "last") -> tuple[Tensor, Tensor]:
    """Results of a pre-norm model, and of one that begins with its parameters and has some more."""
    torch.manual_seed(0)
    old = build_model(config_of(4, connection="pre_norm", aggregation=aggregation), 23, 23).eval()
    stir(old)
    new = build_model(config_of(4, connection=connection, aggregation=aggregation), 23, 23).eval()
    found = new.load_state_dict(old.state_dict(), strict=False)
    assert not found.unexpected_keys
    assert all(".queries." in name or ".weights." in name for name in found.missing_keys)
    source, target = torch.tensor([[4, 9, 5, 2]]), torch.tensor([[1, 5, 9, 12]])
    return old.decode(source, target)[0], new.decode(source, target)[0]


@torch.no_grad()
@pytest.mark.parametrize(
    "connection",
    [
        *({"type": "attn_res", "block": block} for block in ("full", "auto", 3, 100)),
        {"type": "hyper", "dynamic": False, "lanes": 3},
        {"type": "hyper", "lanes": 2, "lane": "layer"},
        {"type": "hyper", "lanes": 1},
        {"type": "frac", "fractions": 4},
        {"type": "frac", "dynamic": False},
    ],
    ids=str,
)
@pytest.mark.parametrize("aggregation", ["last", "dlcl"])
def test_begins_as_the_pre_norm_model_whose_parameters_it_takes(
    connection: dict[str, object], aggregation: str
) -> None:
    """Every lane is the stream, and zero queries give the mean of the sources.

    The norms do not see that sums and means are multiples of the stream, but for their epsilon.
    """
    old, new = as_pre_norm_and_with(connection, aggregation)
    torch.testing.assert_close(new, old, atol=2e-3, rtol=0)


@torch.no_grad()
def test_a_large_bias_makes_streams_the_residual_model() -> None:
    """The newest of the streams is that of the plain model; a bias of 3 is near it, a large one the same."""
    differences = []
    for bias in (0.0, 3.0, 30.0):
        old, new = as_pre_norm_and_with({"type": "attn_res", "block": 2, "sources": "streams", "bias": bias})
        differences.append(float((new - old).abs().max()))
    assert differences[0] > 2 * differences[1] > 0
    assert differences[2] < 1e-5


@pytest.mark.parametrize(
    ("block", "layers", "sources"), [("full", 2, 5), (2, 3, 4), (3, 3, 3), (100, 2, 2), ("auto", 6, 7)]
)
def test_number_of_sources(block: object, layers: int, sources: int) -> None:
    """The embedding, the complete blocks and the current one; auto makes at most eight blocks."""
    connection = connection_of({"type": "attn_res", "block": block}, layers)
    total = torch.randn(2, 3, 16)
    state = connection.start(total, Context())
    for index in range(len(connection.calls)):
        output = torch.randn(2, 3, 16)
        state = connection.write(state, index, connection.read(state, index, Context()), output, Context())
        total = total + output
    assert len(state) == 2 * sources
    torch.testing.assert_close(connection.stream(state), total)


@torch.no_grad()
@pytest.mark.parametrize(("name", "rows"), [("mhc_lite", 1e-5), ("mhc", 0.05)])
def test_mixes_are_doubly_stochastic(name: str, rows: float) -> None:
    """Rows and columns sum to 1, so the mean of the lanes is kept."""
    torch.manual_seed(0)
    connection = connection_of({"type": name, "lanes": 4})
    stir(connection)
    state = tuple(torch.randn(2, 3, 16) for _ in range(4))
    columns, _ = connection.weights[0].writing(state)
    mix = torch.stack([torch.stack(tuple(column), -1) for column in columns], -1)
    ones = torch.ones(2, 3, 4)
    torch.testing.assert_close(mix.sum(-2), ones, atol=1e-5, rtol=0)
    torch.testing.assert_close(mix.sum(-1), ones, atol=rows, rtol=0)  # Sinkhorn ends with columns
    assert mix.min() >= 0
