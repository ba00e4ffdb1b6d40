"""How decoder layers look at the source: the weights of every mixer and connection, and their formula."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from choices import choices, model_settings

from deepwire.testing import small_model

# What has cross-attention of its own kind, or reads it in another order; all others share one code.
MIXERS = ("self_attention", "merged_attention", "mixed_attention", "luna", "average_attention", "ssru")
CONNECTIONS = ("post_norm", "depth_lstm", "collaboration", "runge_kutta", "hyper", "attn_res")
DECODERS = [
    *({"mixer": mixer} for mixer in choices("mixer", "decoder") if mixer["type"] in MIXERS),
    *({"connection": each} for each in choices("connection", "decoder") if each["type"] in CONNECTIONS),
    {"mixer": {"type": "ln_lstm"}, "connection": {"type": "rnmt"}},
]
SOURCE = torch.tensor([[4, 5, 6, 7, 2], [8, 9, 2, 0, 0]])
TARGET = torch.tensor([[1, 5, 6, 9], [1, 7, 8, 0]])


@pytest.mark.parametrize("decoder", DECODERS, ids=lambda decoder: "-".join(map(str, decoder.values())))
def test_every_decoder_shows_where_it_looks(decoder):
    """Shares of 1, none of them of padding, and the same whatever else is in the batch."""
    encoder = {"mixer": {"type": "self_attention"}, "connection": {"type": "pre_norm"}}
    decoder = {**encoder, **decoder}
    model = small_model(model_settings(encoder, decoder))
    weights = model.source_weights(SOURCE, TARGET)
    assert sorted(weights) == ([0] if decoder["connection"]["type"] == "rnmt" else [0, 1, 2])
    alone = model.source_weights(SOURCE[1:, :3], TARGET[1:])
    whole = decoder["mixer"]["type"] != "mixed_attention"  # it looks at the past with the rest
    for layer, found in weights.items():
        assert found.shape[0::2] == (2, 4)
        assert found.shape[3] == 5
        assert (found >= 0).all()
        total = found.sum(-1)
        assert torch.allclose(total, torch.ones_like(total), atol=1e-5) if whole else (total < 1).all()
        assert not found[1, :, :, 3:].any()
        torch.testing.assert_close(found[1:, :, :3, :3], alone[layer][:, :, :3], atol=1e-5, rtol=1e-4)


def test_the_weights_are_those_that_sum_the_values():
    model = small_model({"decoder": {"layers": 2}, "bias": {"attention": True}})
    cross = model.decoder.crosses[1]
    seen: dict[str, Any] = {}
    cross.register_forward_hook(lambda _, inputs, output: seen.update(inputs=inputs, output=output))
    with torch.no_grad():
        weights = model.source_weights(SOURCE, TARGET, [1])[1]
        _, memory = seen["inputs"]
        mixed = (weights @ memory.value).transpose(1, 2).flatten(2)
        torch.testing.assert_close(cross.output(mixed), seen["output"], atol=1e-6, rtol=1e-5)
