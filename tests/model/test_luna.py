"""Luna: its equations with keys and values apart, the sequence beside the stream, settings, whole models."""

from __future__ import annotations

import math

import torch
from torch import Tensor

from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.mixers.luna import CHUNK, LunaConfig, LunaSelfAttention, LunaSequence
from deepwire.model.stack_spec import Side, StackSpec
from deepwire.testing import TOLERANCE, batch, small_model

LUNA = {"mixer": "luna"}
UNTIED = {"mixer": {"type": "luna", "tie": False, "length": 3, "pack_heads": 2}}


def spec_of(side: Side, connection: str = "post_norm", *, partner: bool = True) -> StackSpec:
    """Of a stack of two layers, d 8 with 2 heads, whose partner has Luna too."""
    stacks: dict[str, dict[str, object]] = {
        "encoder": {"layers": 2, "connection": connection, **LUNA},
        "decoder": {"layers": 2, "connection": connection, **LUNA},
    }
    if not partner:
        del stacks["decoder" if side == "encoder" else "encoder"]["mixer"]
    settings = {"d_model": 8, "heads": 2, "dropout": 0.0, "bias": {"attention": True}, **stacks}
    return ModelConfig.model_validate(settings).specs()[side]


def heads_of(x: Tensor, number: int) -> list[Tensor]:
    return list(x.chunk(number, -1))


def attend(query: Tensor, key: Tensor, value: Tensor, heads: int, bias: Tensor) -> Tensor:
    """Softmax attention head by head; bias `[B, 1, S]`."""
    parts = zip(heads_of(query, heads), heads_of(key, heads), heads_of(value, heads), strict=True)
    return torch.cat(
        [(q @ k.transpose(1, 2) / q.size(-1) ** 0.5 + bias).softmax(-1) @ v for q, k, v in parts], -1
    )


def test_encoder_attention_packs_and_unpacks_what_is_not_hidden() -> None:
    """Keys and values apart, four heads for packing; padding and hidden rows of P count for nothing."""
    torch.manual_seed(0)
    mixer = LunaConfig(tie=False, pack_heads=4).build(spec_of("encoder")).double()
    assert isinstance(mixer, LunaSelfAttention)
    x, p = torch.randn(2, 5, 8).double(), torch.randn(2, 3, 8).double()
    padding, hidden = torch.zeros(2, 1, 1, 5).double(), torch.zeros(2, 1, 1, 3).double()
    padding[1, ..., 2:], hidden[1, ..., 2:] = float("-inf"), float("-inf")
    keys, values = mixer.packing.key_value(x).chunk(2, -1)
    packed = attend(mixer.packing.query(p), keys, values, 4, padding[:, 0])
    keys, values = mixer.unpack.key_value(packed).chunk(2, -1)
    wanted = mixer.unpack.output(attend(mixer.unpack.query(x), keys, values, 2, hidden[:, 0]))
    found, (moved,) = mixer.forward_beside(x, (p, hidden), Context(padding=padding))
    torch.testing.assert_close(found, wanted)
    torch.testing.assert_close(moved, packed)


def test_the_sequence_begins_scaled_with_positions_and_as_long_as_the_sentence() -> None:
    sequence = LunaConfig(length=4).companion(spec_of("encoder"))
    assert isinstance(sequence, LunaSequence)
    padding = torch.zeros(3, 1, 1, 6)
    padding[1, ..., 2:] = float("-inf")
    padding[2, ..., 3:] = float("-inf")
    p, bias = sequence.start(Context(padding=padding), ())
    assert sequence.table is not None
    sines = torch.tensor([math.sin(3 / 10000 ** (i / 3)) for i in range(4)])
    torch.testing.assert_close(p[0, 3, :4], sequence.table[3, :4] * 8**0.5 + sines)
    assert [(row > -1).sum().item() for row in bias] == [4, 2, 3]


def test_the_way_of_the_sequence_through_an_encoder() -> None:
    """Post-norm: P <- LN(P + Y) layer by layer, and the decoder's memory is packed by its end."""
    model = small_model(
        {
            "encoder": {"layers": 2, "connection": "post_norm", **LUNA},
            "decoder": {"layers": 2, "connection": "post_norm", **LUNA},
        }
    )
    source, _, _ = batch()
    sequence = model.encoder.companion
    assert isinstance(sequence, LunaSequence)
    bias = torch.zeros(source.shape)[:, None, None].masked_fill((source == 0)[:, None, None], float("-inf"))
    stream, beside = model.source_embedding(source), Context(padding=bias)
    p, shown = sequence.start(beside)
    norms = model.encoder.connection.get_submodule("norms")
    for layer in range(2):
        output, (moved,) = model.encoder.mixers[layer].forward_beside(stream, (p, shown), beside)
        p = sequence.output_norms[layer](p + moved, beside)
        stream = norms[2 * layer](stream + output, beside)
        stream = norms[2 * layer + 1](stream + model.encoder.feed_forwards[layer](stream, beside), beside)
    results, _, carried = model.encoder(model.source_embedding(source), beside)
    torch.testing.assert_close(results[0], stream)
    torch.testing.assert_close(carried[0], p)
    memory = model.decoder.project_memory(results, beside, carried)
    assert len(memory) == 4
    expected = model.decoder.mixers[0].pack_query(p).view(3, -1, 4, 4).transpose(1, 2)
    torch.testing.assert_close(memory[2].key, expected)
    packed = model.decoder.crosses[0].packing(p, stream, bias)
    second = model.decoder.companion.output_norms[0](p + packed, beside)
    expected = model.decoder.mixers[1].pack_query(second).view(3, -1, 4, 4).transpose(1, 2)
    torch.testing.assert_close(memory[3].key, expected)


def test_the_state_does_not_grow_and_long_targets_agree() -> None:
    """Beyond one chunk of the whole pass, step by step, with a state of one size."""
    model = small_model({"encoder": UNTIED, "decoder": UNTIED})
    source = batch()[0][:1]
    target = torch.randint(3, 20, (1, CHUNK + 4), generator=torch.Generator().manual_seed(0))
    with torch.no_grad():
        whole = model.log_probs(source, target)
        state = model.start(source)
        shapes = [tensor.shape for leaf in state.states for tensor in leaf]
        for position in range(target.size(1)):
            log_probs, state = model.step(target[:, position], state)
            assert (log_probs - whole[:, position]).abs().max() < TOLERANCE
    assert [tensor.shape for leaf in state.states for tensor in leaf] == shapes
    assert shapes == [(1, 4, 4, 3), (1, 4, 3, 4)] * 3
