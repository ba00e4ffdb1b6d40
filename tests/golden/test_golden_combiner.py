"""The network that merges layers in hierarchical aggregation, against Neutron."""

from __future__ import annotations

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

from deepwire.model.aggregations.hierarchical import Combiner
from deepwire.model.context import Context
from deepwire.model.layers import LayerNorm


@pytest.mark.parametrize(
    ("name", "combiner"),
    [
        ("agg_combiner2_sigmoid", Combiner(2, 32, 64, LayerNorm(32, 1e-6))),
        ("agg_combiner3_gelu_bias", Combiner(3, 32, 64, LayerNorm(32, 1e-6), activation="gelu", bias="both")),
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
