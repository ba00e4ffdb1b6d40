from __future__ import annotations

import platform
from collections.abc import Iterator

import pytest
import torch

from deepwire.ops import precision
from deepwire.ops.precision import autocast_dtype, set_fp32_matmul

CPU = torch.device("cpu")


@pytest.fixture(autouse=True)
def _as_before() -> Iterator[None]:
    before = torch.get_float32_matmul_precision()
    precision._cpu_bfloat16_pays.cache_clear()
    precision._medium_is_true_and_faster.cache_clear()
    yield
    torch.set_float32_matmul_precision(before)
    precision._cpu_bfloat16_pays.cache_clear()
    precision._medium_is_true_and_faster.cache_clear()


def test_what_is_asked_for_is_given() -> None:
    assert autocast_dtype(CPU, "fp32") == torch.float32
    assert autocast_dtype(CPU, "bf16") == torch.bfloat16
    for wanted in ("highest", "medium"):
        assert set_fp32_matmul(wanted) == wanted
        assert torch.get_float32_matmul_precision() == wanted


@pytest.mark.parametrize(
    ("wide", "narrow", "expected"),
    [
        (2.0, 1.0, torch.bfloat16),
        (1.0, 1.0, torch.float32),
        (1.1, 1.0, torch.float32),
        (1.0, 9.0, torch.float32),
    ],
)
def test_auto_takes_bfloat16_only_where_it_is_clearly_faster(
    monkeypatch: pytest.MonkeyPatch, wide: float, narrow: float, expected: torch.dtype
) -> None:
    monkeypatch.setattr(platform, "machine", lambda: "arm64")
    monkeypatch.setattr(precision, "_race", lambda first, second: (wide, narrow))
    assert autocast_dtype(CPU, "auto") == expected


@pytest.mark.parametrize(
    ("highest", "medium", "expected"), [(2.0, 1.0, "medium"), (1.0, 1.0, "highest"), (1.0, 2.0, "highest")]
)
def test_auto_takes_the_other_path_only_where_it_is_clearly_faster(
    monkeypatch: pytest.MonkeyPatch, highest: float, medium: float, expected: str
) -> None:
    def true(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        """True float32 on every CPU: those with AMX tiles round to bfloat16 at "medium"."""
        return (left.double() @ right.double()).to(left.dtype)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(precision, "_race", lambda first, second: (highest, medium))
    monkeypatch.setattr(torch, "mm", true)
    assert set_fp32_matmul("auto") == expected
    assert torch.get_float32_matmul_precision() == expected


def test_auto_refuses_a_faster_path_that_rounds_to_bfloat16(monkeypatch: pytest.MonkeyPatch) -> None:
    def rounding(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        return (left.bfloat16().float() @ right.bfloat16().float()).to(left.dtype)

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    monkeypatch.setattr(precision, "_race", lambda first, second: (2.0, 1.0))
    monkeypatch.setattr(torch, "mm", rounding)
    assert set_fp32_matmul("auto") == "highest"
