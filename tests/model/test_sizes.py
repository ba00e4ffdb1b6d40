"""Encoder and decoder of different width in one model."""

from __future__ import annotations

import pytest

import deepwire
from deepwire.testing import check_model

WIDE = {"d_model": 24, "heads": 3, "feed_forward": 40}


@pytest.mark.parametrize(
    ("encoder", "decoder"),
    [
        ({"connection": "post_norm", "fusion": "transparent"}, {"fusion": {"type": "groups", "size": 1}}),
        ({"connection": "depth_lstm"}, {"connection": "depth_lstm", "aggregation": "dlcl"}),
        ({}, {"mixer": {"type": "merged_attention", "average_value": "own"}}),
        ({"connection": "collaboration"}, {"connection": "collaboration"}),
        ({}, {"mixer": "gru", "connection": "rnmt"}),
    ],
)
def test_a_wide_encoder_with_a_narrow_decoder(encoder, decoder):
    tie = "none" if decoder.get("connection") == "rnmt" else "output"
    check_model({"encoder": {"size": WIDE, **encoder}, "decoder": decoder, "embeddings": {"tie": tie}})


def test_a_wide_decoder_with_parameters_of_each_language():
    check_model(
        {
            "decoder": {"size": WIDE},
            "embeddings": {"tie": "none"},
            "languages": {"norm": True, "transform": "identity", "embedding": "both"},
        }
    )


def test_the_widths_are_where_they_belong():
    settings = {"d_model": 16, "heads": 4, "feed_forward": 24, "embeddings": {"tie": "output"}}
    model = deepwire.build(settings | {"encoder": {"layers": 1, "size": WIDE}, "decoder": {"layers": 1}}, 30)
    shapes = {name: tuple(parameter.shape) for name, parameter in model.named_parameters()}
    assert shapes["source_embedding.table.weight"] == (30, 24)
    assert shapes["target_embedding.table.weight"] == (30, 16)
    assert shapes["encoder.feed_forwards.0.input.weight"] == (40, 24)
    assert shapes["decoder.crosses.0.key_value.weight"] == (32, 24)
