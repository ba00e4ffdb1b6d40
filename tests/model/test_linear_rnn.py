"""SSRU, minGRU and minLSTM: in models, in narrow number formats, at extreme gates, and what is refused."""

from __future__ import annotations

import pytest
import torch

from deepwire.model.context import Context
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.mixers.linear_rnn import LinearRNN, MinGRU, MinLSTM, positive
from deepwire.testing import small_model

KINDS = ("ssru", "min_gru", "min_lstm")


def mixer(name: str, side: str = "decoder") -> LinearRNN:
    """The second mixer of a small model."""
    found = getattr(small_model({side: {"mixer": name}}), side).mixers[1]
    assert isinstance(found, LinearRNN)
    return found


@pytest.mark.parametrize("name", KINDS)
def test_each_direction_of_an_encoder_has_a_mixer(name: str) -> None:
    """The second half of the features is what a mixer of its own makes of the sentence turned around."""
    both = small_model({"encoder": {"mixer": name}}).encoder.mixers[0]
    x = torch.randn(2, 5, 16)
    padding = torch.zeros(2, 1, 1, 5)
    padding[1, ..., 3:] = float("-inf")
    with torch.no_grad():
        found = both(x, Context(padding=padding))
        torch.testing.assert_close(found[..., :8], both.ahead(x, Context()))
        for row, length in ((0, 5), (1, 3)):
            turned = both.back(x[row : row + 1, :length].flip(1), Context()).flip(1)
            torch.testing.assert_close(found[row : row + 1, :length, 8:], turned)


@pytest.mark.parametrize("name", KINDS)
@pytest.mark.parametrize("whole_model", [False, True])
def test_half_precision(name: str, whole_model: bool) -> None:
    """Under autocast and in a bfloat16 model; the state stays float32 from step to step."""
    torch.manual_seed(1)
    built, x = mixer(name), torch.randn(2, 6, 16)
    expected = built(x, Context())
    if whole_model:
        built, x = built.bfloat16(), x.bfloat16()
    with torch.autocast("cpu", torch.bfloat16, enabled=not whole_model):
        found = built(x, Context())
        assert found.dtype == x.dtype
        torch.testing.assert_close(found.float(), expected, rtol=0.05, atol=0.05)
        state = built.init_state(2, x)
        for position in range(6):
            step, state = built.step(
                x[:, position : position + 1], state, Context(index=CacheIndex(2, position=position))
            )
            torch.testing.assert_close(step[:, 0], found[:, position], rtol=0.02, atol=0.02)
    assert state[0].dtype == torch.float32


@pytest.mark.parametrize("name", KINDS)
def test_a_long_memory_is_as_long_in_bfloat16(name: str) -> None:
    """A gate of 0.9975, for which bfloat16 has no number, keeps 0.53 of a cell over 256 positions."""
    built, length = mixer(name).bfloat16(), 256
    forget = torch.tensor(6.0)
    with torch.no_grad():
        built.maps.weight.zero_()
        first = built.maps.weight[: built.state_width]
        # Every input is a one in the first place and a zero elsewhere.
        first[:, 0] = -forget if isinstance(built, MinGRU) else forget
        if name == "ssru":
            built.get_parameter("forget_bias").zero_()
        x = torch.zeros(1, length, 16, dtype=torch.bfloat16)
        x[..., 0] = 1
        begin = torch.full((1, built.state_width), 1000.0)
        kept = built.cells(x, begin) - built.cells(x)
    gate = forget.double().sigmoid()
    if isinstance(built, MinLSTM):
        gate = gate / (gate + 0.5)
    expected = torch.full((built.state_width,), 1000 * float(gate**length), dtype=torch.float64)
    torch.testing.assert_close(kept[-1, 0].double(), expected, rtol=1e-3, atol=1e-3)


def test_gates_of_a_min_lstm_may_both_be_closed() -> None:
    """Their quotient is one of two numbers too small for the number format; equal gates share evenly."""
    gates = torch.tensor([[-200.0, -200.0, 0.0], [-300.0, -200.0, 0.0], [200.0, -200.0, 0.0]])
    forget, update = MinLSTM(1, 1, 1).gates(gates.requires_grad_())
    torch.testing.assert_close(forget.flatten(), torch.tensor([0.5, 0.0, 1.0]))
    torch.testing.assert_close(update.flatten(), torch.tensor([0.25, 0.5, 0.0]))
    (forget + update).sum().backward()
    assert gates.grad is not None
    assert torch.isfinite(gates.grad).all()


def test_candidates_are_positive_and_continuous() -> None:
    values = positive(torch.tensor([-100.0, -1e-6, 0.0, 2.0]))
    torch.testing.assert_close(values, torch.tensor([0.0, 0.5, 0.5, 2.5]))


@pytest.mark.parametrize("side", ["encoder", "decoder"])
def test_compiled_without_a_break(side: str) -> None:
    """One graph, in both directions too."""
    built = small_model({side: {"mixer": "min_lstm"}}).double()
    found = (built.encoder if side == "encoder" else built.decoder).mixers[0]
    x = torch.randn(2, 5, 16, dtype=torch.float64, requires_grad=True)
    torch._dynamo.reset()
    compiled = torch.compile(found.forward, backend="aot_eager", fullgraph=True)(x, Context())
    expected = found(x, Context())
    torch.testing.assert_close(compiled, expected)
    torch.testing.assert_close(torch.autograd.grad(compiled.sum(), x), torch.autograd.grad(expected.sum(), x))
