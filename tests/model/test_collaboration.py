"""Block-scale collaboration: blocks, the gated look at their summary, and what it does not fit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from deepwire.model.connections.collaboration import Gate
from deepwire.model.context import Context
from deepwire.testing import small_model

ENCODER = {"layers": 4, "connection": "collaboration", "fusion": "blocks"}
DECODER = {"layers": 2, "connection": "collaboration"}


def test_each_decoder_layer_reads_its_own_block():
    model = small_model({"encoder": {"layers": 4, "fusion": "blocks"}, "decoder": {"layers": 2}})
    source = torch.tensor([[4, 9, 5, 2]])
    with torch.no_grad():
        (lower, upper), _ = model.encode(source)
        # The layers above a block do not change what its decoder layer reads.
        model.encoder.mixers[3].output.weight.zero_()
        (lower_after, upper_after), _ = model.encode(source)
        memory = model.decoder.project_memory((lower, upper), Context(padding=torch.zeros(1, 1, 1, 4)))
        key = model.decoder.crosses[1].project(upper, Context(padding=torch.zeros(1, 1, 1, 4))).key
    assert torch.equal(lower, lower_after)
    assert not torch.allclose(upper, upper_after)
    assert torch.equal(memory[1].key, key)


@pytest.mark.parametrize(("bias", "chosen"), [(50.0, "own"), (-50.0, "context")])
def test_the_gate_can_choose_either_side(bias, chosen):
    gate = Gate(4)
    nn.init.constant_(gate.own.bias, bias)
    both = {"own": torch.randn(2, 3, 4), "context": torch.randn(2, 3, 4)}
    assert torch.allclose(gate(both["own"], both["context"]), both[chosen], atol=1e-6)


def test_upper_layers_see_the_summary_of_lower_blocks():
    """With closed mixers, other words reach a position of the encoder through the contexts alone."""
    model = small_model({"encoder": ENCODER, "decoder": DECODER})
    with torch.no_grad():
        for mixer in model.encoder.mixers:
            mixer.output.weight.zero_()
        results = [model.encode(torch.tensor([[first, 9, 5, 2]]))[0][1] for first in (4, 17)]
    assert (results[0] - results[1])[0, 3].abs().max() > 1e-3
