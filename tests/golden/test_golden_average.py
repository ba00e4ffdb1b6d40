"""Average attention against Neutron."""

from __future__ import annotations

from typing import Literal

import pytest
from golden_names import (
    GRADIENT_TOLERANCE,
    OUTPUT_TOLERANCE,
    SMALL,
    Place,
    Places,
    case,
    check_gradients,
    deviation,
    load,
)

from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.mixers.average_attention import AverageAttention, AverageAttentionConfig, running_mean

AVERAGE_PLACES = {
    "gate": "gates",
    "ffn.0": "feed_forward.input",
    "ffn.1": "feed_forward.norm",
    "ffn.3": "feed_forward.output",
}


@pytest.mark.parametrize(("name", "network"), [("aan_noffn", "none"), ("aan_ffn_relu", "normalised")])
def test_average_attention(name: str, network: Literal["none", "normalised"]) -> None:
    """Outputs and gradients with and without the network on the average.

    The file averages other vectors than it gates, which inside a decoder are the same.
    """
    golden = case(name)
    config = AverageAttentionConfig(feed_forward=network)
    mixer = config.build(ModelConfig.model_validate(SMALL).specs()["decoder"])
    assert isinstance(mixer, AverageAttention)
    places = {key: average_place(key) for key in golden.params}
    load(mixer, golden.params, places)
    query, value = (golden[f"in/{key}"].clone().requires_grad_() for key in "qv")
    found = mixer.combine(query, running_mean(value), Context())
    assert deviation(found, golden["out/y"]) < OUTPUT_TOLERANCE
    (found * golden["cot/R"]).sum().backward()
    for key, tensor in (("q", query), ("v", value)):
        assert tensor.grad is not None
        assert deviation(tensor.grad, golden[f"grad/in/{key}"]) < GRADIENT_TOLERANCE
    check_gradients(mixer, golden.grads, places, GRADIENT_TOLERANCE)


def average_place(name: str) -> Places:
    """Where a parameter of Neutron's average attention lies."""
    stem, leaf = name.rsplit(".", 1)
    return (Place(f"{AVERAGE_PLACES[stem]}.{leaf}"),)
