from __future__ import annotations

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deepwire.ops.linear_recurrence import linear_recurrence, sum_of_past

lengths = st.integers(1, 9)
shapes = st.lists(st.integers(1, 4), min_size=0, max_size=3)


def by_hand(keep: Tensor, update: Tensor, initial: Tensor) -> Tensor:
    cell, cells = initial, []
    for kept, added in zip(keep, update, strict=True):
        cell = kept * cell + added
        cells.append(cell)
    return torch.stack(cells)


def draw(length: int, shape: list[int], seed: int) -> tuple[Tensor, Tensor, Tensor]:
    torch.manual_seed(seed)
    keep = torch.rand(length, *shape, dtype=torch.float64, requires_grad=True)
    update = torch.randn(length, *shape, dtype=torch.float64, requires_grad=True)
    return keep, update, torch.randn(shape, dtype=torch.float64, requires_grad=True)


@given(length=lengths, shape=shapes, seed=st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_recurrence_and_its_gradients_are_those_of_the_formula(
    length: int, shape: list[int], seed: int
) -> None:
    arguments = draw(length, shape, seed)
    found, expected = linear_recurrence(*arguments), by_hand(*arguments)
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(expected)
    torch.testing.assert_close(
        torch.autograd.grad((found * weights).sum(), arguments),
        torch.autograd.grad((expected * weights).sum(), arguments),
    )


@given(length=lengths, shape=shapes, seed=st.integers(0, 2**31))
@settings(max_examples=30, deadline=None)
def test_sum_of_the_past_is_the_sum_of_what_came_before(length: int, shape: list[int], seed: int) -> None:
    x = draw(length, shape, seed)[1]
    found = sum_of_past(x)
    expected = torch.stack([x[:t].sum(0) for t in range(length)])
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(expected)
    (gradient,) = torch.autograd.grad((found * weights).sum(), x)
    torch.testing.assert_close(gradient, torch.stack([weights[t + 1 :].sum(0) for t in range(length)]))


@pytest.mark.parametrize("gate", [0.0, 1e-30, 1.0])
def test_gates_of_any_size_over_a_long_sequence(gate: float) -> None:
    """Nothing divides by the product of the gates, which is 0 in float32 here."""
    keep = torch.full((300, 2), gate, requires_grad=True)
    update = torch.ones(300, 2, requires_grad=True)
    cells = linear_recurrence(keep, update, torch.ones(2))
    expected = 301.0 if gate == 1 else 1.0
    assert cells[-1].tolist() == [expected, expected]
    cells.sum().backward()
    assert keep.grad is not None
    assert torch.isfinite(keep.grad).all()


def test_half_precision_is_computed_in_float32() -> None:
    """A thousand steps of 1/256 are exact in float32; in bfloat16 the cell would stop growing."""
    keep = torch.ones(1000, 1, dtype=torch.bfloat16, requires_grad=True)
    update = torch.full((1000, 1), 2.0**-8, dtype=torch.bfloat16, requires_grad=True)
    cells = linear_recurrence(keep, update, torch.zeros(1, dtype=torch.bfloat16))
    assert cells.dtype == torch.float32
    assert cells[-1].item() == 1000 / 256
    assert sum_of_past(update)[-1].item() == 999 / 256
    cells.sum().backward()
    assert update.grad is not None
    assert update.grad.dtype == torch.bfloat16
