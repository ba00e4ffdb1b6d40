"""The network that merges layers in hierarchical aggregation, against Neutron."""

from __future__ import annotations

from dataclasses import replace

import pytest
from golden_names import (
    COMBINER,
    GRADIENT_TOLERANCE,
    OUTPUT_TOLERANCE,
    Place,
    case,
    check_gradients,
    deviation,
    load,
)

from deepwire.model.aggregations.hierarchical import Combiner, HierarchicalConfig
from deepwire.model.config import ModelConfig
from deepwire.model.context import Context

SPEC = replace(ModelConfig().specs()["decoder"], dim=32, feed_forward=64, norm_eps=1e-6)


@pytest.mark.parametrize(
    ("name", "combiner"),
    [
        ("agg_combiner2_sigmoid", Combiner(HierarchicalConfig(), SPEC, 2)),
        ("agg_combiner3_gelu_bias", Combiner(HierarchicalConfig(activation="gelu", bias="both"), SPEC, 3)),
    ],
)
def test_combiner(name: str, combiner: Combiner) -> None:
    """The merged outputs of two or three layers; gradients of inputs and parameters."""
    golden = case(name)
    places = {key: (Place(COMBINER[key]),) for key in golden.params}
    load(combiner, golden.params, places)
    inputs = [tensor.clone().requires_grad_() for _, tensor in sorted(golden.group("in/x").items())]
    merged = combiner(inputs, Context())
    assert deviation(merged, golden["out/y"]) < OUTPUT_TOLERANCE
    (merged * golden["cot/R"]).sum().backward()
    for number, x in enumerate(inputs):
        assert x.grad is not None
        assert deviation(x.grad, golden[f"grad/in/x{number}"]) < GRADIENT_TOLERANCE
    check_gradients(combiner, golden.grads, places, GRADIENT_TOLERANCE)
