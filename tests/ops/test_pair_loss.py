"""R-Drop and SimCut against their formulas with all logits at once."""

from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from deepwire.ops.cross_entropy import SmoothingForm
from deepwire.ops.pair_loss import Formula, linear_pair_loss, r_drop, sim_cut

FORMS = get_args(SmoothingForm)
both = pytest.mark.parametrize("formula", [r_drop, sim_cut])


def textbook(
    formula: Formula,
    hidden: Tensor,
    weight: Tensor,
    bias: Tensor | None,
    target: Tensor,
    alpha: float,
    smoothing: float,
    form: SmoothingForm,
) -> tuple[Tensor, Tensor, Tensor]:
    """(loss, nll, divergence) by torch's own functions."""
    vocabulary = weight.size(0)
    wrong = smoothing / (vocabulary - 1 if form == "uniform_wrong" else vocabulary)
    wanted = torch.full((len(target), vocabulary), wrong, dtype=hidden.dtype)
    right = 1 - smoothing + (wrong if form == "uniform" else 0)
    wanted.scatter_(1, target.unsqueeze(1), right)
    first, second = (functional.linear(one, weight, bias).log_softmax(1) for one in hidden)
    crosses = [functional.cross_entropy(one, wanted, reduction="sum") for one in (first, second)]
    nlls = [functional.nll_loss(one, target, reduction="sum") for one in (first, second)]
    of_second, of_first = (
        functional.kl_div(one, other, reduction="sum", log_target=True)
        for one, other in ((first, second), (second, first))
    )
    if formula is sim_cut:
        return crosses[0] + alpha * of_first, nlls[0], of_first
    divergence = (of_first + of_second) / 2
    return (crosses[0] + crosses[1] + alpha * divergence) / 2, (nlls[0] + nlls[1]) / 2, divergence


def operands(
    tokens: int, size: int, vocabulary: int, bias: bool = True
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    hidden = torch.randn(2, tokens, size, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(vocabulary, size, dtype=torch.float64, requires_grad=True)
    row = torch.randn(vocabulary, dtype=torch.float64, requires_grad=True) if bias else None
    return hidden, weight, row, torch.randint(vocabulary, (tokens,))


@both
def test_weights_of_tokens(formula: Formula) -> None:
    """The sum of each token's loss times its weight, and its gradients, those of the weights included."""
    torch.manual_seed(1)
    hidden, weight, row, target = operands(5, 4, 7)
    assert row is not None
    counts = torch.rand(5, dtype=torch.float64, requires_grad=True)
    options: dict[str, Any] = {"formula": formula, "alpha": 2.0, "smoothing": 0.1}
    found = linear_pair_loss(hidden, weight, row, target, **options, weights=counts, chunk=2)
    each = [linear_pair_loss(hidden[:, [n]], weight, row, target[[n]], **options) for n in range(5)]
    values = [torch.stack([one.detach() for one in sums]) for sums in each]
    wanted = torch.stack([one.detach() for one in found])
    torch.testing.assert_close(wanted, sum(w.detach() * one for w, one in zip(counts, values, strict=True)))
    total = sum(count * sums.loss for count, sums in zip(counts, each, strict=True))
    learned = [hidden, weight, row, counts]
    torch.testing.assert_close(torch.autograd.grad(found.loss, learned), torch.autograd.grad(total, learned))


@both
@given(
    tokens=st.integers(0, 9),
    vocabulary=st.integers(2, 12),
    chunk=st.integers(1, 10),
    smoothing=st.sampled_from([0.0, 0.1]),
    form=st.sampled_from(FORMS),
    alpha=st.sampled_from([0.5, 5.0]),
    bias=st.booleans(),
    factor=st.floats(-3, 3),
    seed=st.integers(0, 1000),
)
@settings(max_examples=40, deadline=None)
def test_values_and_gradients_equal_the_formula(
    formula: Formula,
    tokens: int,
    vocabulary: int,
    chunk: int,
    smoothing: float,
    form: SmoothingForm,
    alpha: float,
    bias: bool,
    factor: float,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    hidden, weight, row, target = operands(tokens, 4, vocabulary, bias)
    learned = [x for x in (hidden, weight, row) if x is not None]
    options: dict[str, Any] = {"alpha": alpha, "smoothing": smoothing, "form": form}
    found = linear_pair_loss(hidden, weight, row, target, formula=formula, **options, chunk=chunk)
    wanted = textbook(formula, hidden, weight, row, target, **options)
    torch.testing.assert_close(tuple(found), (wanted[0], wanted[1].detach(), wanted[2].detach()))
    torch.testing.assert_close(
        torch.autograd.grad(factor * found.loss, learned), torch.autograd.grad(factor * wanted[0], learned)
    )


def test_under_autocast_products_are_in_its_type_and_gradients_in_float32() -> None:
    torch.manual_seed(1)
    hidden, weight = torch.randn(2, 5, 8, requires_grad=True), torch.randn(11, 8, requires_grad=True)
    target = torch.randint(11, (5,))
    options: dict[str, Any] = {"formula": r_drop, "alpha": 2.0, "smoothing": 0.1}
    with torch.autocast("cpu", dtype=torch.bfloat16):
        low = linear_pair_loss(hidden, weight, None, target, **options)
    low.loss.backward()
    assert (low.loss.dtype, weight.grad.dtype, hidden.grad.dtype) == (torch.float32,) * 3
    full = linear_pair_loss(hidden, weight, None, target, **options)
    assert low.loss.item() == pytest.approx(full.loss.item(), rel=0.03)
    assert low.loss.item() != full.loss.item()
