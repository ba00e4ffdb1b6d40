"""Where the time of an update and of a decoded batch goes, by kind of operation.

    python benchmarks/profile_steps.py papers/neutron-base --vocabulary-size 32000 --threads 1
    python benchmarks/profile_steps.py RUNFILE [KEY=VALUE]... --precision int8 --beam 4 --batch 64 --length 15

The model has random weights; sentences have one length, and translations are made as long as their sources.
Time is that of torch's operations themselves, as its profiler counts it; what Python takes is not in it.
"""

from __future__ import annotations

import argparse
from collections import Counter
from collections.abc import Callable, Mapping

import torch
from decoding_speed import end_late, random_model, translate
from torch.profiler import ProfilerActivity, profile

from deepwire.data.vocabulary import BOS, EOS
from deepwire.decoding.loading import PRECISIONS
from deepwire.model.translator import TranslationModel
from deepwire.ops.allocator import keep_memory
from deepwire.ops.packed_linear import pack_linears
from deepwire.ops.precision import set_fp32_matmul

# The first name that begins the name of an operation says what it is.
KINDS: Mapping[str, str] = {
    "aten::mm": "products",
    "aten::addmm": "products",
    "aten::bmm": "products",
    "aten::baddbmm": "products",
    "aten::linear": "products",
    "mkldnn::": "products",
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
MICRO_BATCH = 4096


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    keep_memory()
    set_fp32_matmul("auto")
    model = random_model(options.recipe, options.overrides, options.vocabulary_size)
    rows = max(1, MICRO_BATCH // options.length)
    step = update(model, rows, options.length, options.vocabulary_size)
    trained = shares(step, options.updates)
    model = random_model(options.recipe, options.overrides, options.vocabulary_size)
    end_late(model)
    kind, packing = PRECISIONS[options.precision]
    pack_linears(model.to(kind), packing)
    decoded = shares(batch(model, options), 1)
    print(as_table(f"an update of {MICRO_BATCH} target tokens", trained))
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
    parser.add_argument("--precision", choices=PRECISIONS, default="fp32", help="of decoding")
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--batch", type=int, default=64)
    return parser.parse_args()


def words(rows: int, length: int, vocabulary: int) -> torch.Tensor:
    """Random sentences `[rows, length]`."""
    drawn = torch.randint(EOS + 2, vocabulary, (rows, length))
    drawn[:, -1] = EOS
    return drawn


def update(model: TranslationModel, rows: int, length: int, vocabulary: int) -> Callable[[], None]:
    """A forward and a backward pass of random sentences, and a step of Adam."""
    source, target = words(rows, length, vocabulary), words(rows, length, vocabulary)
    shifted = torch.cat([torch.full_like(target[:, :1], BOS), target[:, :-1]], dim=1)
    model.train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, fused=True)

    def step() -> None:
        optimizer.zero_grad()
        torch.autograd.backward(model.loss(source, shifted, target, 0.1).smoothed / target.numel())
        optimizer.step()

    return step


def batch(model: TranslationModel, options: argparse.Namespace) -> Callable[[], None]:
    """The translation of a batch."""
    source = words(options.batch, options.length, options.vocabulary_size).tolist()
    setting = {"beam": options.beam, "batch": options.batch}
    return lambda: translate(model, source, setting, options.length) and None


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
