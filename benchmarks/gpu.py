"""Speed and memory on a GPU: training and decoding, in at most eight minutes.

    python benchmarks/gpu.py
    python benchmarks/gpu.py --device cpu --tiny          # the same on small models: does the script work?

Models of the papers with 32,000 subwords and random weights, in bfloat16 as training and decoding use it, on
token ids drawn at random in sentences of lengths like those of news. Nothing is downloaded. Rows come in the
order of what they tell; what no longer fits into the time is left out and named. After each row the Markdown
table and the raw figures are written anew under benchmarks/results/, and the row is printed.

- Training: target tokens a second (forward, backward, clipping, Adam; batches are on the device before), and
  model FLOP utilisation: the operations that the model needs over those that the device could do, by its data
  sheet and by the fastest product measured here. As it is, with compiled layers, and with a bias for padding
  in the place of spans. Warm-up: until the first update is done, of compiled layers with compiling.
- Equality: loss and norm of the gradient of one batch without dropout, beside float32 with the plain paths.
- Loss: the part of an update behind the decoder, in chunks of the size that is taken and of 2,048 tokens.
- Decoding: sentences a second of a test set sorted by length, as the papers report it; every translation is
  made as long as its source; with and without CUDA graphs, and how many translations are the same.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import math
import random
import resource
import sys
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import harness
import machine
import torch
from decoding_speed import end_late
from torch import Tensor
from torch._dynamo.utils import counters

from deepwire.data.vocabulary import BOS, EOS, PAD
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.model_inputs import batches_by_length, pad_batch
from deepwire.decoding.models import StepModel
from deepwire.decoding.search import Batch, generate
from deepwire.model.build import build_model
from deepwire.model.captured_steps import CapturedModel, CudaGraphCapture
from deepwire.model.config import ModelConfig
from deepwire.ops import attention
from deepwire.ops.attention import spans
from deepwire.ops.cross_entropy import chunk_size, linear_cross_entropy
from deepwire.runfile import load_run_file
from deepwire.training import compilation
from deepwire.training.compilation import compile_layers, warm_up
from deepwire.training.device import PrecisionPolicy

Way = Literal["as it is", "compiled", "bias"]

# Recipes by the name that the tables use.
MODELS: Mapping[str, str] = {
    "Transformer base": "papers/neutron-base",
    "Transformer big": "papers/neutron-big",
    "depth-wise LSTM base": "papers/depth-lstm-2024/depth-lstm-6-6",
    "depth-wise LSTM big": "papers/depth-lstm-2024/depth-lstm-big-6-6",
    "MHPLSTM base": "papers/mhplstm-2021/mhplstm-6-6",
    "MHPLSTM big": "papers/mhplstm-2021/mhplstm-big-6-6",
}
# Operations a second of dense bfloat16 products by the makers' data sheets, by a part of the device's name.
DATA_SHEET: Mapping[str, float] = {
    "H100 PCIe": 756e12,
    "H100": 989e12,
    "H200": 989e12,
    "A100": 312e12,
    "A10G": 70e12,
    "L4": 121e12,
    "L40S": 362e12,
    "RTX 4090": 165e12,
}
SPREAD_OF_LENGTHS = 0.6


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    vocabulary: int
    batch_tokens: int
    warmup: int
    updates: int
    sentences: int
    mean_length: float
    product: int
    overrides: Sequence[str]


FULL = Sizes(32_000, 25_000, 10, 40, 2_737, 27.0, 8192, ())
TINY = Sizes(
    *(64, 48, 1, 2, 5, 4.0, 32),
    overrides=(
        *("model.d_model=16", "model.heads=2", "model.feed_forward=16"),
        *("model.encoder.layers=1", "model.decoder.layers=1"),
    ),
)
# Of each part: headers, keys, formats and factors of the columns.
COLUMNS: Mapping[str, Sequence[tuple[str, str, str, float]]] = {
    "training": (
        ("way", "way", "", 0),
        ("parameters, M", "parameters", ".1f", 1e-6),
        ("tokens/s", "tokens_per_second", ".0f", 1),
        ("MFLOP a token", "mflop_per_token", ".1f", 1),
        ("MFU, data sheet", "utilisation_of_data_sheet", ".1%", 1),
        ("MFU, measured product", "utilisation_of_measured", ".1%", 1),
        ("warm-up, s", "seconds_of_warmup", ".1f", 1),
        ("graphs", "compiled_graphs", "", 0),
        ("recompiled", "recompiled", "", 0),
        ("memory, GiB", "memory_gib", ".2f", 1),
    ),
    "equality": (
        ("way", "way", "", 0),
        ("loss, off by", "loss", ".1e", 1),
        ("gradient's norm, off by", "norm", ".1e", 1),
    ),
    "loss": (
        ("tokens of a chunk", "chunk", "", 0),
        ("ms", "seconds", ".2f", 1e3),
        ("memory, GiB", "memory_gib", ".2f", 1),
    ),
    "decoding": (
        ("beam", "beam", "", 0),
        ("CUDA graphs", "graphs", "", 0),
        ("sentences/s", "sentences_per_second", ".1f", 1),
        ("tokens/s", "tokens_per_second", ".0f", 1),
        ("same translations as without", "same_translations", ".1%", 1),
        ("memory, GiB", "memory_gib", ".2f", 1),
    ),
}


def main() -> None:
    options = arguments()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("error: no GPU here; --device cpu --tiny tries the script out")
    device = torch.device(options.device)
    sizes = TINY if options.tiny else FULL
    if options.tiny:
        compilation.BACKEND = "eager"  # kernels would take minutes to make
    peak = product_rate(sizes.product, device)
    left_out: list[str] = []
    record: dict[str, object] = {
        "machine": description(device),
        "tiny": options.tiny,
        "products_per_second": peak,
        "data_sheet": data_sheet(device),
        "left_out": left_out,
    }
    begun, text, longest = time.perf_counter(), "", defaultdict[str, float](float)
    for part, what, rows in plan(sizes, device, peak):
        started = time.perf_counter()
        kind = f"{part} {what.rpartition(', ')[2]}"
        if started - begun + longest[kind] > options.seconds:
            left_out.append(f"{part}: {what}")
            continue
        try:
            for row in rows:
                record.setdefault(part, []).append(row)  # type: ignore[attr-defined]
                print(json.dumps(row), flush=True)
                text = write(record, device, options)
        except RuntimeError as error:  # the other rows are worth something without it
            left_out.append(f"{part}: {what}: {str(error)[:300]}")
        longest[kind] = max(longest[kind], time.perf_counter() - started)
    print(text or "nothing was measured", "left out:", left_out)


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--seconds", type=float, default=440, help="after which no further row is begun")
    parser.add_argument("--tiny", action="store_true", help="models and data too small to tell anything")
    parser.add_argument("--results", type=Path, default=harness.RESULTS)
    return parser.parse_args()


Rows = Iterator[dict[str, object]]


def plan(sizes: Sizes, device: torch.device, peak: float) -> Iterator[tuple[str, str, Rows]]:
    """Part of the report, name and rows of everything, in the order of what it tells."""

    def config(name: str, *more: str) -> ModelConfig:
        return load_run_file(MODELS[name], (*sizes.overrides, *more)).config.model

    def train(name: str, way: Way) -> tuple[str, str, Rows]:
        return "training", f"{name}, {way}", training(name, config(name), sizes, device, peak, way)

    def decode_by(name: str, beam: int) -> tuple[str, str, Rows]:
        return "decoding", f"{name}, beam {beam}", decoding(name, config(name), sizes, device, beam)

    base, big, *others = MODELS
    yield train(base, "as it is")
    yield train(base, "compiled")
    yield "equality", base, equality(base, config(base, "model.dropout=0"), sizes, device)
    yield train(base, "bias")
    yield "loss", base, loss_part(base, config(base), sizes, device)
    yield train(big, "as it is")
    yield train(big, "compiled")
    yield decode_by(base, 1)
    for name in others:
        yield train(name, "as it is")
        yield train(name, "compiled")
    for name in (name for name in others if "base" in name):
        yield decode_by(name, 1)
    yield decode_by(base, 4)


def description(device: torch.device) -> dict[str, object]:
    found = machine.description()
    if device.type == "cuda":
        properties = torch.cuda.get_device_properties(device)
        found["gpu"] = properties.name
        found["gpu_memory_gib"] = round(properties.total_memory / 2**30, 1)
        found["cuda"] = torch.version.cuda
    return found


def data_sheet(device: torch.device) -> float | None:
    """Operations a second that the maker states, where the device is known."""
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else ""
    known = [part for part in DATA_SHEET if part in name]
    return DATA_SHEET[max(known, key=len)] if known else None


def product_rate(size: int, device: torch.device) -> float:
    """Operations a second of a large bfloat16 product."""
    left, right = (torch.randn(size, size, device=device).bfloat16() for _ in range(2))
    return 2 * size**3 / timed(lambda: left @ right, device)


def timed(call: Callable[[], object], device: torch.device, rounds: int = 5, calls: int = 20) -> float:
    """Seconds of a call in the fastest of several rounds.

    Calls of a round follow each other without waiting: a kernel of some microseconds must not be timed with
    the start of the first and the waiting for the last.
    """
    call()
    best = math.inf
    for _ in range(rounds):
        wait(device)
        begun = time.perf_counter()
        for _ in range(calls):
            call()
        wait(device)
        best = min(best, time.perf_counter() - begun)
    return best / calls


def wait(device: torch.device) -> None:
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextlib.contextmanager
def peak_memory(device: torch.device) -> Iterator[dict[str, float]]:
    """The most memory taken meanwhile, GiB: of the GPU, or of this process since its start."""
    found: dict[str, float] = {}
    if device.type == "cuda":
        torch.cuda.empty_cache()
        torch.cuda.reset_peak_memory_stats(device)
    yield found
    if device.type == "cuda":
        found["memory_gib"] = torch.cuda.max_memory_allocated(device) / 2**30
    else:
        found["memory_gib"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20


@contextlib.contextmanager
def padding_as_bias(wanted: bool) -> Iterator[None]:
    """Within the block no kernel takes spans."""
    has_kernel = attention._has_span_kernel
    if wanted:
        attention._has_span_kernel = lambda _: False  # type: ignore[assignment]
    try:
        yield
    finally:
        attention._has_span_kernel = has_kernel


def training(
    name: str, config: ModelConfig, sizes: Sizes, device: torch.device, peak: float, way: Way
) -> Rows:
    """Target tokens a second of one model."""
    torch.manual_seed(1)
    torch.compiler.reset()
    counters.clear()
    model = build_model(config, sizes.vocabulary, sizes.vocabulary).to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)
    batches = training_batches(sizes, device)
    turns = [batches[update % len(batches)] for update in range(sizes.warmup + sizes.updates)]
    begun, timed_tokens, said, seconds_of_warmup, graphs = 0.0, 0, list[str](), 0.0, 0
    with peak_memory(device) as memory, padding_as_bias(way == "bias"):
        started = time.perf_counter()
        if way == "compiled":
            compile_layers(model, said.append)
            warm_up(model, model.loss, PrecisionPolicy("bf16", "highest", device.type), sizes.batch_tokens)
            graphs = counters["stats"]["unique_graphs"]
        for number, (source, target_input, target_output) in enumerate(turns):
            if number == sizes.warmup:
                wait(device)
                begun = time.perf_counter()
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=torch.bfloat16):
                sums = model.loss(source, target_input, target_output, 0.1)
            torch.autograd.backward(sums.smoothed / target_output.numel())
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            timed_tokens += target_output.numel() if number >= sizes.warmup else 0
            if not number:
                wait(device)
                seconds_of_warmup = time.perf_counter() - started
        wait(device)
        seconds = time.perf_counter() - begun
    rate = timed_tokens / seconds
    lengths = [source.size(1) for source, *_ in turns[sizes.warmup :] for _ in range(source.size(0))]
    mean = sum(lengths) / len(lengths)
    operations = machine.operations_per_token(config, sizes.vocabulary, mean, mean)
    sheet = data_sheet(device)
    yield {
        "model": name,
        "way": way,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "tokens_per_second": rate,
        "mflop_per_token": operations / 1e6,
        "utilisation_of_data_sheet": None if sheet is None else rate * operations / sheet,
        "utilisation_of_measured": rate * operations / peak,
        "seconds_of_warmup": seconds_of_warmup,
        "compiled_graphs": graphs,
        "recompiled": counters["stats"]["unique_graphs"] - graphs,
        "not_compiled": said,
        **memory,
    }


def equality(name: str, config: ModelConfig, sizes: Sizes, device: torch.device) -> Rows:
    """How far loss and gradient of one batch are from those of float32 with the plain paths."""
    torch.manual_seed(1)
    torch.compiler.reset()
    model = build_model(config, sizes.vocabulary, sizes.vocabulary).to(device).train()
    source, target_input, target_output = training_batches(sizes, device)[0]
    source[::2, -(source.size(1) // 3) :] = PAD

    def outcome(precise: bool) -> tuple[float, float]:
        model.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16, enabled=not precise):
            loss = model.loss(source, target_input, target_output, 0.1).smoothed
        torch.autograd.backward(loss / target_output.numel())
        gradients = [each.grad for each in model.parameters() if each.grad is not None]
        return float(loss.detach()), float(torch.nn.utils.get_total_norm(gradients))

    with padding_as_bias(True):
        expected = outcome(precise=True)
    for way in ("bias", "as it is", "compiled"):
        if way == "compiled":
            compile_layers(model, print)
        with padding_as_bias(way == "bias"):
            found = outcome(precise=False)
        loss, norm = (abs(one / other - 1) for one, other in zip(found, expected, strict=True))
        yield {"model": name, "way": way, "loss": loss, "norm": norm, "spans": bool(spans(source != PAD, 1))}


def loss_part(name: str, config: ModelConfig, sizes: Sizes, device: torch.device) -> Rows:
    """Seconds of the loss of a batch and its gradients."""
    weight = torch.randn(sizes.vocabulary, config.d_model, device=device, requires_grad=True)
    hidden = torch.randn(sizes.batch_tokens, config.d_model, device=device, requires_grad=True)
    bias = torch.zeros(sizes.vocabulary, device=device, requires_grad=True)
    target = torch.randint(EOS + 2, sizes.vocabulary, (sizes.batch_tokens,), device=device)

    for chunk in (chunk_size(weight), 2048):

        def once(chunk: int = chunk) -> Tensor:
            with torch.autocast(device.type, dtype=torch.bfloat16):
                given = hidden, weight, bias, target
                return linear_cross_entropy(*given, smoothing=0.1, ignore=PAD, chunk=chunk)[0]

        with peak_memory(device) as memory:
            seconds = timed(once, device, calls=3)
        yield {"model": name, "chunk": chunk, "seconds": seconds, **memory}


def training_batches(sizes: Sizes, device: torch.device) -> list[tuple[Tensor, Tensor, Tensor]]:
    """One batch of each common length, all words, about as many tokens each."""
    found = []
    for length in sorted(set(lengths(sizes, 200)))[:: max(1, 200 // 16)]:
        rows = max(1, sizes.batch_tokens // length)
        source, target = (words(rows, length, sizes.vocabulary, device) for _ in range(2))
        found.append((source, torch.cat((torch.full_like(target[:, :1], BOS), target[:, :-1]), 1), target))
    random.Random(1).shuffle(found)
    return found


def lengths(sizes: Sizes, count: int) -> list[int]:
    """Lengths of sentences: log-normal, as in news, the end of sentence counted."""
    generator = random.Random(1)
    middle = math.log(sizes.mean_length) - SPREAD_OF_LENGTHS**2 / 2
    drawn = (generator.lognormvariate(middle, SPREAD_OF_LENGTHS) for _ in range(count))
    return [min(128, max(2, round(length))) for length in drawn]


def words(rows: int, length: int, vocabulary: int, device: torch.device) -> Tensor:
    drawn = torch.randint(
        EOS + 2, vocabulary, (rows, length), generator=torch.Generator().manual_seed(length)
    )
    drawn[:, -1] = EOS
    return drawn.to(device)


def decoding(
    name: str, config: ModelConfig, sizes: Sizes, device: torch.device, beam: int
) -> Iterator[dict[str, object]]:
    """Sentences a second of a test set sorted by length; on a GPU again with graphs, with the share of
    translations that stay the same."""
    torch.manual_seed(1)
    model = build_model(config, sizes.vocabulary, sizes.vocabulary).to(device, torch.bfloat16).eval()
    end_late(model)
    settings = DecodingConfig(beam=beam)
    test = [
        words(1, length, sizes.vocabulary, device)[0].tolist() for length in lengths(sizes, sizes.sentences)
    ]
    batches = batches_by_length([len(ids) for ids in test], max(1, settings.batch_tokens // settings.width))
    plain: list[tuple[int, ...]] = []
    for graphs in (False, True) if device.type == "cuda" else (False,):
        stepped = CapturedModel(model, CudaGraphCapture(device)) if graphs else model
        # The largest and the smallest: what memory they need is there before the clock starts. Graphs of
        # common shapes are recorded in the first two passes.
        for warm in (batches, batches) if graphs else ([batches[0], batches[-1]],):
            decode(stepped, test, warm, settings, device)
        with peak_memory(device) as memory:
            wait(device)
            begun = time.perf_counter()
            made = decode(stepped, test, batches, settings, device)
            wait(device)
            seconds = time.perf_counter() - begun
        plain = plain or made
        yield {
            "model": name,
            "beam": beam,
            "graphs": graphs,
            "sentences_per_second": len(test) / seconds,
            "tokens_per_second": sum(map(len, made)) / seconds,
            "same_translations": sum(one == other for one, other in zip(made, plain, strict=True))
            / len(test),
            "batches": len(batches),
            **memory,
        }


def decode(
    model: StepModel,
    test: Sequence[list[int]],
    batches: Sequence[Sequence[int]],
    settings: DecodingConfig,
    device: torch.device,
) -> list[tuple[int, ...]]:
    """The best translations of the batches, sentence by sentence, without the end of sentence."""
    made = []
    for batch in batches:
        source = pad_batch([test[row] for row in batch], device)
        found = generate(model, Batch(source, [len(test[row]) - 1 for row in batch]), settings)
        made += [hypotheses[0].ids for hypotheses in found]
    return made


def write(record: Mapping[str, object], device: torch.device, options: argparse.Namespace) -> str:
    """Write table and figures; the table."""
    options.results.mkdir(parents=True, exist_ok=True)
    where = record["machine"]
    assert isinstance(where, dict)
    label = str(where.get("gpu", device.type)).replace(" ", "-")
    stem = options.results / f"gpu_{label}_{where['date']}{'_tiny' if options.tiny else ''}"
    text = as_table(record, where)
    Path(f"{stem}.md").write_text(text)
    Path(f"{stem}.json").write_text(json.dumps(record, indent=1) + "\n")
    return text


def as_table(record: Mapping[str, object], where: Mapping[str, object]) -> str:
    measured, sheet = record["products_per_second"], record["data_sheet"]
    assert isinstance(measured, float)
    lines = [
        f"# {where.get('gpu', where['processor'])}, {where['date']}",
        "",
        f"torch {where['torch']}, bfloat16. Largest product measured: {measured / 1e12:.2f} TFLOP/s; "
        f"data sheet: {sheet / 1e12 if isinstance(sheet, float) else '-'}.",
    ]
    if record["tiny"]:
        lines += ["", "A trial of the script on models too small to tell anything."]
    for part, columns in COLUMNS.items():
        rows = record.get(part)
        if isinstance(rows, list):
            cells = [
                [row["model"], *(cell(row[key], form, factor) for _, key, form, factor in columns)]
                for row in rows
            ]
            heads = ["model", *(header for header, *_ in columns)]
            lines += ["", f"## {part.capitalize()}", "", *harness.table(heads, cells)]
    return "\n".join(lines) + "\n"


def cell(value: object, form: str, factor: float) -> str:
    if not isinstance(value, int | float):
        return value if isinstance(value, str) else "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format(value * factor if factor else value, form)


if __name__ == "__main__":
    main()
