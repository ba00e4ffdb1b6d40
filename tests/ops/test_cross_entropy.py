from __future__ import annotations

from typing import Any, get_args

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor
from torch.nn import functional

from deepwire.ops import cross_entropy
from deepwire.ops.cross_entropy import (
    SmoothingForm,
    linear_cross_entropy,
    linear_log_prob,
    smoothing_masses,
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
@settings(max_examples=120, deadline=None)
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


@pytest.mark.parametrize("form", FORMS)
def test_gradients_by_finite_differences(form: SmoothingForm) -> None:
    hidden, weight, bias, target = operands(7, 5, 11)
    assert bias is not None
    assert torch.autograd.gradcheck(
        lambda h, w, b: linear_cross_entropy(h, w, b, target, smoothing=0.1, form=form, chunk=3)[0],
        (hidden, weight, bias),
    )


@pytest.mark.parametrize("learning", ["hidden", "weight", "bias"])
def test_only_what_learns_gets_a_gradient(learning: str) -> None:
    hidden, weight, bias, target = operands(6, 4, 9)
    inputs = {"hidden": hidden, "weight": weight, "bias": bias}
    for name, tensor in inputs.items():
        assert tensor is not None
        tensor.requires_grad_(name == learning)
    smoothed, _ = linear_cross_entropy(hidden, weight, bias, target, smoothing=0.1, chunk=4)
    smoothed.backward()
    expected, _ = textbook(hidden, weight, bias, target, 0.1, "uniform_wrong")
    chosen = inputs[learning]
    assert chosen is not None
    torch.testing.assert_close(chosen.grad, torch.autograd.grad(expected, chosen)[0])
    assert all(x is not None and x.grad is None for name, x in inputs.items() if name != learning)


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


def test_a_weight_that_is_also_the_embedding_gets_both_gradients() -> None:
    weight = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    ids, target = torch.randint(9, (5,)), torch.randint(9, (5,))
    linear_cross_entropy(weight[ids].tanh(), weight, None, target, smoothing=0.1)[0].backward()
    found = weight.grad
    weight.grad = None
    textbook(weight[ids].tanh(), weight, None, target, 0.1, "uniform_wrong")[0].backward()
    torch.testing.assert_close(found, weight.grad)


def test_backward_twice_through_a_kept_graph_adds_up() -> None:
    hidden, weight, bias, target = operands(6, 4, 9)
    smoothed, _ = linear_cross_entropy(hidden, weight, bias, target, smoothing=0.1)
    smoothed.backward(retain_graph=True)
    assert hidden.grad is not None
    once = hidden.grad.clone()
    smoothed.backward()
    torch.testing.assert_close(hidden.grad, 2 * once)


def test_what_the_graph_holds_goes_with_the_backward_pass() -> None:
    """A gradient of the size of the vocabulary must not wait for the next forward pass to end."""
    hidden, weight = torch.randn(4, 6, requires_grad=True), torch.randn(9, 6, requires_grad=True)
    smoothed, _ = linear_cross_entropy(hidden, weight, None, torch.arange(4), smoothing=0.1)
    smoothed.backward()
    with pytest.raises(RuntimeError, match="second time"):
        smoothed.backward()


def test_without_gradients_the_values_are_the_same_and_no_gradient_is_computed() -> None:
    hidden, weight, bias, target = operands(6, 4, 9)
    with torch.no_grad():
        smoothed, nll = linear_cross_entropy(hidden, weight, bias, target, smoothing=0.1)
    assert not smoothed.requires_grad
    torch.testing.assert_close((smoothed, nll), textbook(hidden, weight, bias, target, 0.1, "uniform_wrong"))


def test_the_plain_sum_is_detached() -> None:
    hidden, weight, bias, target = operands(6, 4, 9)
    _, nll = linear_cross_entropy(hidden, weight, bias, target, smoothing=0.1)
    assert not nll.requires_grad


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


def test_another_number_of_tokens_makes_products_of_the_same_shape(rows_of_logits: list[int]) -> None:
    hidden, weight, bias, target = operands(50, 4, 9)
    for ignored in (1, 8, 15):
        target[:ignored] = -1
        linear_cross_entropy(hidden, weight, bias, target, smoothing=0.1, ignore=-1)
    assert rows_of_logits == [64, 64, 64]


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


@pytest.mark.parametrize("shift", [-20.0, 0.0, 20.0])
def test_in_bfloat16_the_plain_loss_errs_by_the_rounding_of_a_probability(shift: float) -> None:
    generator = torch.Generator().manual_seed(9)
    # Numbers that bfloat16 holds exactly, so that only probabilities are rounded.
    weight = torch.randint(-16, 17, (60, 1), generator=generator) / 4
    target = torch.randint(60, (30,), generator=generator)
    hidden, bias = torch.ones(30, 1), torch.full((60,), shift)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        _, nll = linear_cross_entropy(hidden, weight, bias, target, smoothing=0.0)
    wanted = functional.cross_entropy(hidden @ weight.t() + bias, target, reduction="sum")
    assert abs(nll - wanted) <= 30 * 2**-8


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


def test_bfloat16_hidden_with_float32_weights_under_autocast() -> None:
    hidden, weight, _, target = operands(8, 16, 20, with_bias=False, dtype=torch.float32)
    low = hidden.detach().bfloat16().requires_grad_()
    with torch.autocast("cpu", dtype=torch.bfloat16):
        linear_cross_entropy(low, weight, None, target, smoothing=0.1)[0].backward()
    assert low.grad is not None
    assert low.grad.dtype == torch.bfloat16
    assert weight.grad is not None
    assert weight.grad.dtype == torch.float32


@given(tokens=st.integers(0, 9), chunk=st.integers(1, 10), with_bias=st.booleans())
@settings(max_examples=30, deadline=None)
def test_log_prob_of_each_target(tokens: int, chunk: int, with_bias: bool) -> None:
    hidden, weight, bias, target = operands(tokens, 5, 8, with_bias)
    found = linear_log_prob(hidden, weight, bias, target, chunk)
    expected = torch.nn.functional.linear(hidden, weight, bias).log_softmax(-1)
    torch.testing.assert_close(found, expected.gather(1, target.unsqueeze(1)).squeeze(1).detach())
    assert not found.requires_grad


@given(smoothing=st.floats(0, 0.99), form=st.sampled_from(FORMS), vocabulary=st.integers(1, 50_000))
def test_masses_make_a_distribution(smoothing: float, form: SmoothingForm, vocabulary: int) -> None:
    on_target, on_each = smoothing_masses(smoothing, form, vocabulary)
    assert on_target + vocabulary * on_each == pytest.approx(1)
    if form == "uniform_wrong" and vocabulary > 1:
        assert on_target + on_each == pytest.approx(1 - smoothing)


@pytest.mark.parametrize("smoothing", [-0.1, 1.0, float("nan")])
def test_impossible_smoothing_is_refused(smoothing: float) -> None:
    hidden, weight, bias, target = operands(2, 3, 4)
    with pytest.raises(ValueError, match="label smoothing must be"):
        linear_cross_entropy(hidden, weight, bias, target, smoothing=smoothing)


def test_an_unknown_form_is_refused() -> None:
    with pytest.raises(ValueError, match="uniform_wrong"):
        smoothing_masses(0.1, "other", 5)  # type: ignore[arg-type]


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


@pytest.mark.parametrize("with_bias", [True, False])
def test_compiled_it_is_one_call_with_the_same_result(with_bias: bool) -> None:
    """No graph break, although the number of real tokens is known at run time only."""
    torch.manual_seed(1)
    hidden, weight = torch.randn(6, 4, requires_grad=True), torch.randn(7, 4, requires_grad=True)
    bias = torch.randn(7, requires_grad=True) if with_bias else None
    target = torch.tensor([1, 0, 3, 4, 0, 6])

    def loss() -> tuple[torch.Tensor, torch.Tensor]:
        return linear_cross_entropy(hidden, weight, bias, target, smoothing=0.1, ignore=0)

    learners = [hidden, weight, *([] if bias is None else [bias])]
    expected = loss()
    found = torch.compile(loss, backend="aot_eager", fullgraph=True)()
    torch.testing.assert_close(found, expected)
    torch.testing.assert_close(
        torch.autograd.grad(found[0], learners), torch.autograd.grad(expected[0], learners)
    )
