"""Rates of the products of decoding, by number format of the weights, rows and shape.

    python benchmarks/packed_products.py --threads 1

Rows are hypotheses in work: sentences times beam. `oneDNN int8` is what torch would have beside FBGEMM.
Billions of additions and multiplications a second; the best of fifteen. bf16 only on CPUs with units for it.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from functools import partial

import torch
from machine import seconds

from deepwire.ops.allocator import keep_memory
from deepwire.ops.packed_linear import (
    Float16Linear,
    Int8Linear,
    OneDnnLinear,
    PackedLinear,
    PlainLinear,
    has_bfloat16_layout,
)

SHAPES = ((512, 512), (512, 2048), (2048, 512), (512, 32_000))
ROWS = (1, 4, 16, 64, 256)
FORMATS: dict[str, tuple[type[PackedLinear], torch.dtype]] = {
    "float32": (PlainLinear, torch.float32),
    "float32, oneDNN's layout": (OneDnnLinear, torch.float32),
    "bf16": (PlainLinear, torch.bfloat16),
    "bf16, oneDNN's layout": (OneDnnLinear, torch.bfloat16),
    "fp16": (Float16Linear, torch.float32),
    "int8": (Int8Linear, torch.float32),
}


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_memory()
    formats = {
        name: made for name, made in FORMATS.items() if made[1] is torch.float32 or has_bfloat16_layout()
    }
    names = [*formats, "oneDNN int8"]
    print(f"| inputs | outputs | rows | {' | '.join(names)} |\n{'|---' * (3 + len(names))}|")
    with torch.inference_mode():
        for inputs, outputs in SHAPES:
            weight = 0.05 * torch.randn(outputs, inputs)
            made = {name: (format_(weight.to(kind), None), kind) for name, (format_, kind) in formats.items()}
            for rows in ROWS:
                x = torch.randn(rows, inputs)
                calls: dict[str, Callable[[], torch.Tensor]] = {
                    name: partial(linear, x.to(kind)) for name, (linear, kind) in made.items()
                }
                calls["oneDNN int8"] = with_onednn(weight, x)
                rates = [2e-9 * rows * inputs * outputs / best(call) for call in calls.values()]
                print(
                    f"| {inputs} | {outputs} | {rows} | {' | '.join(f'{rate:.0f}' for rate in rates)} |",
                    flush=True,
                )


def best(call: Callable[[], object]) -> float:
    """Seconds of the fastest of fifteen calls, after one that does not count."""
    call()
    return min(seconds(call) for _ in range(15))


def with_onednn(weight: torch.Tensor, x: torch.Tensor) -> Callable[[], torch.Tensor]:
    """The product alone, of inputs that are rounded already."""
    scale, zero = torch.ones(weight.size(0)), torch.zeros(weight.size(0), dtype=torch.int64)
    packed = torch.ops.onednn.qlinear_prepack(
        (63 * weight / weight.abs().amax(1, keepdim=True)).round().to(torch.int8), list(x.shape)
    )
    rounded = (127 * x / x.abs().amax() + 128).round().to(torch.uint8)
    return lambda: torch.ops.onednn.qlinear_pointwise(
        rounded, 1 / 127, 128, packed, scale, zero, None, 1.0, 0, torch.float32, "none", [], ""
    )


if __name__ == "__main__":
    main()
