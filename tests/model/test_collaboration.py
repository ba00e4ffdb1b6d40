"""Block-scale collaboration: blocks, the gated look at their summary, and what it does not fit."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from deepwire.model.connections.collaboration import Gate
from deepwire.model.context import Context
from deepwire.testing import check_model, small_model

ENCODER = {"layers": 4, "connection": "collaboration", "fusion": "blocks"}
DECODER = {"layers": 2, "connection": "collaboration"}
RELATIVE = {"type": "self_attention", "relative": 2}


@pytest.mark.parametrize(
    ("encoder", "decoder"),
    [
        ({}, {}),
        ({"layers": 2}, {}),
        ({"layers": 3}, {"layers": 1}),
        ({"fusion": "top"}, {}),
        ({"mixer": RELATIVE, "aggregation": "dlcl"}, {"mixer": RELATIVE, "aggregation": "dlcl"}),
        ({"fusion": {"type": "groups", "size": 3}}, {"fusion": {"type": "groups", "size": 1}}),
    ],
)
def test_collaboration_with_other_sockets(encoder, decoder):
    check_model({"encoder": {**ENCODER, **encoder}, "decoder": {**DECODER, **decoder}})


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


def test_dropout_and_number_formats():
    """A step of training with dropout in mixed precision is finite; a whole model in bfloat16 decodes."""
    model = small_model({"encoder": ENCODER, "decoder": DECODER, "dropout": 0.3}).train()
    source, target = torch.tensor([[4, 9, 2], [5, 2, 0]]), torch.tensor([[1, 7, 8], [1, 9, 0]])
    with torch.autocast("cpu", torch.bfloat16):
        loss = model.loss(source, target, target, 0.1).smoothed
    loss.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    model = model.to(torch.bfloat16).eval()
    with torch.no_grad():
        log_probs, _ = model.step(target[:, 0], model.start(source))
    assert log_probs.isfinite().all()
