"""The kernels for a GPU give the numbers of the loops: on a GPU, or in Triton's interpreter on the CPU."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from torch import Tensor

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.ops import linear_recurrence as loops

triton = pytest.importorskip("triton", reason="needs Triton, which comes with torch for GPUs")
NAME = "deepwire.ops.linear_recurrence_triton"
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"


@pytest.fixture
def kernels() -> Iterator[ModuleType]:
    """The module; without a GPU interpreted, and nobody else gets it so."""
    if DEVICE == "cuda":
        yield importlib.import_module(NAME)
        return
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TRITON_INTERPRET", "1")
        sys.modules.pop(NAME, None)
        try:
            module = importlib.import_module(NAME)
            yield module
        finally:
            del sys.modules[NAME]


def draw(length: int, shape: tuple[int, ...], dtype: torch.dtype) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    torch.manual_seed(length)
    keep, update, grad = torch.rand(3, length, *shape, dtype=dtype, device=DEVICE).unbind()
    return keep, update - 0.5, torch.randn(shape, dtype=dtype, device=DEVICE), grad - 0.5


def assert_as_the_loops(
    kernels: ModuleType, keep: Tensor, update: Tensor, initial: Tensor, grad: Tensor
) -> tuple[Tensor, ...]:
    """Gives the cells and the gradients of gates and updates that the kernels made."""
    cells = kernels.recur(keep, update, initial)
    torch.testing.assert_close(cells, loops._loop(keep, update, initial))
    found = kernels.recur_back(grad, keep, initial, cells)
    torch.testing.assert_close(found, loops._loop_back(grad, keep, initial, cells))
    return cells, *found[:2]


# Four positions are taken at a time and 128 columns: all remainders of the former, both sides of the latter.
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
@pytest.mark.parametrize(
    ("length", "shape"),
    [(1, (1,)), (2, (127,)), (3, (2, 64)), (4, (129,)), (5, (3, 5)), (8, (1,)), (31, (2, 3, 43))],
)
def test_cells_and_gradients_are_those_of_the_loops(
    kernels: ModuleType, length: int, shape: tuple[int, ...], dtype: torch.dtype
) -> None:
    keep, update, initial, grad = draw(length, shape, dtype)
    assert_as_the_loops(kernels, keep, update, initial, grad)


def test_heads_one_after_the_other_stay_so(kernels: ModuleType) -> None:
    """`[heads, T, ...]` with positions turned to the front, as the mixer hands them over."""
    keep, update, initial, grad = draw(7, (3, 70), torch.float32)
    keep, update, grad = (x.transpose(0, 1).contiguous().transpose(0, 1) for x in (keep, update, grad))
    made = assert_as_the_loops(kernels, keep, update, initial, grad)
    assert {x.stride() for x in made} == {update.stride()}


def test_a_model_trains_with_them_as_with_the_loops(
    kernels: ModuleType, monkeypatch: pytest.MonkeyPatch
) -> None:
    config = ModelConfig.model_validate(
        {
            "d_model": 16,
            "heads": 2,
            "feed_forward": 16,
            "encoder": {"layers": 1},
            "decoder": {"layers": 2, "mixer": "mhplstm"},
        }
    )
    torch.manual_seed(1)
    model = build_model(config, 11, 11).to(DEVICE, torch.float64).eval()
    source, target = torch.randint(4, 11, (2, 3, 9), device=DEVICE)

    def gradients() -> list[Tensor]:
        loss = model.loss(source, target[:, :-1], target[:, 1:], 0.1).smoothed
        return list(torch.autograd.grad(loss, list(model.parameters()), allow_unused=True))

    monkeypatch.setattr(loops, "_kernels", lambda _device: None)
    expected = gradients()
    asked = []

    def kernels_of(device):
        asked.append(device)
        return kernels

    monkeypatch.setattr(loops, "_kernels", kernels_of)
    torch.testing.assert_close(gradients(), expected)
    assert asked == [DEVICE] * 8  # two layers, each a sum and a recurrence, there and back


@pytest.mark.parametrize("capability", [80, 90])
@pytest.mark.parametrize("number", ["fp32", "fp64"])
def test_kernels_compile_for_a_gpu(
    capability: int, number: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Triton brings the assembler, so no GPU is needed. The interpreter takes more than the compiler."""
    from triton.backends.compiler import GPUTarget
    from triton.compiler import ASTSource

    monkeypatch.setenv("TRITON_CACHE_DIR", str(tmp_path))
    module = importlib.import_module(NAME)
    for kernel in (module._forward, module._backward):
        *arguments, columns = kernel.arg_names
        types = {name: "i32" if name in module._Layout._fields else f"*{number}" for name in arguments}
        source = ASTSource(kernel, types | {columns: "constexpr"}, {(len(arguments),): module._COLUMNS})
        made = triton.compile(source, target=GPUTarget("cuda", capability, 32))
        assert made.asm["cubin"]
