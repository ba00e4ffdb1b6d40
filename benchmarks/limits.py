"""How fast this machine could train and decode a model at best, and how near a measured speed comes.

    python benchmarks/limits.py RUNFILE|RECIPE [key=value ...] [--vocabulary-size N]
        [--source-length 25] [--target-length 25] [--beam 4] [--batch 1 64] [--measured TOKENS_PER_SECOND]

Counts the operations and bytes of the built model (deepwire.model.cost) and measures the machine (machine.py,
or its figures from --machine FILE). The limit is the slower of two: all products at the rate of the fastest
product here, all bytes that cannot be avoided at the rate of memory. Nothing reaches it. Source and target
sentences are all of one length, the end of sentence counted.
"""

from __future__ import annotations

import argparse
import json
import math
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

import machine
import torch

from deepwire.errors import DeepwireError
from deepwire.model.config import ModelConfig
from deepwire.model.cost import (
    StepCost,
    TrainingCost,
    encoding_operations,
    meta_model,
    parameter_bytes,
    step_cost,
    training_cost,
)
from deepwire.model.translation_model import TranslationModel
from deepwire.runfile import load_run_file


@dataclass(frozen=True)
class Machine:
    """What bounds any program here.

    Attributes:
        products: Operations a second by number format, of the shape that runs fastest.
        copy: Bytes a second, read and written together, beyond any cache.
        reads: Bytes a second by the size of what is read over and over.
    """

    products: Mapping[str, float]
    copy: float
    reads: Mapping[int, float]

    @classmethod
    def of(cls, figures: Mapping[str, object]) -> Machine:
        """Read what `machine.measured` gives."""
        rates, reads, copied = (
            figures[name] for name in ("gflops", "read_gb_per_second", "copy_gb_per_second")
        )
        assert isinstance(rates, dict)
        assert isinstance(reads, dict)
        assert isinstance(copied, int | float)
        return cls(
            {name: 1e9 * max(shape[name] for shape in rates.values()) for name in machine.FORMATS},
            1e9 * copied,
            {int(mib) * 2**20: 1e9 * rate for mib, rate in reads.items()},
        )

    @property
    def fastest(self) -> str:
        """The number format of the fastest products."""
        return max(self.products, key=lambda name: self.products[name])

    def read(self, size: int) -> float:
        """Bytes a second at which a block of that size is read."""
        fitting = [block for block in self.reads if block >= size]
        return self.reads[min(fitting) if fitting else max(self.reads)]


@dataclass(frozen=True)
class TrainingLimit:
    """Target tokens a second: by products alone, by memory alone; the slower is the limit."""

    products: float
    memory: float
    format: str

    @property
    def tokens_per_second(self) -> float:
        return min(self.products, self.memory)


@dataclass(frozen=True)
class DecodingLimit:
    """Decoding of one batch size; seconds at the middle of the sentence stand for every step."""

    batch: int
    cost: StepCost
    step_by_products: float
    step_by_memory: float
    sentences_per_second: float
    tokens_per_second: float


def main() -> None:
    options = arguments()
    try:
        name, config, vocabulary, update_tokens = subject(options)
    except DeepwireError as error:
        sys.exit(f"error: {error}")
    torch.set_num_threads(options.threads)
    found = Machine.of(figures(options))
    model = meta_model(config, vocabulary, vocabulary)
    lengths = (options.source_length, options.target_length)
    cost = training_cost(
        model,
        source_length=lengths[0],
        target_length=lengths[1],
        sentences=max(1, update_tokens // lengths[1]),
    )
    limit = training_limit(cost, found, update_tokens)
    decoding = [decoding_limit(model, found, batch, options.beam, *lengths) for batch in options.batch]
    parameters = parameter_bytes(model) // 4
    print(f"{name}: {parameters:,} parameters, {vocabulary:,} subwords; ", end="")
    print(f"{lengths[0]} source and {lengths[1]} target tokens a sentence; {options.threads} threads\n")
    print(training_text(cost, limit, found, update_tokens, options.measured))
    print(decoding_text(decoding, options.beam))
    if options.json is not None:
        record = {
            "name": name,
            "parameters": parameters,
            "lengths": lengths,
            "machine": asdict(found),
            "training": {**asdict(cost), "limit": asdict(limit), "measured": options.measured},
            "decoding": [asdict(each) for each in decoding],
        }
        options.json.write_text(json.dumps(record, indent=1) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("subject", metavar="RUNFILE|RECIPE")
    parser.add_argument("overrides", nargs="*", metavar="key=value", default=[])
    parser.add_argument("--vocabulary-size", type=int, help="where the run file does not say it")
    parser.add_argument("--source-length", type=int, default=25)
    parser.add_argument("--target-length", type=int, default=25)
    parser.add_argument("--beam", type=int, default=4)
    parser.add_argument("--batch", type=int, nargs="+", default=[1, 64], help="sentences decoded together")
    parser.add_argument("--measured", type=float, metavar="TOKENS_PER_SECOND", help="a speed of training")
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--machine", type=Path, help="figures that machine.py --json wrote")
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    # Settings and options may come in any order.
    return parser.parse_intermixed_args()


def subject(options: argparse.Namespace) -> tuple[str, ModelConfig, int, int]:
    """Name, architecture, vocabulary size and target tokens an update."""
    config = load_run_file(options.subject, options.overrides).config
    size = options.vocabulary_size or getattr(config.data.vocabulary, "size", None)
    if not isinstance(size, int):
        sys.exit(f"error: {options.subject} does not say how large its vocabulary is: --vocabulary-size N")
    return options.subject, config.model, size, config.training.batch_tokens


def figures(options: argparse.Namespace) -> Mapping[str, object]:
    """The machine's rates, measured now unless a file has them."""
    if options.machine is None:
        return machine.measured()
    record: Mapping[str, object] = json.loads(options.machine.read_text())
    return record


def training_limit(cost: TrainingCost, found: Machine, update_tokens: int) -> TrainingLimit:
    """Target tokens a second at best."""
    return TrainingLimit(
        found.products[found.fastest] / cost.operations,
        found.copy / cost.least_bytes(update_tokens),
        found.fastest,
    )


def operations_per_token(model: TranslationModel, source_length: float, target_length: float) -> float:
    """Operations of training for each target token of a corpus with these mean lengths.

    Costs are those of whole numbers of tokens; between two source lengths they are nearly straight.
    """
    target = max(1, round(target_length))
    source = source_length * target / target_length
    low = max(1, math.floor(source))
    below, above = (
        training_cost(model, source_length=length, target_length=target).operations
        for length in (low, low + 1)
    )
    return below + (above - below) * (source - low)


def decoding_limit(
    model: TranslationModel, found: Machine, batch: int, beam: int, source_length: int, target_length: int
) -> DecodingLimit:
    """Sentences a second at best, all steps taken to cost what the middle one does."""
    cost = step_cost(
        model, sentences=batch, beam=beam, source_length=source_length, position=target_length // 2
    )
    rate = found.products[found.fastest]
    by_products = cost.operations / rate
    by_memory = cost.read / found.read(cost.read)
    encoding = batch * encoding_operations(model, source_length) / rate
    seconds = encoding + target_length * max(by_products, by_memory)
    return DecodingLimit(
        batch, cost, by_products, by_memory, batch / seconds, batch * target_length / seconds
    )


def training_text(
    cost: TrainingCost, limit: TrainingLimit, found: Machine, update_tokens: int, measured: float | None
) -> str:
    """The part of the report on training."""
    lines = [
        f"training, a target token (forward and backward, {update_tokens} an update)",
        f"  operations    {cost.operations / 1e6:.1f} MFLOP: layers {cost.layers / 1e6:.1f}, "
        f"output projection {cost.output / 1e6:.1f}",
        f"  memory        {cost.least_bytes(update_tokens) / 1e3:.0f} kB at least "
        f"({cost.kept / 1e3:.0f} kept for the backward pass), "
        f"{cost.moved / 1e3:.0f} kB operation by operation",
        *(
            f"  {name:<14}products at {rate / 1e9:.0f} GFLOP/s: {rate / cost.operations:.0f} tokens/s"
            for name, rate in found.products.items()
        ),
        f"  memory alone  at {found.copy / 1e9:.1f} GB/s: {limit.memory:.0f} tokens/s",
        f"  limit         {limit.tokens_per_second:.0f} tokens/s",
    ]
    if measured is not None:
        lines.append(
            f"  measured      {measured:.0f} tokens/s, {measured / limit.tokens_per_second:.0%} of the limit"
        )
    return "\n".join(lines)


def decoding_text(limits: Sequence[DecodingLimit], beam: int) -> str:
    """The part of the report on decoding."""
    lines = [
        f"\ndecoding, beam {beam}, weights in float32",
        "| batch | MFLOP a step | MB read a step | ms by products | ms by memory | tokens/s | sentences/s |",
        "|---|---|---|---|---|---|---|",
    ]
    for limit in limits:
        lines.append(
            f"| {limit.batch} | {limit.cost.operations / 1e6:.0f} | {limit.cost.read / 1e6:.1f} "
            f"| {1e3 * limit.step_by_products:.2f} | {1e3 * limit.step_by_memory:.2f} "
            f"| {limit.tokens_per_second:.0f} | {limit.sentences_per_second:.1f} |"
        )
    return "\n".join(lines)


if __name__ == "__main__":
    main()
