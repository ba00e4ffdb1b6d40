"""SSRU, minGRU and minLSTM: in models, in narrow number formats, at extreme gates, and what is refused."""

from __future__ import annotations

import pytest
import torch

from deepwire.model.mixers.linear_rnn import LinearRNN, MinGRU, MinLSTM, positive
from deepwire.testing import small_model

KINDS = ("ssru", "min_gru", "min_lstm")


def mixer(name: str, side: str = "decoder") -> LinearRNN:
    """The second mixer of a small model."""
    found = getattr(small_model({side: {"mixer": name}}), side).mixers[1]
    assert isinstance(found, LinearRNN)
    return found


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
