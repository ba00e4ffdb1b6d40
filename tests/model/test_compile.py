"""torch.compile takes the model whole: no graph break, and the same numbers."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from socket_checks import batch, small_model

SYSTEMS: Mapping[str, Mapping[str, object]] = {
    "post_norm": {"connection": "post_norm"},
    "pre_norm": {"connection": "pre_norm"},
    "depth_lstm": {"connection": "depth_lstm"},
    "dlcl": {"aggregation": "dlcl"},
    "gtrans": {"connection": "post_norm", "fusion": {"type": "groups", "size": 2}},
}


@pytest.mark.parametrize("system", SYSTEMS)
def test_the_training_step_compiles_without_a_graph_break(system: str) -> None:
    """`fullgraph` raises at the first break; loss and gradients equal those of the plain model."""
    torch._dynamo.reset()
    model = small_model({"encoder": SYSTEMS[system], "decoder": SYSTEMS[system]}).train()
    plain = model.loss(*batch(), 0.1)
    expected = torch.autograd.grad(plain.smoothed, list(model.parameters()))
    compiled = torch.compile(model.loss, backend="aot_eager", fullgraph=True)(*batch(), 0.1)
    found = torch.autograd.grad(compiled.smoothed, list(model.parameters()))
    torch.testing.assert_close(tuple(compiled), tuple(plain))
    torch.testing.assert_close(found, expected, atol=1e-5, rtol=1e-4)


def test_dropout_compiles_too() -> None:
    """In training with dropout; the numbers are random, so only the graph is looked at."""
    torch._dynamo.reset()
    model = small_model({"dropout": 0.2}).train()
    loss = torch.compile(model.loss, backend="aot_eager", fullgraph=True)(*batch(), 0.1)
    loss.smoothed.backward()
    assert all(parameter.grad is not None for parameter in model.parameters())
