"""Recurrences in chunks against the functions for one position, at any length and for any decay."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from deepwire.ops.gated_product import (
    CHUNK,
    CHUNK_OF_CHANNELS,
    gated_delta_product,
    gated_delta_step,
    gated_product,
    gated_step,
)

B, H, M, N = 2, 3, 4, 5
LENGTHS = [1, 7, CHUNK_OF_CHANNELS, CHUNK, CHUNK + 1, 2 * CHUNK + 5]
Inputs = list[Tensor]


def product_inputs(length: int, *, alike: bool, fastest: float = 1.0) -> Inputs:
    """Queries, keys, values and log decays down to -`fastest`."""
    torch.manual_seed(length)
    query, key = torch.randn(2, B, H, length, M, dtype=torch.float64)
    value = torch.randn(B, H, length, N, dtype=torch.float64)
    decay = -fastest * torch.rand(B, H, length, 1 if alike else M, dtype=torch.float64)
    return [query, key, value, decay]


def delta_inputs(length: int, *, factor: float = 1.0, fastest: float = 1.0) -> Inputs:
    """The same with keys of length 1, and beta up to `factor`."""
    query, key, value, decay = product_inputs(length, alike=True, fastest=fastest)
    beta = factor * torch.rand(B, H, length, 1, dtype=torch.float64)
    return [query, torch.nn.functional.normalize(key, dim=-1), value, beta, decay]


def one_by_one(step: Callable[..., tuple[Tensor, Tensor]], inputs: Inputs, state: Tensor | None) -> Tensor:
    """All positions, one after the other."""
    if state is None:
        state = inputs[0].new_zeros(B, H, M, N)
    outputs = []
    for now in zip(*(each.unbind(-2) for each in inputs), strict=True):
        output, state = step(state, *now)
        outputs.append(output)
    return torch.stack(outputs, -2)


def test_a_step_is_the_formula() -> None:
    """Written out for one row and head."""
    query, key, value, decay = (each[0, 0, 0] for each in product_inputs(1, alike=False))
    state = torch.randn(M, N, dtype=torch.float64)
    expected = torch.diag(decay.exp()) @ state + torch.outer(key, value)
    output, following = gated_step(state, query, key, value, decay)
    torch.testing.assert_close((output, following), (expected.t() @ query, expected))
    beta, decay = torch.tensor([0.3]).double(), torch.tensor([-0.2]).double()
    decayed = decay.exp() * state
    expected = decayed + torch.outer(key, beta * (value - decayed.t() @ key))
    output, following = gated_delta_step(state, query, key, value, beta, decay)
    torch.testing.assert_close((output, following), (expected.t() @ query, expected))


@pytest.mark.parametrize("begun", [False, True])
@pytest.mark.parametrize("length", LENGTHS)
@pytest.mark.parametrize("kind", ["alike", "channels", "delta"])
def test_chunks_are_the_steps(kind: str, length: int, begun: bool) -> None:
    """Outputs, and gradients of everything that goes in."""
    delta = kind == "delta"
    inputs = delta_inputs(length) if delta else product_inputs(length, alike=kind == "alike")
    initial = torch.randn(B, H, M, N, dtype=torch.float64) if begun else None
    whole: Callable[..., Tensor] = gated_delta_product if delta else gated_product
    step = gated_delta_step if delta else gated_step
    leaves = [each.requires_grad_() for each in (*inputs, *([initial] if begun else []))]
    found, expected = whole(*inputs, initial=initial), one_by_one(step, inputs, initial)
    torch.testing.assert_close(found, expected)
    weights = torch.randn_like(found)
    torch.testing.assert_close(
        torch.autograd.grad((found * weights).sum(), leaves),
        torch.autograd.grad((expected * weights).sum(), leaves),
    )


@pytest.mark.parametrize("fastest", [1e-4, 30.0, 1e4])
@pytest.mark.parametrize("kind", ["alike", "channels", "delta"])
def test_no_decay_is_too_fast_or_too_slow_in_float32(kind: str, fastest: float) -> None:
    """e^30 to the 64th is no number of float32, and nothing like it is ever computed."""
    length, delta = 2 * CHUNK + 3, kind == "delta"
    inputs = (
        delta_inputs(length, factor=2.0, fastest=fastest)
        if delta
        else product_inputs(length, alike=kind == "alike", fastest=fastest)
    )
    narrow = [each.float().requires_grad_() for each in inputs]
    whole: Callable[..., Tensor] = gated_delta_product if delta else gated_product
    step = gated_delta_step if delta else gated_step
    found = whole(*narrow)
    torch.testing.assert_close(found.double(), one_by_one(step, inputs, None), rtol=1e-4, atol=1e-4)
    assert all(grad.isfinite().all() for grad in torch.autograd.grad(found.sum(), narrow))


def test_one_key_again_and_again() -> None:
    """The inverse of the system has small entries, though its powers would be huge."""
    length = CHUNK
    _, _, value, _, _ = delta_inputs(length)
    key = torch.zeros(B, H, length, M, dtype=torch.float64)
    key[..., 0] = 1
    beta, decay = torch.ones(B, H, length, 1), torch.zeros(B, H, length, 1)
    found = gated_delta_product(key.float(), key.float(), value.float(), beta, decay)
    torch.testing.assert_close(found.double(), value, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", ["alike", "channels", "delta"])
def test_what_is_exported_is_a_scan(kind: str) -> None:
    """One graph of any length gives the same."""

    class Whole(torch.nn.Module):
        def forward(self, *inputs: Tensor) -> Tensor:
            return gated_delta_product(*inputs) if kind == "delta" else gated_product(*inputs)

    def inputs(length: int) -> Inputs:
        return delta_inputs(length) if kind == "delta" else product_inputs(length, alike=kind == "alike")

    dynamic = ({2: torch.export.Dim.DYNAMIC},) * len(inputs(1))
    exported = torch.export.export(Whole(), tuple(inputs(6)), dynamic_shapes=(dynamic,)).module()
    for length in (3, 70):
        torch.testing.assert_close(exported(*inputs(length)), Whole()(*inputs(length)))
