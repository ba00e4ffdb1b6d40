"""Sums of tensors with weights of their own."""

from __future__ import annotations

import pytest
import torch

from deepwire.ops.weighted_sum import mix_positions, weighted_sum


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_sum_written_out(shape: tuple[int, ...]) -> None:
    """Numbers for all positions, or one of each."""
    weights, tensors = ([torch.randn(size) for _ in range(3)] for size in (shape, (2, 3, 4)))
    expected = sum(
        weight.reshape(*shape, *(1,) * (3 - len(shape))) * tensor
        for weight, tensor in zip(weights, tensors, strict=True)
    )
    torch.testing.assert_close(mix_positions(weights, tensors), expected)


@pytest.mark.parametrize(
    ("types", "wide"),
    [((torch.float32, torch.bfloat16), torch.float32), ((torch.bfloat16,) * 2, torch.bfloat16)],
)
def test_widest_type_of_the_tensors(types: tuple[torch.dtype, ...], wide: torch.dtype) -> None:
    """Weights in float32 make nothing wider, and narrow outputs of sub-layers join wide lanes."""
    tensors = [torch.ones(2, 3, 4, dtype=each) for each in types]
    found = mix_positions([torch.full((2, 3), 0.25)] * 2, tensors)
    assert found.dtype == wide
    assert torch.equal(found, torch.full((2, 3, 4), 0.5, dtype=wide))


@pytest.mark.parametrize("shape", [(), (4,), (2, 3, 1)])
def test_weights_broadcast(shape: tuple[int, ...]) -> None:
    """Numbers, vectors of the width, or one for each position."""
    weights, tensors = ([torch.randn(size) for _ in range(3)] for size in (shape, (2, 3, 4)))
    expected = sum(weight * tensor for weight, tensor in zip(weights, tensors, strict=True))
    torch.testing.assert_close(weighted_sum(weights, tensors), expected)
