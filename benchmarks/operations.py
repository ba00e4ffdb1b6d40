"""Dropout, the loss, attention and Muon's iteration against the same of torch's operations.

    python benchmarks/operations.py --threads 1

Milliseconds, medians of turns. Of dropout and the loss a forward and a backward pass. The loss is the output
projection with label-smoothed cross-entropy: `plain` holds all logits, as `torch.nn.functional.cross_entropy`
needs them; both run under autocast for bf16. Of attention a forward pass without gradients, against torch's
fused kernel, with a bias that hides padding. Of Muon its five steps, for which `plain` takes all matrices
of a shape at once.
"""

from __future__ import annotations

import argparse
import statistics
from collections.abc import Callable

import torch
from machine import seconds
from torch import Tensor
from torch.nn import functional

from deepwire.ops.allocator import keep_memory
from deepwire.ops.attention import attention
from deepwire.ops.cross_entropy import linear_cross_entropy
from deepwire.ops.dropout import dropout
from deepwire.ops.precision import set_fp32_matmul
from deepwire.training.optimizers.muon import orthogonalize

KINDS = {"fp32": torch.float32, "bf16": torch.bfloat16}
DROPPED: tuple[tuple[int, ...], ...] = ((2048, 256), (2048, 1024), (2048, 512), (136, 4, 15, 15))
# Tokens, d_model, words.
LOSSES = ((2048, 256, 10_000), (2048, 512, 10_000), (1024, 512, 32_000))
# Sentences, heads, queries, keys, numbers of a head.
ATTENDING = (
    (1, 8, 4, 16, 64),
    (64, 8, 4, 16, 64),
    (64, 8, 4, 64, 64),
    (64, 8, 15, 15, 64),
    (16, 8, 128, 128, 64),
)
# Matrices, rows, columns: 6+6 layers of d 128 (84 square ones), and some of d 512.
MOVED = ((84, 128, 128), (12, 256, 128), (24, 512, 512), (6, 512, 2048))
PROBABILITY, SMOOTHING = 0.1, 0.1


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--threads", type=int, default=1)
    parser.add_argument("--turns", type=int, default=15)
    names = ("dropout", "loss", "attention", "Muon")
    parser.add_argument("--only", nargs="*", choices=names, default=names)
    parser.add_argument("--formats", nargs="*", choices=KINDS, default=list(KINDS))
    options = parser.parse_args()
    torch.set_num_threads(options.threads)
    keep_memory()
    set_fp32_matmul("auto")
    for what, sizes, pair in (
        ("dropout of", DROPPED, dropped),
        ("loss of tokens, d, words", LOSSES, losses),
        ("attention of sentences, heads, queries, keys, h", ATTENDING, attending),
        ("Muon of matrices, rows, columns", MOVED, moved),
    ):
        if not any(what.startswith(one) for one in options.only):
            continue
        plain = "plain" if pair in (losses, moved) else "torch"
        print(f"| {what} | {plain}, ms | deepwire, ms | ratio |\n|---|---|---|---|")
        for size in sizes:
            for name in options.formats:
                times = in_turns(pair(KINDS[name], *size), options.turns)
                print(as_row(f"{', '.join(map(str, size))}, {name}", *times), flush=True)
        print()


Pair = tuple[Callable[[], object], Callable[[], object]]


def dropped(kind: torch.dtype, *shape: int) -> Pair:
    """Dropout of torch and of deepwire."""
    x = torch.randn(shape, dtype=kind, requires_grad=True)
    gradient = torch.randn(shape, dtype=kind)

    def pass_through(out: Tensor) -> None:
        torch.autograd.grad(out, x, gradient)

    return (
        lambda: pass_through(functional.dropout(x, PROBABILITY, training=True)),
        lambda: pass_through(dropout(x, PROBABILITY, training=True)),
    )


def losses(kind: torch.dtype, tokens: int, width: int, words: int) -> Pair:
    """The loss from all logits, and in chunks."""
    hidden = torch.randn(tokens, width, requires_grad=True)
    weight = torch.nn.Parameter(width**-0.5 * torch.randn(words, width))
    target = torch.randint(words, (tokens,))

    def plain() -> Tensor:
        logits = functional.linear(hidden, weight)
        return functional.cross_entropy(logits, target, reduction="sum", label_smoothing=SMOOTHING)

    def chunked() -> Tensor:
        return linear_cross_entropy(hidden, weight, None, target, smoothing=SMOOTHING)[0]

    def learn(loss: Callable[[], Tensor]) -> None:
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=kind is torch.bfloat16):
            value = loss()
        torch.autograd.grad(value, (hidden, weight))

    return lambda: learn(plain), lambda: learn(chunked)


def attending(kind: torch.dtype, sentences: int, heads: int, queries: int, keys: int, size: int) -> Pair:
    """torch's fused attention, and what deepwire takes."""
    query = torch.randn(sentences, heads, queries, size, dtype=kind)
    key, value = (torch.randn(sentences, heads, keys, size, dtype=kind) for _ in range(2))
    bias = torch.zeros(sentences, 1, 1, keys, dtype=kind)
    return (
        torch.inference_mode()(
            lambda: functional.scaled_dot_product_attention(query, key, value, attn_mask=bias)
        ),
        torch.inference_mode()(lambda: attention(query, key, value, bias=bias, causal=False, finite=True)),
    )


def moved(kind: torch.dtype, matrices: int, rows: int, columns: int) -> Pair:
    """Muon's iteration for all matrices at once, and as deepwire has it."""
    given = torch.randn(matrices, rows, columns)
    a, b, c = 3.4445, -4.7750, 2.0315

    def plain() -> Tensor:
        x = (given.mT if rows > columns else given).to(kind)
        x = x / x.flatten(1).norm(dim=1)[:, None, None]
        for _ in range(5):
            gram = x @ x.mT
            x = torch.baddbmm(x, torch.baddbmm(gram, gram, gram, beta=b, alpha=c), x, beta=a)
        return (x.mT if rows > columns else x).to(given.dtype)

    return torch.no_grad()(plain), torch.no_grad()(lambda: orthogonalize(given, kind))


def in_turns(calls: Pair, turns: int) -> tuple[float, float]:
    """Median milliseconds of each, called by turns after one round that does not count."""
    times = [[seconds(call) for call in calls] for _ in range(turns + 1)][1:]
    first, second = (1000 * statistics.median(column) for column in zip(*times, strict=True))
    return first, second


def as_row(title: str, first: float, second: float) -> str:
    return f"| {title} | {first:.3g} | {second:.3g} | {first / second:.1f} |"


if __name__ == "__main__":
    main()
