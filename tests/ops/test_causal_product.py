"""The chunked product is the sum over the past, whatever the length."""

from __future__ import annotations

import pytest
import torch

from deepwire.ops.causal_product import CHUNK, causal_product


@pytest.mark.parametrize("length", [1, 7, CHUNK, CHUNK + 1, 2 * CHUNK + 5])
def test_it_is_the_sum_of_outer_products_of_the_past(length: int) -> None:
    torch.manual_seed(0)
    x, y, z = torch.randn(2, 3, length, 4), torch.randn(2, 3, length, 4), torch.randn(2, 3, length, 5)
    sums = (y.unsqueeze(-1) * z.unsqueeze(-2)).cumsum(2)
    expected = (x.unsqueeze(-2) @ sums).squeeze(-2)
    torch.testing.assert_close(causal_product(x, y, z), expected, rtol=1e-4, atol=1e-4)


def test_gradients_and_half_precision() -> None:
    length = CHUNK + 3
    x, y, z = (torch.randn(1, length, 2, dtype=torch.float64, requires_grad=True) for _ in range(3))
    found = torch.autograd.grad(causal_product(x, y, z).square().sum(), (x, y, z))
    whole = (x @ y.transpose(-2, -1)).tril() @ z
    for one, other in zip(found, torch.autograd.grad(whole.square().sum(), (x, y, z)), strict=True):
        torch.testing.assert_close(one, other)
    half = causal_product(*(part.bfloat16() for part in (x, y, z)))
    assert half.dtype == torch.bfloat16
