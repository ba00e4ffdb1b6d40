"""Speed and memory on a GPU: training and decoding.

    python benchmarks/gpu.py [--only training decoding] [--models NAME...] [--beams 1 4] [--compile]
    python benchmarks/gpu.py --device cpu --tiny          # the same on small models: does the script work?

Models of the papers with 32,000 subwords and random weights, in bfloat16 as training and decoding use it, on
token ids drawn at random in sentences of lengths like those of news. Nothing is downloaded. Writes a Markdown
table and the raw figures under benchmarks/results/.

Training: target tokens a second (forward, backward, clipping, Adam; batches are on the device before), and
model FLOP utilisation: the operations that the model needs over those that the device
could do, by its data sheet and by the fastest product measured here. Decoding: sentences a second of a test
set sorted by length, as the papers report it; every translation is made as long as its source; with and
without CUDA graphs, and how many translations are the same.
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
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import harness
import machine
import torch
from decoding_speed import end_late
from torch import Tensor

from deepwire.data.vocabulary import BOS, EOS
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.model_inputs import batches_by_length, pad_batch
from deepwire.decoding.models import StepModel
from deepwire.decoding.search import Batch, generate
from deepwire.model.build import build_model
from deepwire.model.captured_steps import CapturedModel, CudaGraphCapture
from deepwire.model.config import ModelConfig
from deepwire.runfile import load_run_file

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
        ("compiled", "compiled", "", 0),
        ("parameters, M", "parameters", ".1f", 1e-6),
        ("tokens/s", "tokens_per_second", ".0f", 1),
        ("MFLOP a token", "mflop_per_token", ".1f", 1),
        ("MFU, data sheet", "utilisation_of_data_sheet", ".1%", 1),
        ("MFU, measured product", "utilisation_of_measured", ".1%", 1),
        ("warm-up, s", "seconds_of_warmup", ".1f", 1),
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
    record: dict[str, object] = {"machine": description(device), "tiny": options.tiny}
    peak = product_rate(sizes.product, device)
    record["products_per_second"] = peak
    record["data_sheet"] = data_sheet(device)
    if "training" in options.only:
        record["training"] = [
            report(training(name, model, sizes, device, peak, compiled))
            for name, model in models(options, sizes)
            for compiled in ((False, True) if options.compile else (False,))
        ]
    if "decoding" in options.only:
        record["decoding"] = [
            report(row)
            for name, model in models(options, sizes)
            for beam in options.beams
            for row in decoding(name, model, sizes, device, beam)
        ]
    print(write(record, device, options))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ("training", "decoding")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 4], help="of decoding")
    parser.add_argument("--compile", action="store_true", help="train with torch.compile too")
    parser.add_argument("--tiny", action="store_true", help="models and data too small to tell anything")
    parser.add_argument("--results", type=Path, default=harness.RESULTS)
    return parser.parse_args()


def models(options: argparse.Namespace, sizes: Sizes) -> Iterator[tuple[str, ModelConfig]]:
    """Name and architecture of every model that was asked for."""
    for name in options.models:
        yield name, load_run_file(MODELS[name], sizes.overrides).config.model


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


def training(
    name: str, config: ModelConfig, sizes: Sizes, device: torch.device, peak: float, compiled: bool
) -> dict[str, object]:
    """Target tokens a second of one model, compiled or not."""
    torch.manual_seed(1)
    torch.compiler.reset()
    model = build_model(config, sizes.vocabulary, sizes.vocabulary).to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)
    loss = torch.compile(model.forward, dynamic=True) if compiled else model.loss
    batches = training_batches(sizes, device)
    turns = [batches[update % len(batches)] for update in range(sizes.warmup + sizes.updates)]
    begun, timed_tokens = 0.0, 0
    with peak_memory(device) as memory:
        started = time.perf_counter()
        for number, (source, target_input, target_output) in enumerate(turns):
            if number == sizes.warmup:
                wait(device)
                begun = time.perf_counter()
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=torch.bfloat16):
                sums = loss(source, target_input, target_output, 0.1)
            torch.autograd.backward(sums.smoothed / target_output.numel())
            torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
            optimizer.step()
            timed_tokens += target_output.numel() if number >= sizes.warmup else 0
        wait(device)
        seconds = time.perf_counter() - begun
    rate = timed_tokens / seconds
    lengths = [source.size(1) for source, *_ in turns[sizes.warmup :] for _ in range(source.size(0))]
    mean = sum(lengths) / len(lengths)
    operations = machine.operations_per_token(config, sizes.vocabulary, mean, mean)
    sheet = data_sheet(device)
    return {
        "model": name,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "compiled": compiled,
        "tokens_per_second": rate,
        "mflop_per_token": operations / 1e6,
        "utilisation_of_data_sheet": None if sheet is None else rate * operations / sheet,
        "utilisation_of_measured": rate * operations / peak,
        "seconds_of_warmup": begun - started,
        **memory,
    }


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


def report(found: dict[str, object]) -> dict[str, object]:
    print(json.dumps(found), flush=True)
    return found


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
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return format(value * factor if factor else value, form)


if __name__ == "__main__":
    main()
