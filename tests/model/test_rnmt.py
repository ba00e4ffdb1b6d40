"""RNMT+ on either side: in models, its equations, and what does not fit it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from deepwire.model.context import Context
from deepwire.model.cross_attention import CrossAttention
from deepwire.testing import check_model, small_model

RNMT = {"type": "rnmt"}
UNTIED = {"embeddings": {"tie": "inputs", "scale": False}, "positions": "none"}


def test_four_layers_written_out() -> None:
    """One attention, asked by the first layer; residuals from the third layer on; [LN(x) | a] at the end."""
    model = small_model({**UNTIED, "decoder": {"layers": 4, "mixer": "ln_lstm", "connection": "rnmt"}})
    stack = model.decoder
    assert len(stack.crosses) == 1
    assert not len(stack.feed_forwards)
    embedded, encoded = torch.randn(2, 5, 16), torch.randn(2, 3, 16)
    bias = torch.zeros(2, 1, 1, 3)
    with torch.no_grad():
        (found,), _, _ = stack(
            embedded, Context(memory=stack.project_memory([encoded], Context(padding=bias)))
        )
        cross = stack.crosses[0]
        assert isinstance(cross, CrossAttention)
        x = stack.mixers[0](embedded, Context())
        projected = encoded @ cross.projection.weight.t()
        attended = cross(x, CrossAttention.project(cross, projected, Context(padding=bias)))
        x = stack.mixers[1](torch.cat((x, attended), -1), Context())
        for layer in (2, 3):
            x = x + stack.mixers[layer](torch.cat((x, attended), -1), Context())
        expected = torch.cat((stack.connection.norm(x), attended), -1)
    torch.testing.assert_close(found, expected)


UNPROJECTED = {**RNMT, "projection": False}


@pytest.mark.parametrize(
    ("encoder", "decoder"),
    [
        ({"mixer": "ln_lstm"}, {"mixer": "ln_lstm", "connection": UNPROJECTED}),
        ({"mixer": "gru", "layers": 1, "connection": UNPROJECTED}, {}),
        ({"mixer": "mhplstm", "layers": 2}, {}),
        ({"mixer": "atr", "layers": 4, "fusion": {"type": "groups", "size": 2}}, {}),
    ],
)
def test_encoders(encoder: Mapping[str, object], decoder: Mapping[str, object]) -> None:
    """RNMT+ in the encoder, with a Transformer decoder (the hybrid) and with its own."""
    settings = {"embeddings": {"tie": "inputs"}, "encoder": {"connection": RNMT, **encoder}}
    check_model({**settings, "decoder": decoder})


def test_four_encoder_layers_written_out() -> None:
    """d features of each direction, residuals from the third layer on, one projection at the end."""
    model = small_model({"encoder": {"layers": 4, "mixer": "ln_lstm", "connection": "rnmt"}})
    stack = model.stack("encoder")
    assert not len(stack.feed_forwards)
    x = embedded = torch.randn(2, 5, 16)
    with torch.no_grad():
        (found,), *_ = stack(embedded, Context())
        for layer in range(4):
            mixer = stack.mixers[layer]
            ahead, back = mixer.ahead(x, Context()), mixer.back(x.flip(1), Context()).flip(1)
            assert ahead.shape == back.shape == (2, 5, 16)
            both = torch.cat((ahead, back), -1)
            x = both if layer < 2 else x + both
    torch.testing.assert_close(found, x @ stack.connection.projection.weight.t())
    layers = {name: layer for name, layer in stack.parameter_layers().items() if "mixers.3" in name}
    assert set(layers.values()) == {4}


def test_the_prediction_reads_stream_and_attention() -> None:
    """The output projection is twice as wide as the embedding; one memory serves the whole decoder."""
    model = small_model({**UNTIED, "decoder": {"mixer": "atr", "connection": "rnmt"}})
    assert model.head.table.weight.shape == (23, 32)
    assert model.target_embedding.table.weight.shape == (23, 16)
    assert len(model.start(torch.tensor([[4, 2]])).context.memory) == 1
