"""Rates of this machine, against which any training speed here has to be read.

    python benchmarks/machine.py [--json FILE] [--threads N]

Prints the rate of matrix products in each number format (billions of operations a second, a multiplication
and an addition counted as two), and the rates at which memory is copied and read. "fp32 medium" reaches
oneDNN on some CPUs.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import cast

import torch
from torch.utils.flop_counter import FlopCounterMode

from deepwire.data.vocabulary import EOS
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.ops.precision import has_fast_bfloat16

# (rows, inner, columns): a projection, a feed-forward layer, an output layer.
SHAPES = [(1024, 256, 256), (4096, 512, 512), (4096, 512, 2048), (1024, 512, 8192)]
FORMATS = ["fp32 highest", "fp32 medium", "bf16"]
ROUNDS = 7
FEWER = 32
COPIED_BYTES = 256 * 2**20
# What fits a cache is read faster than what does not.
READ_MIB = [1, 4, 16, 64, 256]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    figures = {
        **description(),
        "gflops": product_rates(),
        "copy_gb_per_second": round(copy_rate(), 1),
        "read_gb_per_second": {str(mib): round(read_rate(mib), 1) for mib in READ_MIB},
    }
    print(as_text(figures))
    if options.json is not None:
        options.json.write_text(json.dumps(figures, indent=1) + "\n")


def description() -> dict[str, object]:
    """Processor, cores, memory, versions."""
    cpuinfo = Path("/proc/cpuinfo").read_text() if Path("/proc/cpuinfo").exists() else ""
    fields = dict(line.split("\t: ", 1) for line in cpuinfo.split("\n\n")[0].splitlines() if "\t: " in line)
    fields = {name.strip(): value for name, value in fields.items()}
    flags = fields.get("flags", "").split()
    wanted = ("avx2", "avx512f", "avx512_bf16", "avx512_vnni", "avx_vnni", "amx_bf16")
    # Virtual machines often hide the model's name; family and model number tell it.
    family = f" (family {fields['cpu family']}, model {fields['model']})" if "cpu family" in fields else ""
    return {
        "processor": fields.get("model name", platform.processor()).strip() + family,
        "units": [flag for flag in wanted if flag in flags],
        "cores": os.cpu_count(),
        "threads": torch.get_num_threads(),
        "memory_gib": round(os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30, 1),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "date": time.strftime("%Y-%m-%d"),
    }


def result_name(*parts: str | None) -> str:
    """The name of the files of a result, without the date.

    A CPU that multiplies bfloat16 fast does other things than others: its results have places of their own.
    """
    kind = "bf16" if has_fast_bfloat16() else None
    return "_".join(part for part in (*parts, kind) if part)


def in_words(figures: Mapping[str, object]) -> str:
    """The machine in a sentence, from its description."""
    units = ", ".join(cast("list[str]", figures["units"]))
    return (
        f"{figures['processor']}; {units}; {figures['threads']} of {figures['cores']} cores, "
        f"{figures['memory_gib']} GiB."
    )


def kind(figures: Mapping[str, object]) -> str:
    """The kind of CPU that a table is of, for its heading."""
    units = cast("list[str]", figures["units"])
    # Intel's AVX-512 units for bfloat16 are slower than those for float32: see has_fast_bfloat16.
    slow = "Intel" in cast("str", figures["processor"]) and "amx_bf16" not in units
    fast = any("bf16" in unit for unit in units) and not slow
    return "with bfloat16 units" if fast else "without bfloat16 units"


def operations_per_token(config: ModelConfig, vocabulary: int, source: float, target: float) -> float:
    """Operations of a target token in training, products alone: three times those of a forward pass."""
    model = build_model(config, vocabulary, vocabulary).eval()
    sides = [torch.full((1, round(length)), EOS) for length in (source, target)]
    with torch.no_grad(), FlopCounterMode(display=False) as counter:
        model.log_probs(*sides)
    return 3 * counter.get_total_flops() / round(target)


def product_rates() -> dict[str, dict[str, float]]:
    """The best rate of each shape and format, formats in turn so that a busy machine slows all alike."""
    before = torch.get_float32_matmul_precision()
    products: dict[str, dict[str, float]] = {}
    for shape in SHAPES:
        best = dict.fromkeys(FORMATS, float("inf"))
        calls = {name: product(name, *shape) for name in FORMATS}
        slow = bfloat16_is_slow(*shape)
        if slow:
            calls["bf16"] = product("bf16", shape[0] // FEWER, *shape[1:])
        for _ in range(ROUNDS):
            for name, call in calls.items():
                best[name] = min(best[name], seconds(call))
        if slow:
            best["bf16"] *= FEWER
        operations = 2 * shape[0] * shape[1] * shape[2]
        products["x".join(map(str, shape))] = {
            name: round(operations / best[name] / 1e9, 1) for name in FORMATS
        }
    torch.set_float32_matmul_precision(before)
    return products


def bfloat16_is_slow(rows: int, inner: int, columns: int) -> bool:
    """Without units for them, bf16 products would take most of the time; fewer rows tell the same then."""
    wide, narrow = (product(name, rows // FEWER, inner, columns) for name in ("fp32 highest", "bf16"))
    seconds(wide)
    return seconds(narrow) > 4 * seconds(wide)


def operands(name: str, rows: int, inner: int, columns: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    left = torch.randn(rows, inner, generator=generator)
    right = torch.randn(inner, columns, generator=generator)
    return (left.bfloat16(), right.bfloat16()) if name == "bf16" else (left, right)


def product(name: str, rows: int, inner: int, columns: int) -> Callable[[], torch.Tensor]:
    left, right = operands(name, rows, inner, columns)
    out = torch.empty(rows, columns, dtype=left.dtype)

    def call() -> torch.Tensor:
        torch.set_float32_matmul_precision("medium" if name == "fp32 medium" else "highest")
        return torch.mm(left, right, out=out)

    return call


def copy_rate() -> float:
    """Gigabytes a second that are read and written when a large block is copied."""
    source = torch.ones(COPIED_BYTES // 4)
    target = torch.empty_like(source)
    return 2 * COPIED_BYTES / min(seconds(lambda: target.copy_(source)) for _ in range(ROUNDS)) / 1e9


def read_rate(mib: int) -> float:
    """Gigabytes a second that are read when a block of this size is added up again and again."""
    block = torch.ones(mib * 2**18)
    return mib * 2**20 / min(seconds(block.sum) for _ in range(ROUNDS)) / 1e9


def seconds(call: Callable[[], object]) -> float:
    begun = time.perf_counter()
    call()
    return time.perf_counter() - begun


def as_text(figures: dict[str, object]) -> str:
    products, reads = figures["gflops"], figures["read_gb_per_second"]
    assert isinstance(products, dict)
    assert isinstance(reads, dict)
    lines = [f"{name}: {figures[name]}" for name in description()]
    lines += ["", "| product | " + " | ".join(FORMATS) + " |", "|---" * (len(FORMATS) + 1) + "|"]
    lines += [
        f"| {shape} | " + " | ".join(f"{rates[name]:.0f}" for name in FORMATS) + " |"
        for shape, rates in products.items()
    ]
    lines += [
        "",
        "Products in GFLOP/s.",
        f"Memory copied: {figures['copy_gb_per_second']} GB/s read and written",
        "Memory read, GB/s: " + ", ".join(f"{rate} ({mib} MiB)" for mib, rate in reads.items()),
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    main()
