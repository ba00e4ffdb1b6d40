"""Packed linear maps against the product that they stand for."""

from __future__ import annotations

from typing import Literal

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional

from deepwire.ops import packed_linear
from deepwire.ops.packed_linear import (
    Float16Linear,
    Int8Linear,
    OneDnnInt8Linear,
    OneDnnLinear,
    PackedLinear,
    PlainLinear,
    has_bfloat16_layout,
    has_byte_units,
    has_kernels,
    pack_linears,
)

# The error of one product, in units of the root mean square of the results.
ERRORS = {PlainLinear: 1e-5, OneDnnLinear: 1e-5, Float16Linear: 2e-3, Int8Linear: 3e-2}
LARGE: dict[str, set[type]] = {
    "none": {OneDnnLinear, PlainLinear},
    "fp16": {Float16Linear},
    "int8": {Int8Linear},
}
BYTES: set[type] = {Int8Linear, OneDnnInt8Linear}
if has_byte_units():
    ERRORS[OneDnnInt8Linear] = 2e-2
    LARGE["int8"].add(OneDnnInt8Linear)
needs_kernels = pytest.mark.skipif(not has_kernels("int8"), reason="no kernels on this CPU")


@needs_kernels
@pytest.mark.parametrize("kind", ERRORS)
@given(
    rows=st.integers(1, 40),
    inputs=st.integers(1, 70),
    outputs=st.integers(1, 90),
    scale=st.sampled_from([1e-3, 1.0, 50.0]),
    biased=st.booleans(),
    seed=st.integers(0, 2**16),
)
@settings(max_examples=15, deadline=None)
def test_close_to_the_product(
    kind: type, rows: int, inputs: int, outputs: int, scale: float, biased: bool, seed: int
) -> None:
    """At all sizes and scales; a bias is exact."""
    torch.manual_seed(seed)
    weight, x = torch.randn(outputs, inputs) * 0.3, torch.randn(rows, 1, inputs) * scale
    bias = torch.randn(outputs) if biased else None
    with torch.no_grad():
        found = kind(weight, bias)(x)
    wanted = functional.linear(x.double(), weight.double())
    allowed = ERRORS[kind] * 0.3 * scale * inputs**0.5 * 4 + 1e-6
    exact = wanted if bias is None else wanted + bias.double()
    assert found.shape == (rows, 1, outputs)
    assert (found - exact).abs().max() <= allowed


@needs_kernels
@pytest.mark.parametrize("kind", ERRORS)
def test_a_row_does_not_depend_on_the_others(kind: type) -> None:
    """A loud row takes no precision from a quiet one, few rows or many; bytes are the same to the bit."""
    torch.manual_seed(1)
    packed = kind(torch.randn(33, 64), torch.randn(33))
    quiet, loud = torch.randn(1, 64) * 1e-3, torch.randn(39, 64) * 1e3
    with torch.no_grad():
        together, alone = packed(torch.cat([quiet, loud]))[:1], packed(quiet)
    torch.testing.assert_close(together, alone, rtol=1e-5, atol=1e-7)
    assert kind not in BYTES or torch.equal(together, alone)


@pytest.mark.parametrize("sizes", [(3, 8), (40, 300)], ids=str)
@pytest.mark.parametrize("biased", [True, False])
def test_bfloat16_stays_what_it_is(sizes: tuple[int, int], biased: bool) -> None:
    """In the layout of oneDNN the product is rounded once, as in the plain one."""
    torch.manual_seed(2)
    module = nn.Sequential(nn.Linear(*sizes, bias=biased)).to(torch.bfloat16)
    x = torch.randn(5, 2, sizes[0]).bfloat16()
    with torch.no_grad():
        wanted = nn.Sequential(module[0]).double()(x.double())
        module = module.to(torch.bfloat16)
        pack_linears(module, "none")
        found = module(x)
    assert isinstance(module[0], OneDnnLinear if has_bfloat16_layout() else PlainLinear)
    assert found.dtype == torch.bfloat16
    torch.testing.assert_close(found.double(), wanted, rtol=2**-8, atol=1e-3)


@needs_kernels
@pytest.mark.parametrize("weight", [1e5, float("nan")])
def test_what_does_not_fit_half_precision_is_refused(weight: float) -> None:
    with pytest.raises(ValueError, match="do not fit half precision"):
        Float16Linear(torch.full((2, 2), weight), None)


@needs_kernels
@pytest.mark.parametrize("biased", [True, False])
@pytest.mark.parametrize("outputs", [4, 7, 9])
def test_halves_in_parts_that_stay_in_a_cache(
    outputs: int, biased: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    weight, x = torch.randn(outputs, 10), torch.randn(3, 2, 10)
    bias = torch.randn(outputs) if biased else None
    with torch.no_grad():
        whole = Float16Linear(weight, bias)(x)
        monkeypatch.setattr(packed_linear, "_HALVES_AT_ONCE", 45)  # four outputs
        parts = Float16Linear(weight, bias)(x)
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-6)


@needs_kernels
def test_maps_too_large_for_half_precision_stay_as_they_are() -> None:
    module = nn.Sequential(nn.Linear(1024, 1024), nn.Linear(1024, 1024))
    x = torch.randn(3, 1024)
    with torch.no_grad():
        module[0].weight[3, 4] = 1e5
        before = module(x)
        pack_linears(module, "fp16")
        torch.testing.assert_close(module(x), before, rtol=1e-2, atol=1e-2 * float(before.abs().max()))
    assert [type(each) for each in module] == [PlainLinear, Float16Linear]


@needs_kernels
@pytest.mark.parametrize("packing", ["none", "fp16", "int8"])
def test_every_map_of_a_module_is_replaced(packing: Literal["none", "fp16", "int8"]) -> None:
    torch.manual_seed(1)
    module = nn.Sequential(
        nn.Linear(8, 16), nn.ReLU(), nn.Sequential(nn.Linear(16, 2**15, bias=False), nn.Linear(2**15, 20))
    )
    x = torch.randn(3, 8)
    with torch.no_grad():
        before = module(x)
        pack_linears(module, packing)
        torch.testing.assert_close(module(x), before, atol=0.05, rtol=0.05)
    small, *large = (each for each in module.modules() if isinstance(each, PackedLinear))
    assert isinstance(small, PlainLinear)
    assert {type(each) for each in large} == LARGE[packing]
    assert not list(module.parameters())
