"""What a target token of training costs at each length of sentence, for any models side by side.

    python benchmarks/training_length.py papers/mhplstm-2021/transformer-6-6 papers/mhplstm-2021/mhplstm-6-6
    python benchmarks/training_length.py RECIPE[,KEY=VALUE]... --lengths 16 64 256 --threads 1

An update is a forward and a backward pass of random sentences of one length, both sides alike, and a step of
Adam. Models take turns in each round, in the opposite order in every other one; the median of the rounds
counts. Time is CPU time on one thread, which other work on the machine changes less, and real time on more.
Writes a Markdown table and the raw figures under benchmarks/results/.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import time
from collections.abc import Mapping, Sequence

import harness
import torch
from decoding_speed import random_model
from profile_steps import update

from deepwire.errors import DeepwireError
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.allocator import keep_memory
from deepwire.ops.precision import autocast_dtype, set_fp32_matmul

Rates = Mapping[int, Mapping[str, Sequence[float]]]
"""Target tokens a second by length, model and round."""


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    keep_memory()
    set_fp32_matmul("auto")
    try:
        models = {name: model_of(name, options) for name in options.models}
    except DeepwireError as error:
        sys.exit(f"error: {error}")
    rates = {length: {name: list[float]() for name in models} for length in options.lengths}
    turns = [(length, name) for length in options.lengths for name in models]
    for _, (length, name) in harness.in_turns(turns, options.rounds):
        rates[length][name].append(rate(models[name], length, options))
        print(f"{length} {name}: {rates[length][name][-1]:.0f} target tokens/s", flush=True)
    sizes = {name: sum(model.parameter_groups().values()) for name, model in models.items()}
    print(write_results(rates, sizes, options))


def arguments() -> argparse.Namespace:
    parser = harness.parser(__doc__, threads=1)
    parser.add_argument("models", nargs="+", metavar="RECIPE[,KEY=VALUE]")
    parser.add_argument("--lengths", nargs="+", type=int, default=[16, 64, 256], help="subwords")
    parser.add_argument("--tokens", type=int, default=2048, help="target tokens of an update")
    parser.add_argument("--updates", type=int, default=1, help="timed together, after one that is not")
    parser.add_argument("--vocabulary-size", type=int, default=10_000)
    return parser.parse_args()


def model_of(name: str, options: argparse.Namespace) -> TranslationModel:
    recipe, *overrides = name.split(",")
    return random_model(recipe, overrides, options.vocabulary_size)


def number_format() -> torch.dtype:
    """That of training on this machine."""
    return autocast_dtype(torch.device("cpu"), "auto")


def rate(model: TranslationModel, length: int, options: argparse.Namespace) -> float:
    """Target tokens a second."""
    rows = max(1, options.tokens // length)
    step = update(model, (rows, length), options.vocabulary_size, number_format())
    step()
    clock = time.process_time if options.threads == 1 else time.perf_counter
    begun = clock()
    for _ in range(options.updates):
        step()
    return rows * length * options.updates / (clock() - begun)


def write_results(rates: Rates, sizes: Mapping[str, int], options: argparse.Namespace) -> str:
    first = next(iter(sizes))
    rows = []
    for name in sizes:
        row = [name, f"{sizes[name]:,}"]
        for length in options.lengths:
            found = statistics.median(rates[length][name])
            share = found / statistics.median(rates[length][first])
            row.append(f"{found:.0f}" if name == first else f"{found:.0f} ({share:.2f})")
        rows.append(row)
    about = (
        "Target tokens a second (in brackets: of the first model's); "
        f"{str(number_format()).removeprefix('torch.')}, {options.vocabulary_size} subwords, "
        f"{options.tokens} tokens an update, {options.threads} threads, median of {options.rounds} rounds."
    )
    heads = ["model", "parameters", *(f"{length} subwords" for length in options.lengths)]
    kept = {key: value for key, value in vars(options).items() if key != "results"}
    return harness.write(
        options,
        ["training_length"],
        "Training by length",
        [about, "", *harness.table(heads, rows)],
        {"options": kept, "parameters": sizes, "rates": rates},
    )


if __name__ == "__main__":
    main()
