"""Where the time of an update and of a decoded batch goes, by kind of operation.

    python benchmarks/profile_steps.py papers/neutron-base --vocabulary-size 32000 --threads 1
    python benchmarks/profile_steps.py RUNFILE [KEY=VALUE]... --training bf16 --micro-batch 512
    python benchmarks/profile_steps.py RUNFILE [KEY=VALUE]... --precision int8 --beam 4 --batch 64 --length 15

The model has random weights; sentences have one length, and translations are made as long as their sources.
Time is that of torch's operations themselves, as its profiler counts it; what Python takes is not in it, but
is in the tokens a second of the update, the median of some more.
"""

from __future__ import annotations

import argparse
import statistics
from collections import Counter
from collections.abc import Callable, Mapping

import torch
from decoding_speed import end_late, random_model, translate
from machine import seconds
from torch.profiler import ProfilerActivity, profile

from deepwire.data.vocabulary import BOS, EOS
from deepwire.decoding.model_loading import PRECISIONS
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.allocator import keep_memory
from deepwire.ops.packed_linear import pack_linears
from deepwire.ops.precision import autocast_dtype, set_fp32_matmul

# The first name that begins the name of an operation says what it is.
KINDS: Mapping[str, str] = {
    "aten::mm": "products",
    "aten::addmm": "products",
    "aten::bmm": "products",
    "aten::baddbmm": "products",
    "aten::linear": "products",
    "mkldnn::": "products",
    "onednn::": "products",
    "quantized::": "products",
    "aten::_scaled_dot_product": "attention",
    "aten::_log_softmax": "softmax over the words",
    "aten::_softmax": "attention",
    "aten::native_layer_norm": "norms",
    "aten::topk": "choosing words",
    "aten::amax": "largest numbers: choosing words, rounding inputs",
    "aten::abs": "rounding inputs to bytes",
    "aten::div": "rounding inputs to bytes",
    "aten::addcmul": "scaling what comes out of bytes",
    "aten::copy_": "copies",
    "aten::_fused_adam": "optimizer",
}
UPDATE = 4096


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    keep_memory()
    set_fp32_matmul("auto")
    model = random_model(options.recipe, options.overrides, options.vocabulary_size)
    kind = autocast_dtype(torch.device("cpu"), options.training)
    rows, passes = max(1, options.micro_batch // options.length), max(1, UPDATE // options.micro_batch)
    step = update(model, (rows, options.length), options.vocabulary_size, kind, passes)
    tokens = passes * rows * options.length
    trained = shares(step, options.updates)
    rate = tokens / statistics.median(seconds(step) for _ in range(5))
    model = random_model(options.recipe, options.overrides, options.vocabulary_size)
    end_late(model)
    weights, packing = PRECISIONS[options.precision]
    pack_linears(model.to(weights), packing)
    decoded = shares(batch(model, options), 1)
    name = str(kind).removeprefix("torch.")
    print(as_table(f"an update of {tokens} target tokens, {name}, {rate:.0f} tokens/s", trained))
    print(as_table(f"{options.batch} sentences, beam {options.beam}, {options.precision}", decoded))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("recipe", metavar="RUNFILE|RECIPE")
    parser.add_argument("overrides", nargs="*", metavar="KEY=VALUE")
    parser.add_argument("--vocabulary-size", type=int, default=32_000)
    parser.add_argument("--length", type=int, default=15, help="subwords of a sentence")
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--updates", type=int, default=3)
    parser.add_argument("--training", choices=("auto", "fp32", "bf16"), default="auto", help="its precision")
    parser.add_argument("--micro-batch", type=int, default=2048, help="target tokens of one forward pass")
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32", help="of decoding")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    return parser.parse_args()


def words(rows: int, length: int, vocabulary: int) -> torch.Tensor:
    """Random sentences `[rows, length]`."""
    drawn = torch.randint(EOS + 2, vocabulary, (rows, length))
    drawn[:, -1] = EOS
    return drawn


def update(
    model: TranslationModel, sizes: tuple[int, int], vocabulary: int, kind: torch.dtype, passes: int = 1
) -> Callable[[], None]:
    """Forward and backward passes of random sentences, rows and length as given, and a step of Adam."""
    source, target = words(*sizes, vocabulary), words(*sizes, vocabulary)
    shifted = torch.cat([torch.full_like(target[:, :1], BOS), target[:, :-1]], dim=1)
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        for _ in range(passes):
            with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind is torch.bfloat16):
                loss = model.loss(source, shifted, target, 0.1).smoothed / (passes * target.numel())
            torch.autograd.backward(loss)
        optimizer.step()

    return step


def batch(model: TranslationModel, options: argparse.Namespace) -> Callable[[], None]:
    """The translation of a batch."""
    source = words(options.batch, options.length, options.vocabulary_size).tolist()
    setting = {"beam": options.beam, "batch": options.batch}

    def once() -> None:
        translate(model, source, setting, options.length)

    return once


def shares(call: Callable[[], None], times: int) -> Counter[str]:
    """Milliseconds by kind of operation, after one call that does not count."""
    call()
    with profile(activities=[ProfilerActivity.CPU]) as found:
        for _ in range(times):
            call()
    spent: Counter[str] = Counter()
    for event in found.key_averages():
        spent[kind_of(event.key)] += event.self_cpu_time_total / 1000 / times
    return spent


def kind_of(operation: str) -> str:
    return next((kind for name, kind in KINDS.items() if operation.startswith(name)), "all else")


def as_table(title: str, spent: Counter[str]) -> str:
    total = sum(spent.values())
    lines = [f"### {title}: {total:.0f} ms", "", "| operations | ms | share |", "|---|---|---|"]
    lines += [f"| {kind} | {time:.1f} | {time / total:.1%} |" for kind, time in spent.most_common()]
    return "\n".join(lines) + "\n"


if __name__ == "__main__":
    main()
