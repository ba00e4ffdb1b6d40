"""Attention residuals: what they begin as, blocks, biases, aggregations beside them."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.translation_model import TranslationModel

SHAPE = {"d_model": 16, "heads": 4, "feed_forward": 24, "dropout": 0.0}
SOURCE, TARGET = torch.tensor([[4, 9, 5, 2]]), torch.tensor([[1, 5, 9, 12]])


def config_of(connection: object, **stack: object) -> ModelConfig:
    stacks = {side: {"layers": 4, "connection": connection} | stack for side in ("encoder", "decoder")}
    return ModelConfig.model_validate({**SHAPE, **stacks})


def stirred(connection: object, **stack: object) -> TranslationModel:
    """A model far from where it begins."""
    torch.manual_seed(0)
    model = build_model(config_of(connection, **stack), 23, 23)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return model.eval()


def with_parameters_of(old: TranslationModel, connection: object, **stack: object) -> TranslationModel:
    """A model that begins with the parameters of another one; those that it lacks begin as they do."""
    model = build_model(config_of(connection, **stack), 23, 23)
    found = model.load_state_dict(old.state_dict(), strict=False)
    assert not found.unexpected_keys
    assert all(".queries." in name for name in found.missing_keys)
    return model.eval()


def results(model: TranslationModel) -> Tensor:
    return model.decode(SOURCE, TARGET)[0]


@torch.no_grad()
@pytest.mark.parametrize("block", ["full", "auto", 1, 3, 100])
@pytest.mark.parametrize("aggregation", ["last", "dlcl"])
def test_begins_as_the_pre_norm_model_whose_parameters_it_takes(block: object, aggregation: str) -> None:
    """Zero queries give the mean of the sources, which the norms cannot tell from their sum."""
    old = stirred("pre_norm", aggregation=aggregation)
    new = with_parameters_of(old, {"type": "attn_res", "block": block}, aggregation=aggregation)
    # Norms see the mean but for their epsilon.
    torch.testing.assert_close(results(new), results(old), atol=2e-3, rtol=0)


@torch.no_grad()
def test_a_large_bias_makes_streams_the_residual_model() -> None:
    """The newest of the streams is that of the plain model; a bias of 3 is near it, a large one the same."""
    old = stirred("pre_norm")
    differences = []
    for bias in (0.0, 3.0, 30.0):
        settings = {"type": "attn_res", "block": 2, "sources": "streams", "bias": bias}
        differences.append(float((results(with_parameters_of(old, settings)) - results(old)).abs().max()))
    assert differences[0] > 2 * differences[1] > 0
    assert differences[2] < 1e-5


@pytest.mark.parametrize(
    ("block", "layers", "sources"), [("full", 2, 5), (2, 3, 4), (3, 3, 3), (100, 2, 2), ("auto", 6, 7)]
)
def test_number_of_sources(block: object, layers: int, sources: int) -> None:
    """The embedding, the complete blocks and the current one; auto makes at most eight blocks."""
    config = config_of({"type": "attn_res", "block": block}, layers=layers)
    connection = config.encoder.connection.build(config.specs()["encoder"])
    x = torch.randn(2, 3, 16)
    state = connection.start(x, Context())
    total = x
    for index in range(len(connection.calls)):
        output = torch.randn(2, 3, 16)
        state = connection.write(state, index, connection.read(state, index, Context()), output, Context())
        total = total + output
    assert len(state) == 2 * sources
    torch.testing.assert_close(connection.stream(state), total)
