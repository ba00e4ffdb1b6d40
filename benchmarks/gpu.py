"""Speed and memory on a GPU: training, the linear recurrence, decoding.

    python benchmarks/gpu.py [--only training recurrence decoding] [--models NAME...] [--beams 1 4]
                             [--compile both|on|off] [--results FOLDER]
    python benchmarks/gpu.py --device cpu --tiny          # the same on small models: does the script work?

Models of the papers with 32,000 subwords and random weights, in bfloat16 as training and decoding use it, on
token ids drawn at random in sentences of lengths like those of news. Nothing is downloaded. Writes a Markdown
table and the raw figures under benchmarks/results/; a further run on the same GPU, torch and day adds its
rows to them, or replaces those of the same name.

Training: target tokens a second (forward, backward, clipping, Adam; batches are on the device before), and
model FLOP utilisation: the operations that the model needs over those that the device
could do, by its data sheet and by the fastest product measured here. Recurrence: bytes that must move over
the time that it takes, against the rate at which memory is copied and a loop over the positions. Decoding:
sentences a second of a test set sorted by length, as the papers report it; every translation is made as long
as its source; with and without CUDA graphs, and how many translations are the same.
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

import machine
import torch
from gpu_table import as_table
from limits import operations_per_token
from torch import Tensor

from deepwire.data.vocabulary import BOS, EOS
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.model_inputs import batches_by_length, pad_batch
from deepwire.decoding.models import StepModel
from deepwire.decoding.search import Batch, generate
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.cuda_graphs import CudaGraphCapture, CudaGraphModel
from deepwire.model.meta_init import meta_model
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.linear_recurrence import linear_recurrence
from deepwire.runfile import load_run_file

HERE = Path(__file__).resolve().parent
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
# Shapes of the recurrence: positions, and sentences times width.
RECURRENCES = [(32, 800 * 512), (64, 400 * 512), (256, 100 * 512), (1024, 25 * 512)]
SPREAD_OF_LENGTHS = 0.6
# Added to the logits of the end: low enough, and sums of log-probabilities keep their digits.
UNLIKELY = -1000.0


@dataclass(frozen=True)
class Sizes:
    """How much of everything."""

    vocabulary: int
    batch_tokens: int
    warmup: int
    updates: int
    sentences: int
    mean_length: float
    recurrences: Sequence[tuple[int, int]]
    product: int
    overrides: Sequence[str]


FULL = Sizes(32_000, 25_000, 10, 40, 2_737, 27.0, RECURRENCES, 8192, ())
TINY = Sizes(
    64,
    48,
    1,
    2,
    5,
    4.0,
    [(3, 8)],
    32,
    (
        *("model.d_model=16", "model.heads=2", "model.feed_forward=16"),
        *("model.encoder.layers=1", "model.decoder.layers=1"),
    ),
)


def main() -> None:
    options = arguments()
    if options.device.startswith("cuda") and not torch.cuda.is_available():
        sys.exit("error: no GPU here; --device cpu --tiny tries the script out")
    device = torch.device(options.device)
    sizes = TINY if options.tiny else FULL
    record: dict[str, object] = {"machine": description(device), "tiny": options.tiny}
    before = earlier(record, device, options)
    peak = product_rate(sizes.product, device)
    record["products_per_second"] = peak
    record["data_sheet"] = data_sheet(device)
    copied = record["copied_bytes_per_second"] = copy_rate(device, sizes)
    if "training" in options.only:
        compiled = {"both": (False, True), "on": (True,), "off": (False,)}[options.compile]
        record["training"] = [
            report(training(name, model, sizes, device, peak, options.backend if wanted else None))
            for name, model in models(options, sizes)
            for wanted in compiled
        ]
    if "recurrence" in options.only:
        record["recurrence_error"] = report({"recurrence_error": recurrence_error(device)})
        record["recurrence"] = [
            report(recurrence(positions, width, device, copied)) for positions, width in sizes.recurrences
        ]
    if "decoding" in options.only:
        record["decoding"] = [
            report(row)
            for name, model in models(options, sizes)
            for beam in options.beams
            for row in decoding(name, model, sizes, device, beam)
        ]
    print(write(joined(before, record), device, options))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parts = ("training", "recurrence", "decoding")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--only", nargs="+", choices=parts, default=parts)
    parser.add_argument("--models", nargs="+", choices=MODELS, default=list(MODELS))
    parser.add_argument("--beams", nargs="+", type=int, default=[1, 4], help="of decoding")
    parser.add_argument("--compile", choices=("both", "on", "off"), default="both", help="torch.compile")
    parser.add_argument("--backend", default="inductor", help="of torch.compile")
    parser.add_argument("--tiny", action="store_true", help="models and data too small to tell anything")
    parser.add_argument("--results", type=Path, default=HERE / "results")
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


def copy_rate(device: torch.device, sizes: Sizes) -> float:
    """Bytes a second that are read and written when a large block is copied."""
    source = torch.ones(sizes.product**2 * 2, device=device)
    target = torch.empty_like(source)
    return 2 * 4 * source.numel() / timed(lambda: target.copy_(source), device)


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
    name: str, config: ModelConfig, sizes: Sizes, device: torch.device, peak: float, backend: str | None
) -> dict[str, object]:
    """Target tokens a second of one model, compiled or not."""
    torch.manual_seed(1)
    torch.compiler.reset()
    model = build_model(config, sizes.vocabulary, sizes.vocabulary).to(device).train()
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-4, betas=(0.9, 0.98), fused=True)
    loss = model.loss if backend is None else torch.compile(model.forward, dynamic=True, backend=backend)
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
    operations = operations_per_token(meta_model(config, sizes.vocabulary, sizes.vocabulary), mean, mean)
    sheet = data_sheet(device)
    return {
        "model": name,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "compiled": backend is not None,
        "cudnn_attention": False,
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


def recurrence_error(device: torch.device) -> float:
    """How far cells and gradients are from those of float64, in shares of the largest; stops above 1e-4.

    Fast kernels that are wrong would be worth nothing.
    """
    torch.manual_seed(1)
    keep, update = (torch.rand(77, 3, 130, dtype=torch.float64, device=device) for _ in range(2))
    initial = torch.rand(3, 130, dtype=torch.float64, device=device)
    upstream = torch.rand(77, 3, 130, dtype=torch.float64, device=device)

    def numbers(form: Callable[[Tensor, Tensor, Tensor], Tensor], kind: torch.dtype) -> list[Tensor]:
        given = [each.to(kind).requires_grad_() for each in (keep, update, initial)]
        cells = form(*given)
        return [cells.detach(), *torch.autograd.grad(cells, given, upstream.to(kind))]

    exact, found = (
        numbers(position_by_position, torch.float64),
        numbers(linear_recurrence, torch.float32),
    )
    error = max(
        float((one.double() - other).abs().max() / other.abs().max())
        for one, other in zip(found, exact, strict=True)
    )
    if not error < 1e-4:
        sys.exit(
            f"error: the linear recurrence is wrong on {device}: off by {error:.1g} of the largest number"
        )
    return error


def recurrence(positions: int, width: int, device: torch.device, copied: float) -> dict[str, object]:
    """Bytes a second of c_t = f_t c_{t-1} + r_t, alone and with its backward pass, in float32."""
    keep, update = (torch.rand(positions, width, device=device, requires_grad=True) for _ in range(2))
    initial = torch.zeros(width, device=device)
    upstream = torch.ones(positions, width, device=device)

    def forward() -> Tensor:
        with torch.no_grad():
            return linear_recurrence(keep, update, initial)

    def both(form: Callable[[Tensor, Tensor, Tensor], Tensor]) -> None:
        keep.grad = update.grad = None
        form(keep, update, initial).backward(upstream)

    alone = timed(forward, device)
    together = timed(lambda: both(linear_recurrence), device)
    looped = timed(lambda: both(position_by_position), device)
    # Gates and updates read, cells written; then gradient, gates and cells read, two gradients written.
    numbers = 4 * positions * width
    rates = {"forward": 3 * numbers / alone, "both": 8 * numbers / together}
    return {
        "positions": positions,
        "width": width,
        "forward_ms": 1e3 * alone,
        "both_ms": 1e3 * together,
        "looped_ms": 1e3 * looped,
        **{f"{name}_bytes_per_second": rate for name, rate in rates.items()},
        **{f"{name}_of_copying": rate / copied for name, rate in rates.items()},
    }


def position_by_position(keep: Tensor, update: Tensor, initial: Tensor) -> Tensor:
    """The recurrence as it is written down: an operation for each position."""
    cells = [initial]
    for kept, added in zip(keep, update, strict=True):
        cells.append(torch.addcmul(added, kept, cells[-1]))
    return torch.stack(cells[1:])


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
        stepped = CudaGraphModel(model, CudaGraphCapture(device)) if graphs else model
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
            "cudnn_attention": graphs,
            "sentences_per_second": len(test) / seconds,
            "tokens_per_second": sum(map(len, made)) / seconds,
            "same_translations": sum(one == other for one, other in zip(made, plain, strict=True))
            / len(test),
            "batches": len(batches),
            **memory,
        }


def end_late(model: TranslationModel) -> None:
    """Let random weights never end a translation before its limit, the length of its source."""
    bias = model.head.bias
    if bias is None:
        sys.exit("error: a model without output bias cannot be kept from ending: set model.bias.output")
    with torch.no_grad():
        bias[EOS] = UNLIKELY


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
    stem = stem_of(where, device, options)
    text = as_table(record, where)
    Path(f"{stem}.md").write_text(text)
    Path(f"{stem}.json").write_text(json.dumps(record, indent=1) + "\n")
    return text


def stem_of(where: Mapping[str, object], device: torch.device, options: argparse.Namespace) -> Path:
    label = str(where.get("gpu", device.type)).replace(" ", "-")
    folder: Path = options.results
    return folder / f"gpu_{label}_{where['date']}{'_tiny' if options.tiny else ''}"


def earlier(
    record: Mapping[str, object], device: torch.device, options: argparse.Namespace
) -> dict[str, object]:
    """What was measured before on this machine on this day; ends the script if it was another machine."""
    where = record["machine"]
    assert isinstance(where, dict)
    path = Path(f"{stem_of(where, device, options)}.json")
    if not path.exists():
        return {}
    found: dict[str, object] = json.loads(path.read_text())
    known = found["machine"]
    assert isinstance(known, dict)
    if any(known.get(key) != where.get(key) for key in ("processor", "gpu", "torch")):
        sys.exit(f"error: {path} is of another machine or torch; give another --results")
    return found


# What tells the rows of a part apart.
ROW_NAMES: Mapping[str, Sequence[str]] = {
    "training": ("model", "compiled", "cudnn_attention"),
    "recurrence": ("positions", "width"),
    "decoding": ("model", "beam", "graphs", "cudnn_attention"),
}


def joined(before: Mapping[str, object], now: Mapping[str, object]) -> dict[str, object]:
    """Both records of one machine; rows of the same name are those of the later one."""
    whole = {**before, **now}
    for part, keys in ROW_NAMES.items():
        rows: dict[tuple[object, ...], dict[str, object]] = {}
        for record in (before, now):
            found = record.get(part, [])
            assert isinstance(found, list)
            rows |= {tuple(row[key] for key in keys): row for row in found}
        if rows:
            whole[part] = list(rows.values())
    return whole


if __name__ == "__main__":
    main()
