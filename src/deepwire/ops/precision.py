"""Choose the number format of matrix products by what this machine has, or by timing small ones on it."""

from __future__ import annotations

import platform
import time
from collections.abc import Callable
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor

Precision = Literal["auto", "fp32", "bf16"]
MatmulPrecision = Literal["auto", "highest", "medium"]

# Names of the machines whose CPUs torch asks for their units.
_TELLING = frozenset({"x86_64", "AMD64"})
# Like a layer's product, with few rows: about a millisecond, so that the best of several is undisturbed even
# on a busy machine, and slow formats do not cost much to find out.
_ROWS, _INNER, _COLUMNS = 256, 512, 512
_REPEATS = 15
# How much faster the less usual choice must be before it is taken.
_GAIN = 1.25
# True float32 products of this size err by about 5e-7 of the largest value; bfloat16 by 3e-3.
_FLOAT32_ERROR = 1e-5


def product_type(x: Tensor) -> torch.dtype:
    """The number format in which `x` is multiplied here: that of autocast, where it is on."""
    device = x.device.type
    if device == "meta" or x.dtype == torch.float64 or not torch.is_autocast_enabled(device):
        return x.dtype
    return torch.get_autocast_dtype(device)


def autocast_dtype(device: torch.device, wanted: Precision) -> torch.dtype:
    """Return the type for autocast products on `device`: float32 (no autocast) or bfloat16.

    "auto" takes bfloat16 where it is clearly faster: on GPUs that have it and CPUs that multiply it fast. A
    CPU of x86 says whether it does (`has_fast_bfloat16`); on others a product of each is timed (under 0.1 s,
    once per process).
    """
    if wanted == "fp32":
        return torch.float32
    if wanted == "bf16":
        return torch.bfloat16
    if device.type == "cuda":
        return torch.bfloat16 if torch.cuda.is_bf16_supported(including_emulation=False) else torch.float32
    if device.type == "cpu":
        return torch.bfloat16 if _cpu_bfloat16_pays() else torch.float32
    return torch.float32


def full_precision(device_type: str) -> AbstractContextManager[object]:
    """Compute in the number formats that tensors have, also where autocast is on or unknown (meta)."""
    if device_type == "meta":  # has no autocast
        return nullcontext()
    return torch.autocast(device_type, enabled=False)


def has_fast_bfloat16() -> bool:
    """Whether this CPU says that it multiplies bfloat16 clearly faster than float32.

    AMX tiles do. The AVX-512 instructions do on AMD's CPUs alone: Intel's have half the throughput, so that a
    product takes 1.6 to 3 times as long as in float32 (Sapphire Rapids whose tiles are hidden by a virtual
    machine: 48 to 84 beside 147 to 155 GFLOP/s, `benchmarks/machine.py`).
    """
    if _cpu_has("_is_amx_tile_supported"):
        return True
    return _cpu_has("_is_avx512_bf16_supported") and not _made_by_intel()


def _cpu_has(unit: str) -> bool:
    # torch tells nobody else, and may stop telling.
    has: bool = getattr(torch.cpu, unit, lambda: False)()
    return has


@cache
def _made_by_intel() -> bool:
    try:
        processor = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace")
    except OSError:  # not Linux
        processor = platform.processor()
    return "GenuineIntel" in processor


def set_fp32_matmul(wanted: MatmulPrecision) -> MatmulPrecision:
    """Set how the process computes float32 products and return what was set, "highest" or "medium".

    "medium" lets the library choose another path. On some CPUs that path is faster and still true float32,
    on others it silently rounds to bfloat16; "auto" takes it only if it is faster here and errs by less than
    1e-5 of the largest value (well under 0.1 s, once per process). GPUs keep "highest" under "auto".
    """
    chosen: MatmulPrecision = wanted
    if wanted == "auto":
        chosen = "medium" if not torch.cuda.is_available() and _medium_is_true_and_faster() else "highest"
    torch.set_float32_matmul_precision(chosen)
    return chosen


@cache
def _cpu_bfloat16_pays() -> bool:
    if platform.machine() in _TELLING:
        # No timing: what other programs do meanwhile must not make another run of this one.
        usable: bool = torch.backends.mkldnn.is_available()  # type: ignore[no-untyped-call]
        return usable and has_fast_bfloat16()
    left, right = _operands()
    small_left, small_right = left.bfloat16(), right.bfloat16()
    wide, narrow = _race(lambda: torch.mm(left, right), lambda: torch.mm(small_left, small_right))
    return narrow * _GAIN < wide


@cache
def _medium_is_true_and_faster() -> bool:
    left, right = _operands()
    before = torch.get_float32_matmul_precision()

    def product(name: str) -> Tensor:
        torch.set_float32_matmul_precision(name)
        return torch.mm(left, right)

    try:
        exact = left.double() @ right.double()
        error = float((product("medium").double() - exact).abs().max() / exact.abs().max())
        highest, medium = _race(lambda: product("highest"), lambda: product("medium"))
    finally:
        torch.set_float32_matmul_precision(before)
    return error < _FLOAT32_ERROR and medium * _GAIN < highest


def _operands() -> tuple[Tensor, Tensor]:
    # An own generator: probing must not shift the random numbers of a run.
    generator = torch.Generator().manual_seed(1)
    left = torch.randn(_ROWS, _INNER, generator=generator)
    return left, torch.randn(_INNER, _COLUMNS, generator=generator)


def _race(first: Callable[[], Tensor], second: Callable[[], Tensor]) -> tuple[float, float]:
    """Return the shortest times of the two on the processor, of one thread, run in turn.

    Time in which other programs have the core does not count, and what they do to caches slows both alike, so
    that a busy machine decides like an idle one. Stops early when the second is hopeless: without its units a
    bfloat16 product takes many times as long.
    """
    best = [float("inf"), float("inf")]
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        for _ in range(_REPEATS):
            for index, product in enumerate((first, second)):
                begun = time.thread_time()
                product()
                best[index] = min(best[index], time.thread_time() - begun)
            if best[1] > 8 * best[0]:
                break
    finally:
        torch.set_num_threads(threads)
    return best[0], best[1]
