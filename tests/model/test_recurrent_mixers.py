"""LN-LSTM, ATR and GRU: in models, their equations, their options and their state."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError
from torch import Tensor
from torch.nn import functional

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.mixers.recurrent import ATRCell, Cell, GRUCell, LNLSTMCell, RecurrentMixer
from deepwire.testing import SMALL, check_model, small_model

LSTM, ATR, GRU = {"type": "ln_lstm"}, {"type": "atr"}, {"type": "gru"}
EPS = 1e-6


@pytest.mark.parametrize(
    "decoder",
    [
        {"mixer": "ln_lstm"},
        {"mixer": {**LSTM, "gate_norm": "joint", "bias": True}, "connection": "post_norm"},
        {"mixer": {**LSTM, "activation": "gelu"}, "connection": "depth_lstm"},
        {"mixer": LSTM, "aggregation": "dlcl", "fusion": {"type": "groups", "size": 2}},
        {"mixer": ATR, "connection": {"type": "pre_norm", "mixer_norm": False}},
        {"mixer": {**ATR, "carried": "product", "bias": False}, "connection": "depth_lstm"},
        {"mixer": ATR, "aggregation": "dlcl"},
        {"mixer": "gru"},
        {
            "mixer": {**GRU, "gate_norm": "separate", "bias": True, "activation": "relu"},
            "connection": "depth_rnn",
        },
        {"mixer": GRU, "aggregation": "dlcl", "connection": "post_norm"},
    ],
)
def test_models(decoder: Mapping[str, object]) -> None:
    """Gradients, padding, causality, steps and beams with other connections, aggregations and fusions."""
    check_model({"decoder": decoder})


@pytest.mark.parametrize(
    "encoder",
    [
        {"mixer": {**LSTM, "gate_norm": "joint", "bias": True}, "connection": "post_norm"},
        {"mixer": LSTM, "connection": "depth_lstm", "fusion": {"type": "groups", "size": 2}},
        {"mixer": ATR, "aggregation": "dlcl"},
        {"mixer": GRU, "connection": {"type": "pre_norm", "mixer_norm": False}},
    ],
)
def test_both_directions_in_an_encoder(encoder: Mapping[str, object]) -> None:
    """Gradients, padding on the right of both directions, and the rest of what every model must do."""
    check_model({"encoder": encoder})
    check_model({"encoder": encoder, "languages": {"norm": True}})


@pytest.mark.parametrize("name", ["ln_lstm", "atr", "gru"])
def test_an_encoder_reads_each_sentence_from_both_ends(name: str) -> None:
    """Word by word and sentence by sentence: one cell from the first word on, another from the last."""
    model = small_model({"encoder": {"mixer": name}})
    mixer: Any = model.encoder.mixers[1]
    assert mixer.ahead.cell.dim == mixer.back.cell.dim == 8
    x, lengths = torch.randn(3, 6, 16), [6, 1, 4]
    padding = torch.zeros(3, 1, 1, 6)
    for row, length in enumerate(lengths):
        padding[row, ..., length:] = float("-inf")
    with torch.no_grad():
        found = mixer(x, Context(padding=padding))
        unpadded = mixer(x[:1], Context())
        torch.testing.assert_close(unpadded, found[:1])
        for row, length in enumerate(lengths):
            for part, half, words in (
                (mixer.ahead, slice(0, 8), range(length)),
                (mixer.back, slice(8, 16), reversed(range(length))),
            ):
                state = tuple(leaf.unsqueeze(0) for leaf in part.initial)
                for word in words:
                    state = advance(part.cell, x[row, word : word + 1], state)
                    torch.testing.assert_close(found[row, word, half], state[0][0], atol=2e-5, rtol=1e-5)


def test_an_encoder_is_not_read_step_by_step() -> None:
    """One of its cells begins at the end."""
    mixer = small_model({"encoder": {"mixer": "atr"}}).encoder.mixers[0]
    with pytest.raises(NotImplementedError, match="whole sentences"):
        mixer.init_state(1, torch.zeros(1, 1, 16))


def advance(cell: Cell, x: Tensor, state: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    """One step without dropout."""
    read, recurrent = cell.linear_maps()
    return cell(read.apply(x), state, recurrent, None, Context())


def disturbed(cell: Cell) -> Cell:
    """The same cell with parameters away from ones and zeros."""
    with torch.no_grad():
        for parameter in cell.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    return cell


def norm(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Layer norm over the last axis, written out."""
    mean = x.mean(-1, keepdim=True)
    return (x - mean) / ((x - mean).square().mean(-1, keepdim=True) + EPS).sqrt() * weight + bias


@pytest.mark.parametrize("bias", [False, True])
def test_ln_lstm_is_equations_1_to_8(bias: bool) -> None:
    """Xu et al. 2021: one matrix and one norm for each gate and the hidden state."""
    cell = disturbed(LNLSTMCell(5, 6, eps=EPS, bias=bias))
    x, output, memory = torch.randn(3, 5), torch.randn(3, 6), torch.randn(3, 6)
    both = torch.cat((x, output), -1)
    parts = []
    for number in range(4):
        rows = slice(6 * number, 6 * (number + 1))
        pre = both @ cell.linear.weight[rows].t() + (cell.linear.bias[rows] if bias else 0)
        parts.append(norm(pre, cell.norm.weight[number], cell.norm.bias[number]))
    input_gate, keep, let_out = (part.sigmoid() for part in parts[:3])
    expected = memory * keep + parts[3].tanh() * input_gate
    found = advance(cell, x, (output, memory))
    torch.testing.assert_close(found, (expected * let_out, expected))


def test_the_joint_norm_has_one_mean_and_variance() -> None:
    """Neutron's: the same parameters, statistics over gates and hidden state together."""
    cell = disturbed(LNLSTMCell(5, 6, eps=EPS, gate_norm="joint"))
    x, state = torch.randn(3, 5), (torch.randn(3, 6), torch.randn(3, 6))
    pre = torch.cat((x, state[0]), -1) @ cell.linear.weight.t()
    parts = norm(pre, cell.norm.weight.flatten(), cell.norm.bias.flatten()).chunk(4, 1)
    expected = state[1] * parts[1].sigmoid() + parts[3].tanh() * parts[0].sigmoid()
    torch.testing.assert_close(advance(cell, x, state)[1], expected)
    separate = LNLSTMCell(5, 6, eps=EPS)
    separate.load_state_dict(cell.state_dict())
    assert not torch.allclose(advance(separate, x, state)[1], expected, atol=1e-3)


@pytest.mark.parametrize(
    ("name", "function"), [("tanh", torch.tanh), ("relu", functional.relu), ("gelu", functional.gelu)]
)
def test_activation_of_the_hidden_state(
    name: Literal["tanh", "relu", "gelu"], function: Callable[[Tensor], Tensor]
) -> None:
    """Open gates and an empty cell show the activation alone."""
    cell = LNLSTMCell(2, 3, eps=EPS, activation=name)
    with torch.no_grad():
        cell.norm.weight[:3] = 0
        cell.norm.bias[:3] = 40
        cell.norm.bias[3] = torch.tensor([-0.7, 0.2, 1.5])
        cell.norm.weight[3] = 0
    found, _ = advance(cell, torch.randn(1, 2), (torch.randn(1, 3), torch.zeros(1, 3)))
    torch.testing.assert_close(found[0], function(cell.norm.bias[3]))


@pytest.mark.parametrize("carried", ["state", "product"])
@pytest.mark.parametrize("bias", [False, True])
def test_atr_in_both_published_forms(carried: Literal["state", "product"], bias: bool) -> None:
    """h' = i p + f h in the paper, i p + f q in Neutron."""
    cell = disturbed(ATRCell(5, 6, carried=carried, bias=bias))
    x, output = torch.randn(3, 5), torch.randn(3, 6)
    p = x @ cell.input.weight.t() + (cell.input.bias if bias else 0)
    q = output @ cell.recurrent.weight.t() + (cell.recurrent.bias if bias else 0)
    past = output if carried == "state" else q
    expected = (p + q).sigmoid() * p + (p - q).sigmoid() * past
    torch.testing.assert_close(advance(cell, x, (output,))[0], expected)


@pytest.mark.parametrize("joint", [False, True])
@pytest.mark.parametrize("bias", [False, True])
def test_gru(joint: bool, bias: bool) -> None:
    """Gates from input and output together; the reset gate works on the product of the output."""
    cell: Any = disturbed(GRUCell(5, 6, eps=EPS, gate_norm="joint" if joint else "separate", bias=bias))
    x, output = torch.randn(3, 5), torch.randn(3, 6)
    gates = cell.gates(torch.cat((x, output), -1))
    weight, shift = cell.gate_norm.weight, cell.gate_norm.bias
    if joint:
        reset, keep = norm(gates, weight.flatten(), shift.flatten()).sigmoid().chunk(2, 1)
    else:
        reset, keep = norm(gates.unflatten(1, (2, 6)), weight, shift).sigmoid().unbind(1)
    candidate = norm(cell.input(x) + reset * cell.recurrent(output), cell.norm.weight, cell.norm.bias).tanh()
    torch.testing.assert_close(advance(cell, x, (output,))[0], (1 - keep) * candidate + keep * output)


CELLS = {
    "ln_lstm": lambda width, dim: LNLSTMCell(width, dim, eps=EPS),
    "joint": lambda width, dim: LNLSTMCell(width, dim, eps=EPS, gate_norm="joint", bias=True),
    "atr": ATRCell,
    "atr_product": lambda width, dim: ATRCell(width, dim, carried="product"),
    "gru": lambda width, dim: GRUCell(width, dim, eps=EPS, bias=True),
}


@settings(max_examples=30, deadline=None)
@given(
    name=st.sampled_from(sorted(CELLS)),
    width=st.integers(1, 9),
    dim=st.integers(2, 9),
    length=st.integers(1, 12),
    seed=st.integers(0, 2**31),
)
def test_a_sequence_is_its_steps(name: str, width: int, dim: int, length: int, seed: int) -> None:
    """At every length, and for every width of input and output."""
    torch.manual_seed(seed)
    mixer = RecurrentMixer(disturbed(CELLS[name](width, dim)))
    x = torch.randn(2, length, width)
    with torch.no_grad():
        mixer.initial.normal_()
        whole = mixer(x, Context())
        assert whole.shape == (2, length, dim)
        state = mixer.init_state(2, x)
        for position in range(length):
            found, state = mixer.step(
                x[:, position : position + 1], state, Context(index=CacheIndex(len(x), position=position))
            )
            torch.testing.assert_close(found[:, 0], whole[:, position], atol=2e-5, rtol=1e-5)


@pytest.mark.parametrize("name", sorted(CELLS))
def test_the_initial_state_is_learned_and_begins_at_zero(name: str) -> None:
    """One for all rows; the first output depends on all of it."""
    mixer = RecurrentMixer(CELLS[name](4, 4))
    assert not mixer.initial.any()
    x = torch.randn(1, 3, 4).expand(5, 3, 4)
    y = mixer(x, Context())
    torch.testing.assert_close(y, y[:1].expand_as(y))
    y.square().sum().backward()
    assert mixer.initial.grad is not None
    assert mixer.initial.grad.abs().sum(1).gt(0).all()


@pytest.mark.parametrize("name", ["ln_lstm", "gru"])
def test_dropout_falls_on_the_candidate(name: str) -> None:
    """A candidate that is dropped lets nothing in: with all dropped, a state of zeros stays zero."""
    torch.manual_seed(0)
    mixer = RecurrentMixer(CELLS[name](8, 8))
    mixer.cell.dropout = 0.999999
    x = torch.randn(4, 6, 8)
    assert not mixer.train()(x, Context()).any()
    assert mixer.eval()(x, Context()).any()
    mixer.cell.dropout = 0.5
    found, again = mixer.train()(x, Context()), mixer(x, Context())
    assert not torch.equal(found, again)


def test_dropout_is_that_of_activations() -> None:
    """`dropout.activation` reaches the cells that have a candidate; ATR drops nothing."""
    for name, expected in (("ln_lstm", 0.3), ("gru", 0.3), ("atr", 0.0)):
        model = small_model({"decoder": {"mixer": name}, "dropout": {"activation": 0.3}})
        assert model.decoder.mixers[0].cell.dropout == expected


@pytest.mark.parametrize("mixer", ["ln_lstm", "atr", "gru"])
def test_narrow_types(mixer: str) -> None:
    """Autocast and a bfloat16 model: training is finite, steps agree, the state is carried in float32."""
    model = small_model({"decoder": {"mixer": mixer}})
    source, target = torch.tensor([[4, 9, 2]]), torch.tensor([[1, 5, 9, 12]])
    with torch.no_grad():
        exact = model.log_probs(source, target)
    with torch.autocast("cpu", torch.bfloat16):
        model.loss(source, target, target).smoothed.backward()
    assert all(parameter.grad.isfinite().all() for parameter in model.parameters())
    model = model.to(torch.bfloat16)
    with torch.no_grad():
        whole = model.log_probs(source, target)
        assert torch.allclose(whole, exact, atol=0.2)
        state = model.start(source)
        for position in range(4):
            found, state = model.step(target[:, position], state)
            assert torch.allclose(found, whole[:, position], atol=0.1)
    assert all(leaf.dtype == torch.float32 for leaves in state.states for leaf in leaves)


def test_a_compiled_graph_leaves_the_loop_out() -> None:
    """What is compiled does not depend on the length, and the numbers stay the same."""
    graphs = []

    def backend(graph: torch.fx.GraphModule, _inputs: object) -> object:
        graphs.append(graph)
        return graph.forward

    torch._dynamo.reset()
    mixer = RecurrentMixer(CELLS["atr"](4, 4))
    compiled = torch.compile(lambda x: mixer(2 * x, Context()) + 1, backend=backend, dynamic=True)
    for length in (3, 5, 9):
        x = torch.randn(2, length, 4)
        torch.testing.assert_close(compiled(x), mixer(2 * x, Context()) + 1)
    assert len(graphs) == 2  # before the loop and after it


@pytest.mark.parametrize(
    ("stack", "message"),
    [
        ({"decoder": {"mixer": {**LSTM, "activation": "glu"}}}, "'tanh', 'relu' or 'gelu'"),
        ({"decoder": {"mixer": {**LSTM, "gate_norm": "both"}}}, "'separate' or 'joint'"),
        ({"decoder": {"mixer": {**ATR, "carried": "gate"}}}, "'state' or 'product'"),
        ({"decoder": {"mixer": {**ATR, "activation": "tanh"}}}, "Extra inputs"),
    ],
)
def test_wrong_settings_are_refused(stack: Mapping[str, object], message: str) -> None:
    """With the reason."""
    with pytest.raises(ValidationError, match=message):
        ModelConfig.model_validate({**SMALL, **stack})


@pytest.mark.parametrize(("mixer", "expected"), [("ln_lstm", "68.69"), ("atr", "59.23")])
def test_size_in_the_decoder_of_transformer_base(mixer: str, expected: str) -> None:
    """Six layers of each in place of self-attention and its norm, 35,627 subwords, in millions."""
    plain = {"type": "pre_norm", "residual": "normalised"}
    config = ModelConfig.model_validate(
        {
            "encoder": {"connection": plain},
            "decoder": {"mixer": mixer, "connection": {**plain, "mixer_norm": False}},
        }
    )
    with torch.device("meta"):
        model = build_model(config, 35_627, 35_627)
    assert f"{sum(parameter.numel() for parameter in model.parameters()) / 1e6:.2f}" == expected
