"""Connections with several lanes: what they begin as, their mixes, aggregations beside them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.connections.connection import Connection
from deepwire.model.translation_model import TranslationModel

SHAPE = {"d_model": 16, "heads": 4, "feed_forward": 24, "dropout": 0.0}
SOURCE, TARGET = torch.tensor([[4, 9, 5, 2]]), torch.tensor([[1, 5, 9, 12]])


def config_of(connection: object, layers: int = 2, **stack: object) -> ModelConfig:
    stacks = {side: {"layers": layers, "connection": connection, **stack} for side in ("encoder", "decoder")}
    return ModelConfig.model_validate({**SHAPE, **stacks})


def connection_of(settings: object) -> Connection:
    """A connection of an encoder of two layers, far from where it begins."""
    torch.manual_seed(0)
    config = config_of(settings)
    connection = config.encoder.connection.build(config.specs()["encoder"])
    with torch.no_grad():
        for parameter in connection.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return connection.eval()


def results(model: TranslationModel) -> Tensor:
    return model.decode(SOURCE, TARGET)[0]


@torch.no_grad()
@pytest.mark.parametrize(
    "connection",
    [
        {"type": "hyper", "dynamic": False, "lanes": 3},
        {"type": "hyper", "lanes": 2, "lane": "layer"},
        {"type": "hyper", "lanes": 1},
        {"type": "frac", "fractions": 4},
        {"type": "frac", "dynamic": False},
    ],
)
@pytest.mark.parametrize("aggregation", ["last", "dlcl"])
def test_begins_as_the_pre_norm_model_whose_parameters_it_takes(
    connection: dict[str, object], aggregation: str
) -> None:
    """Every lane is the stream; the final norm does not see that their sum is a multiple of it."""
    torch.manual_seed(0)
    old = build_model(config_of("pre_norm", aggregation=aggregation), 23, 23).eval()
    for parameter in old.parameters():
        parameter.add_(0.3 * torch.randn_like(parameter))
    new = build_model(config_of(connection, aggregation=aggregation), 23, 23).eval()
    found = new.load_state_dict(old.state_dict(), strict=False)
    assert not found.unexpected_keys
    assert all(".weights." in name for name in found.missing_keys)
    # Their sum leaves the stack: n times the stream, which the final norm sees but for its epsilon.
    torch.testing.assert_close(results(new), results(old), atol=2e-3, rtol=0)


@torch.no_grad()
@pytest.mark.parametrize(("name", "rows"), [("mhc_lite", 1e-5), ("mhc", 0.05)])
def test_mixes_are_doubly_stochastic(name: str, rows: float) -> None:
    """Rows and columns sum to 1, so the mean of the lanes is kept."""
    connection = connection_of({"type": name, "lanes": 4})
    state = tuple(torch.randn(2, 3, 16) for _ in range(4))
    columns, _ = connection.weights[0].writing(state)
    mix = torch.stack([torch.stack(tuple(column), -1) for column in columns], -1)
    ones = torch.ones(2, 3, 4)
    torch.testing.assert_close(mix.sum(-2), ones, atol=1e-5, rtol=0)
    torch.testing.assert_close(mix.sum(-1), ones, atol=rows, rtol=0)  # Sinkhorn ends with columns
    assert mix.min() >= 0
