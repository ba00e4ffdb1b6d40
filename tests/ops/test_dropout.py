from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepwire.ops.dropout import Dropout, dropout


@given(
    shape=st.lists(st.integers(0, 7), min_size=0, max_size=4),
    probability=st.floats(0.001, 0.95),
    seed=st.integers(0, 2**31),
)
@settings(max_examples=40, deadline=None)
def test_each_number_is_zero_or_scaled_and_the_gradient_follows(
    shape: list[int], probability: float, seed: int
) -> None:
    torch.manual_seed(seed)
    x = torch.rand(shape, dtype=torch.float64).add(1).requires_grad_()
    out = dropout(x, probability, training=True)
    assert out.shape == x.shape
    kept = out != 0
    torch.testing.assert_close(out[kept], x[kept] / (1 - probability), rtol=1e-3, atol=0)
    (grad,) = torch.autograd.grad(out.sum(), x)
    torch.testing.assert_close(grad, out.detach() / x.detach())


@pytest.mark.parametrize("probability", [0.05, 0.1, 0.3, 0.5, 0.9])
def test_share_and_mean_are_right(probability: float) -> None:
    torch.manual_seed(1)
    count = 1_000_000
    out = dropout(torch.ones(count), probability, training=True)
    # Five standard deviations of the binomial share.
    slack = 5 * (probability * (1 - probability) / count) ** 0.5
    assert abs((out == 0).double().mean().item() - probability) < slack
    assert out.double().mean().item() == pytest.approx(1, abs=slack / (1 - probability) + 2e-5)


def test_neighbours_rows_and_calls_are_independent() -> None:
    torch.manual_seed(2)
    first, second = (dropout(torch.ones(1000, 1000), 0.5, training=True).bool().double() for _ in range(2))
    pairs = {
        "neighbours": (first[:, :-1], first[:, 1:]),
        "four apart": (first[:, :-4], first[:, 4:]),
        "rows": (first[:-1], first[1:]),
        "calls": (first, second),
    }
    for name, (one, other) in pairs.items():
        assert abs((one * other).mean().item() - 0.25) < 5 * 0.433 / 999_000**0.5, name


def test_the_seed_decides() -> None:
    x = torch.ones(1001)
    torch.manual_seed(7)
    first, second = dropout(x, 0.3, training=True), dropout(x, 0.3, training=True)
    torch.manual_seed(7)
    assert torch.equal(dropout(x, 0.3, training=True), first)
    assert torch.equal(dropout(x, 0.3, training=True), second)
    assert not torch.equal(first, second)


def test_nothing_is_dropped_outside_training_or_at_zero() -> None:
    x = torch.ones(10)
    layer = Dropout(0.5)
    assert layer.eval()(x) is x
    assert (layer.train()(torch.ones(1000)) == 0).any()
    assert dropout(x, 0.0, training=True) is x
    assert repr(layer) == "Dropout(0.5)"
