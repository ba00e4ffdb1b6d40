"""Block-scale collaboration: blocks, the gated look at their summary, and what it does not fit."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from pydantic import ValidationError
from torch import nn

from deepwire.model.config import ModelConfig
from deepwire.model.connections.collaboration import DepthGRU, Gate
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


@pytest.mark.parametrize("connection", ["pre_norm", "post_norm", "depth_lstm"])
def test_blocks_without_collaboration(connection):
    check_model(
        {
            "encoder": {"layers": 4, "connection": connection, "fusion": "blocks"},
            "decoder": {"layers": 2, "connection": connection},
        }
    )


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


def test_the_unit_over_depth_is_a_gated_recurrent_unit():
    torch.manual_seed(1)
    ours, theirs = DepthGRU(6), nn.GRUCell(6, 6)
    with torch.no_grad():
        ours.input.weight.copy_(theirs.weight_ih)
        ours.input.bias.copy_(theirs.bias_ih)
        ours.hidden.weight.copy_(theirs.weight_hh)
        ours.hidden.bias.copy_(theirs.bias_hh)
    x, hidden = torch.randn(2, 5, 6), torch.randn(2, 5, 6)
    expected = theirs(x.flatten(0, 1), hidden.flatten(0, 1)).view(2, 5, 6)
    assert torch.allclose(ours(x, hidden), expected, atol=1e-6)


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


@pytest.mark.parametrize(
    ("encoder", "decoder", "message"),
    [
        ({"layers": 3}, {}, "3 encoder layers do not fall into 2 equal blocks"),
        ({"layers": 3, "connection": "pre_norm"}, {"connection": "pre_norm"}, "do not fall into 2 equal"),
        ({"layers": 1}, {}, "multiple of decoder.layers"),
        ({"connection": "pre_norm"}, {}, "pre_norm gives vectors of width 16.*collaboration reads width 32"),
        ({}, {"connection": "pre_norm"}, "collaboration gives vectors of width 32.*pre_norm reads width 16"),
        ({}, {"fusion": "blocks"}, "decoder.fusion: blocks does not work in the decoder"),
    ],
)
def test_what_does_not_fit_is_refused(encoder, decoder, message):
    settings = {"d_model": 16, "heads": 4, "feed_forward": 24}
    stacks = {"encoder": {**ENCODER, **encoder}, "decoder": {**DECODER, **decoder}}
    with pytest.raises(ValidationError, match=message):
        ModelConfig.model_validate({**settings, **stacks})


def test_a_decoder_needs_a_cross_attention_to_gate():
    config = ModelConfig.model_validate({"d_model": 16, "heads": 4, "encoder": ENCODER, "decoder": DECODER})
    with pytest.raises(ValueError, match="gates the cross-attention"):
        config.decoder.connection.check(
            replace(config.specs()["decoder"], sublayers=("mixer", "feed_forward"))
        )
