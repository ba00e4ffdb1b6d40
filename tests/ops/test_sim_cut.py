from __future__ import annotations

from typing import Any

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from deepwire.ops.cross_entropy import linear_cross_entropy
from deepwire.ops.pair_loss import linear_sim_cut


def operands(tokens: int = 7, vocabulary: int = 9) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(1)
    options: dict[str, Any] = {"dtype": torch.float64, "requires_grad": True}
    hidden, weight = torch.randn(2, tokens, 4, **options), torch.randn(vocabulary, 4, **options)
    return hidden, weight, torch.randn(vocabulary, **options), torch.randint(vocabulary, (tokens,))


@pytest.mark.parametrize("chunk", [3, 100])
def test_values_and_gradients_equal_the_formula(chunk: int) -> None:
    hidden, weight, bias, target = operands()
    found = linear_sim_cut(hidden, weight, bias, target, alpha=2.5, smoothing=0.1, chunk=chunk)
    plain, cut = (functional.linear(one, weight, bias).log_softmax(1) for one in hidden)
    crosses, nll = linear_cross_entropy(hidden[0], weight, bias, target, smoothing=0.1)
    divergence = functional.kl_div(cut, plain, reduction="sum", log_target=True)
    loss = crosses + 2.5 * divergence
    torch.testing.assert_close(tuple(found), (loss, nll, divergence.detach()))
    learned = [hidden, weight, bias]
    torch.testing.assert_close(torch.autograd.grad(found.loss, learned), torch.autograd.grad(loss, learned))


def test_weights_of_tokens() -> None:
    hidden, weight, bias, target = operands()
    counts = torch.rand(7, dtype=torch.float64)
    options: dict[str, Any] = {"alpha": 2.0, "smoothing": 0.1}
    found = linear_sim_cut(hidden, weight, bias, target, **options, weights=counts, chunk=2)
    each = [linear_sim_cut(hidden[:, [n]], weight, bias, target[[n]], **options) for n in range(7)]
    wanted = sum(float(count) * float(sums.loss.detach()) for count, sums in zip(counts, each, strict=True))
    assert float(found.loss.detach()) == pytest.approx(wanted)
