"""Parts of the model with a stated behaviour of their own."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from torch import Tensor

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.connections.connection import ConnectionWrapper
from deepwire.model.context import Context
from deepwire.model.cross_attention import CrossAttentionRecorder
from deepwire.model.mixers.self_attention import SelfAttentionConfig
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel
from deepwire.testing import small_model

SIZE = 19
SMALL_MODEL = ModelConfig.model_validate({"d_model": 16, "heads": 4, "dropout": 0.0})


def model(encoder: object = None, decoder: object = None, **changes: object) -> TranslationModel:
    """A small model without dropout."""
    torch.manual_seed(5)
    section: dict[str, object] = {"d_model": 16, "heads": 4, "feed_forward": 32, "dropout": 0.0, **changes}
    for side, stack in (("encoder", encoder), ("decoder", decoder)):
        section[side] = {"layers": 4, **(stack if isinstance(stack, Mapping) else {})}
    return build_model(ModelConfig.model_validate(section), SIZE, SIZE)


def tokens(rows: int, length: int) -> Tensor:
    """Random words without padding."""
    return torch.randint(4, SIZE, (rows, length))


@pytest.mark.parametrize("side", ["encoder", "decoder"])
@pytest.mark.parametrize("table", ["compact", "full"])
def test_relative_positions_with_values_are_their_equations(side: Side, table: str) -> None:
    """Shaw et al. 2018, equations 3 and 4, pair by pair: a vector joins each key, another one each value."""
    settings = {"relative": 2, "relative_values": True, "relative_table": table}
    mixer: Any = SelfAttentionConfig.model_validate(settings).build(SMALL_MODEL.specs()[side]).double()
    for parameter in mixer.parameters():
        torch.nn.init.normal_(parameter)
    x, future = torch.randn(1, 6, 16).double(), 1 if (side, table) == ("decoder", "compact") else 2
    assert len(mixer.relative.table) == len(mixer.relative_values.table) == 3 + future
    query, key, value = (part[0] for part in mixer.query_key_value(x).chunk(3, -1))
    expected = torch.zeros(6, 16).double()
    for head in range(4):
        part = slice(4 * head, 4 * head + 4)
        for t in range(6):
            seen = range(t + 1) if side == "decoder" else range(6)
            rows = [max(-2, min(future, s - t)) + 2 for s in seen]
            pairs = list(zip(seen, rows, strict=True))
            keys = torch.stack([key[s, part] + mixer.relative.table[row] for s, row in pairs])
            values = torch.stack([value[s, part] + mixer.relative_values.table[row] for s, row in pairs])
            expected[t, part] = (keys @ query[t, part] / 2).softmax(0) @ values
    found = mixer.eval()(x, Context())
    torch.testing.assert_close(found[0], expected @ mixer.output.weight.t())


def test_gates_of_the_whole_model_are_one_set() -> None:
    """`gate_scope: model`: the encoder's gates are the decoder's, once in the names."""
    both = {"connection": {"type": "depth_lstm", "gate_scope": "model"}}
    built = model(both, both)
    assert built.encoder.connection.gates[0] is built.decoder.connection.gates[0]
    names = [name for name, _ in built.named_parameters() if ".gates." in name]
    assert names
    assert all(name.startswith("encoder.connection.gates.0.") for name in names)


@pytest.mark.parametrize("layers", [1, 3, 24])
def test_forget_gates_begin_as_open_as_the_stack_is_deep(layers: int) -> None:
    """Half of what the cell began with is left at the top of either stack, also with two units a layer."""
    stack = {"layers": layers, "connection": "depth_lstm"}
    two_units = {**stack, "connection": {"type": "depth_lstm", "merge": "two"}}
    sizes = {"d_model": 16, "heads": 4, "feed_forward": 24}
    config = ModelConfig.model_validate({**sizes, "encoder": stack, "decoder": two_units})
    model = build_model(config, 20, 20)
    for side in (model.encoder, model.decoder):
        connection: Any = side.connection
        gates = [connection.gates[number] for number in connection.gate_of]
        left = torch.stack([gate.norm.bias[..., 1, :].sigmoid() for gate in gates]).prod(0)
        assert torch.allclose(left, torch.full_like(left, 0.5), atol=1e-5)


def test_a_side_may_have_its_own_positions_and_scale() -> None:
    """Neutron's recurrent decoders: an encoder with positions and scale, a decoder without."""
    settings = {"decoder": {"positions": "none", "scale_embedding": False}}
    model = small_model(settings)
    tokens = torch.tensor([[5, 5, 6]])
    assert torch.equal(model.target_embedding(tokens), model.target_embedding.table(tokens))
    assert not torch.equal(model.source_embedding(tokens), model.source_embedding.table(tokens))


def test_a_decoder_may_start_with_the_vector_of_the_end_symbol() -> None:
    """fairseq's start: BOS is read as EOS, in whole sequences and in steps; the encoder is as ever."""
    model = small_model({"embeddings": {"start": "eos"}})
    source = torch.tensor([[4, 9, 2]])
    with torch.no_grad():
        bos, eos = (model.log_probs(source, torch.tensor([[start, 7]])) for start in (1, 2))
        first, _ = model.step(torch.tensor([1]), model.start(source))
    assert torch.equal(bos, eos)
    assert torch.allclose(first, eos[:, 0], atol=1e-5)
    plain = model.source_embedding
    assert not torch.equal(plain(torch.tensor([[1]])), plain(torch.tensor([[2]])))


@pytest.mark.parametrize("recurrence", [None, {"prelude": 1, "coda": 1, "rounds": 2}])
def test_a_stack_with_other_parts_runs_as_before(recurrence: object) -> None:
    """What training and analyses have set stays, and so does the mode."""
    stack = model({"recurrence": recurrence} if recurrence else {}).stack("encoder").eval()
    stack.recomputes, stack.dropped_calls, stack.call_scales = True, frozenset({3}), (2.0,) * 8
    recorder = CrossAttentionRecorder(None)
    less = stack.with_recorder(recorder).without([1])
    other = less.with_parts(connection=ConnectionWrapper(stack.connection))
    assert type(other) is type(stack)
    assert other.left_out == less.left_out == {2, 3}
    assert (other.recomputes, other.dropped_calls, other.call_scales) == (True, {3}, (2.0,) * 8)
    assert other.recorder is recorder
    other.recorder = less.recorder = None  # an encoder has nothing to record
    assert not other.training
    assert other.connection is not less.connection is stack.connection
    for name, parameter in stack.named_parameters():
        assert other.get_parameter(name.replace("connection.", "connection.inner.")) is parameter
    x, padding = torch.randn(1, 5, 16), torch.zeros(1, 1, 1, 5)
    assert torch.equal(other(x, Context(padding=padding))[0][0], less(x, Context(padding=padding))[0][0])


def test_an_inner_feed_forward_adds_a_network_and_a_norm_to_each_layer() -> None:
    plain, inner = (
        small_model({"decoder": {"connection": "post_norm", "inner_feed_forward": one}})
        for one in (False, True)
    )
    each = 2 * 16 * 24 + 24 + 2 * 16
    counts = [sum(parameter.numel() for parameter in one.parameters()) for one in (plain, inner)]
    assert counts[1] - counts[0] == 3 * each
    assert [call.kind for call in inner.decoder.calls[:4]] == [
        "mixer",
        "inner_feed_forward",
        "cross",
        "feed_forward",
    ]
    groups = inner.parameter_groups()
    assert groups["decoder inner feed-forward"] == 3 * (2 * 16 * 24 + 24)
