from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from deepwire.ops import cross_entropy
from deepwire.ops.cross_entropy import (
    SmoothingForm,
    linear_cross_entropy,
    linear_log_prob,
    without_ignored,
)

FORMS = get_args(SmoothingForm)


def textbook(
    hidden: Tensor, weight: Tensor, bias: Tensor | None, target: Tensor, smoothing: float, form: str
) -> tuple[Tensor, Tensor]:
    log_probs = torch.nn.functional.linear(hidden, weight, bias).log_softmax(-1)
    vocabulary = weight.size(0)
    nll = -log_probs.gather(1, target.unsqueeze(1)).sum()
    everywhere = -log_probs.sum()
    if form == "uniform":
        return (1 - smoothing) * nll + smoothing / vocabulary * everywhere, nll
    each = smoothing / (vocabulary - 1)
    return (1 - smoothing - each) * nll + each * everywhere, nll


def operands(
    tokens: int, size: int, vocabulary: int, with_bias: bool = True, dtype: torch.dtype = torch.float64
) -> tuple[Tensor, Tensor, Tensor | None, Tensor]:
    hidden = torch.randn(tokens, size, dtype=dtype, requires_grad=True)
    weight = torch.randn(vocabulary, size, dtype=dtype, requires_grad=True)
    bias = torch.randn(vocabulary, dtype=dtype, requires_grad=True) if with_bias else None
    return hidden, weight, bias, torch.randint(vocabulary, (tokens,))


@given(
    tokens=st.integers(0, 12),
    size=st.integers(1, 6),
    vocabulary=st.integers(2, 15),
    chunk=st.integers(1, 13),
    smoothing=st.sampled_from([0.0, 0.1, 0.3]),
    form=st.sampled_from(FORMS),
    with_bias=st.booleans(),
    factor=st.floats(-3, 3),
    seed=st.integers(0, 1000),
)
@settings(max_examples=60, deadline=None)
def test_value_and_gradients_equal_the_formula(
    tokens: int,
    size: int,
    vocabulary: int,
    chunk: int,
    smoothing: float,
    form: SmoothingForm,
    with_bias: bool,
    factor: float,
    seed: int,
) -> None:
    torch.manual_seed(seed)
    hidden, weight, bias, target = operands(tokens, size, vocabulary, with_bias)
    learned = [x for x in (hidden, weight, bias) if x is not None]
    smoothed, nll = linear_cross_entropy(
        hidden, weight, bias, target, smoothing=smoothing, form=form, chunk=chunk
    )
    wanted_smoothed, wanted_nll = textbook(hidden, weight, bias, target, smoothing, form)
    torch.testing.assert_close((smoothed, nll), (wanted_smoothed, wanted_nll.detach()))
    torch.testing.assert_close(
        torch.autograd.grad(factor * smoothed, learned),
        torch.autograd.grad(factor * wanted_smoothed, learned),
    )


@given(st.integers(1, 9), st.integers(1, 9), st.sampled_from(FORMS), st.booleans(), st.integers(0, 1000))
@settings(max_examples=40, deadline=None)
def test_weights_of_tokens(tokens: int, chunk: int, form: SmoothingForm, with_bias: bool, seed: int) -> None:
    """The sum of each token's loss times its weight, and its gradients, those of the weights included."""
    torch.manual_seed(seed)
    hidden, weight, bias, target = operands(tokens, 4, 7, with_bias)
    counts = torch.rand(tokens, dtype=torch.float64, requires_grad=True)
    learned = [x for x in (hidden, weight, bias, counts) if x is not None]
    found = linear_cross_entropy(
        hidden, weight, bias, target, smoothing=0.1, form=form, ignore=0, weights=counts, chunk=chunk
    )
    each = [textbook(*(hidden[[n]], weight, bias, target[[n]]), 0.1, form) for n in range(tokens)]
    real = [count * (ids != 0) for count, ids in zip(counts, target, strict=True)]
    wanted = [sum(w * one[part] for w, one in zip(real, each, strict=True)) for part in (0, 1)]
    torch.testing.assert_close(found, (wanted[0], wanted[1].detach()))
    torch.testing.assert_close(
        torch.autograd.grad(found[0], learned), torch.autograd.grad(wanted[0], learned)
    )


def test_without_gradients_the_values_are_the_same_and_no_gradient_is_computed() -> None:
    hidden, weight, bias, target = operands(6, 4, 9)
    with torch.no_grad():
        smoothed, nll = linear_cross_entropy(hidden, weight, bias, target, smoothing=0.1)
    assert not smoothed.requires_grad
    torch.testing.assert_close((smoothed, nll), textbook(hidden, weight, bias, target, 0.1, "uniform_wrong"))


@pytest.fixture
def rows_of_logits(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """Of each product with the output projection, from now on."""
    seen: list[int] = []
    original = cross_entropy._logits

    def watched(*inputs: Any) -> Tensor:
        logits = original(*inputs)
        seen.append(logits.size(0))
        return logits

    monkeypatch.setattr(cross_entropy, "_logits", watched)
    return seen


def test_all_logits_never_exist(rows_of_logits: list[int]) -> None:
    hidden, weight, bias, target = operands(50, 4, 9)
    linear_cross_entropy(hidden, weight, bias, target, smoothing=0.1, chunk=16)
    assert max(rows_of_logits) == 16
    assert sum(rows_of_logits) < 50 + 32
    rows_of_logits.clear()
    linear_log_prob(hidden, weight, bias, target, chunk=16)
    assert rows_of_logits == [16, 16, 16, 2]


def test_huge_logits_stay_finite() -> None:
    hidden = torch.tensor([[1e4], [-1e4]], requires_grad=True)
    weight = torch.tensor([[1.0], [-1.0], [0.0]], requires_grad=True)
    target = torch.tensor([1, 0])
    smoothed, nll = linear_cross_entropy(hidden, weight, None, target, smoothing=0.1)
    smoothed.backward()
    assert nll.item() == pytest.approx(4e4)
    assert smoothed.isfinite()
    assert hidden.grad is not None
    assert hidden.grad.isfinite().all()


def test_under_autocast_products_are_bfloat16_and_the_result_is_close_to_float32() -> None:
    torch.manual_seed(5)
    hidden, weight, bias, target = operands(40, 32, 50, dtype=torch.float32)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        smoothed, nll = linear_cross_entropy(hidden, weight, bias, target, smoothing=0.1, chunk=16)
    assert smoothed.dtype == nll.dtype == torch.float32
    smoothed.backward()
    assert bias is not None
    found = [hidden.grad, weight.grad, bias.grad]
    expected, _ = textbook(hidden, weight, bias, target, 0.1, "uniform_wrong")
    wanted = torch.autograd.grad(expected, (hidden, weight, bias))
    torch.testing.assert_close(smoothed, expected, rtol=1e-2, atol=0)
    for one, other in zip(found, wanted, strict=True):
        assert one is not None
        assert one.dtype == torch.float32
        assert (one - other).norm() < 0.02 * other.norm()
        assert not torch.equal(one, other)


@given(
    tokens=st.integers(1, 300),
    chunk=st.sampled_from([1, 7, 32, 64]),
    ignored=st.booleans(),
    weighted=st.booleans(),
    seed=st.integers(0, 1000),
)
@settings(max_examples=40, deadline=None)
def test_chunks_that_share_a_product_leave_no_token_out(
    tokens: int, chunk: int, ignored: bool, weighted: bool, seed: int
) -> None:
    """In bfloat16 the slopes of several chunks wait for the weights' gradient."""
    torch.manual_seed(seed)
    hidden, weight, bias, target = operands(tokens, 6, 15, dtype=torch.float32)
    assert bias is not None
    weights = torch.rand(tokens) if weighted else None
    others: dict[str, Any] = {"smoothing": 0.1, "ignore": 3 if ignored else None, "weights": weights}
    gradients = []
    for size in (chunk, 1024):
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=size == chunk):
            smoothed, _ = linear_cross_entropy(hidden, weight, bias, target, chunk=size, **others)
        gradients.append(torch.autograd.grad(smoothed, (hidden, weight, bias)))
    for found, exact in zip(*gradients, strict=True):
        assert float((found - exact).norm()) <= 0.02 * float(exact.norm()) + 0.02


@given(tokens=st.integers(0, 9), chunk=st.integers(1, 10), with_bias=st.booleans())
@settings(max_examples=30, deadline=None)
def test_log_prob_of_each_target(tokens: int, chunk: int, with_bias: bool) -> None:
    hidden, weight, bias, target = operands(tokens, 5, 8, with_bias)
    found = linear_log_prob(hidden, weight, bias, target, chunk)
    expected = torch.nn.functional.linear(hidden, weight, bias).log_softmax(-1)
    torch.testing.assert_close(found, expected.gather(1, target.unsqueeze(1)).squeeze(1).detach())
    assert not found.requires_grad


@pytest.mark.parametrize("left_out", [True, False])
@pytest.mark.parametrize("ignored", [(), (0, 3), (1, 2, 4), (0, 1, 2, 3, 4)])
def test_ignored_targets_count_nothing(ignored: tuple[int, ...], left_out: bool) -> None:
    """As if the caller had left those rows out, or computed them (as on GPUs) and counted them 0 times."""
    torch.manual_seed(1)
    hidden = torch.randn(5, 4, dtype=torch.float64, requires_grad=True)
    weight = torch.randn(7, 4, dtype=torch.float64, requires_grad=True)
    target = torch.tensor([1, 2, 3, 4, 5])
    target[list(ignored)] = 0
    real = target != 0
    if left_out:
        with_them = linear_cross_entropy(hidden, weight, None, target, smoothing=0.1, ignore=0)
    else:
        weights = without_ignored(target, 0, None, torch.float64)
        with_them = linear_cross_entropy(hidden, weight, None, target, smoothing=0.1, weights=weights)
    found = torch.autograd.grad(with_them[0], (hidden, weight))
    without = linear_cross_entropy(hidden[real], weight, None, target[real], smoothing=0.1)
    expected = torch.autograd.grad(without[0], (hidden, weight))
    for one, other in zip((*with_them, *found), (*without, *expected), strict=True):
        torch.testing.assert_close(one, other)


@pytest.mark.parametrize("smoothing", [0.0, 0.1])
def test_as_a_gpu_computes_it_it_is_the_same(smoothing: float, monkeypatch: pytest.MonkeyPatch) -> None:
    """With padding and weights of tokens: there they are factors of what is made of the logits."""
    torch.manual_seed(1)
    inputs = [
        torch.randn(*shape, dtype=torch.float64, requires_grad=True) for shape in ((9, 4), (7, 4), (7,), (9,))
    ]
    hidden, weight, bias, weights = inputs
    target = torch.tensor([1, 0, 3, 4, 0, 6, 2, 0, 5])

    def found() -> tuple[Tensor, ...]:
        loss, nll = linear_cross_entropy(
            hidden, weight, bias, target, smoothing=smoothing, ignore=0, weights=weights, chunk=4
        )
        return loss, nll, *torch.autograd.grad(loss, inputs)

    expected = found()
    monkeypatch.setattr(cross_entropy, "on_cpu", lambda x: False)
    torch.testing.assert_close(found(), expected)
