"""The cost of each connection, aggregation and part beside post-norm, at 6+6 layers of d 512.

    python benchmarks/connections.py [--only hyper-2 ...] [--rounds 3]

Each system takes turns with post-norm, update by update and then translation by translation, so that what
else runs on the machine meets both. What counts is the median of the ratios of the pairs; time is CPU time on
one thread. An update is a forward and a backward pass of random sentences and a step of Adam. A translation
encodes random sentences and makes steps of four hypotheses each, with weights laid out for decoding, in
float32. Parameters are counted, not measured.
Writes a Markdown table and the raw figures under benchmarks/results/.
"""

from __future__ import annotations

import argparse
import copy
import statistics
import time
from collections.abc import Callable, Mapping

import harness
import torch
from decoding_speed import random_model
from profile_steps import update

from deepwire.model.translation_model import TranslationModel
from deepwire.ops.allocator import keep_memory
from deepwire.ops.packed_linear import pack_linears
from deepwire.ops.precision import autocast_dtype, set_fp32_matmul

RECIPE = "papers/mhplstm-2021/transformer-6-6"
BASE = "post-norm"
BEAM = 4


def both(*settings: str) -> tuple[str, ...]:
    """Settings of both stacks."""
    return tuple(f"model.{side}.{setting}" for setting in settings for side in ("encoder", "decoder"))


SYSTEMS: Mapping[str, tuple[str, ...]] = {
    BASE: both("connection=post_norm"),
    "pre-norm": both("connection=pre_norm"),
    "DeepNorm": both("connection=deepnorm"),
    "Admin": both("connection=admin"),
    "B2T": both("connection=b2t"),
    "BranchNorm": both("connection=branch_norm"),
    "ResiDual": both("connection=resi_dual"),
    "Keel": both("connection=keel"),
    "Peri-LN": both("connection=peri_ln"),
    "LayerNorm scaling": both("connection=layer_norm_scaling"),
    "LayerScale": both("connection=layer_scale"),
    "Sub-LN": (*both("connection=pre_norm"), "model.inner_norm=true"),
    "LAuReL, rank 16": both("connection={type: laurel, rank: 16}"),
    "delta": both("connection=delta"),
    "attention residuals, blocks": both("connection=attn_res"),
    "attention residuals, full": both("connection={type: attn_res, block: full}"),
    "hyper, n 2, static": both("connection={type: hyper, lanes: 2, dynamic: false}"),
    "hyper, n 2, dynamic": both("connection={type: hyper, lanes: 2}"),
    "fractional hyper, n 2": both("connection=frac"),
    "mHC-lite, n 2": both("connection={type: mhc_lite, lanes: 2}"),
    "mHC-lite, n 4": both("connection={type: mhc_lite, lanes: 4}"),
    "mHC, n 4": both("connection={type: mhc, lanes: 4}"),
    "DLCL": both("connection=pre_norm", "aggregation=dlcl"),
    "DWA": both("connection=pre_norm", "aggregation=dwa"),
    "MUDD, one way": both("connection=pre_norm", "aggregation=mudd"),
    "MUDD, four ways": both("connection=pre_norm", "aggregation={type: mudd, ways: 4}"),
    "value residual": both("connection=pre_norm", "mixer=value_residual"),
    "LIMe": both("connection=pre_norm", "mixer=lime"),
    "depth-wise LSTM": both("connection=depth_lstm"),
    "today's parts": (
        *both("connection=pre_norm"),
        "model.norm=rms",
        "model.activation=swiglu",
        "model.feed_forward=1364",
        "model.positions=rotary",
        "model.key_value_heads=2",
        "model.qk_norm=true",
    ),
}


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    keep_memory()
    set_fp32_matmul("auto")
    base = random_model(RECIPE, [*SYSTEMS[BASE], *options.setting], options.vocabulary_size)
    packed = copy.deepcopy(base).eval()
    pack_linears(packed, "none")
    results: dict[str, dict[str, object]] = {}
    for name in (BASE, *(options.only or [name for name in SYSTEMS if name != BASE])):
        results[name] = measure(name, base, packed, options)
        print(f"{name}: {results[name]}", flush=True)
        table = write_results(results, options)  # also of a measurement that is interrupted
    print(table)


def arguments() -> argparse.Namespace:
    parser = harness.parser(__doc__, threads=1)
    parser.add_argument("--only", nargs="+", choices=[name for name in SYSTEMS if name != BASE])
    parser.add_argument("--rows", type=int, default=16, help="sentences of an update; of a translation: half")
    parser.add_argument("--length", type=int, default=32, help="subwords of a sentence")
    parser.add_argument("--steps", type=int, default=12, help="of a translation")
    parser.add_argument("--vocabulary-size", type=int, default=10_000)
    parser.add_argument("--setting", nargs="*", default=[], metavar="KEY=VALUE", help="of all models")
    return parser.parse_args()


def measure(
    name: str, base: TranslationModel, packed: TranslationModel, options: argparse.Namespace
) -> dict[str, object]:
    """Ratios of speed to post-norm, one a pair, and what is counted."""
    settings = [*SYSTEMS[name], *options.setting]
    model = base if name == BASE else random_model(RECIPE, settings, options.vocabulary_size)
    found: dict[str, object] = {
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
    }
    if name == BASE:
        return found
    shape, size, kind = (
        (options.rows, options.length),
        options.vocabulary_size,
        number_format(),
    )
    found["training"] = pairs(
        update(base.train(), shape, size, kind), update(model.train(), shape, size, kind), options.rounds
    )
    model.zero_grad()
    pack_linears(model.eval(), "none")
    found["decoding"] = pairs(translation(packed, options), translation(model, options), options.rounds)
    return found


def number_format() -> torch.dtype:
    """The number format of training on this machine."""
    return autocast_dtype(torch.device("cpu"), "auto")


def translation(model: TranslationModel, options: argparse.Namespace) -> Callable[[], object]:
    """Encodes sentences and makes steps."""
    source = torch.randint(4, options.vocabulary_size, (options.rows // 2, options.length))
    words = torch.randint(4, options.vocabulary_size, (options.rows // 2 * BEAM,))

    @torch.inference_mode()
    def translate() -> None:
        state = model.start(source)
        for step in range(options.steps):
            read = words if step else words[::BEAM]
            _, state = model.step(read, state)
            state = state.reorder(torch.arange(len(words))) if step else state.expand(BEAM)

    return translate


def pairs(base: Callable[[], object], other: Callable[[], object], rounds: int) -> list[float]:
    """Seconds of the first over seconds of the second, one a round; the order changes each time."""
    base(), other()
    ratios = []
    for number in range(rounds):
        seconds = {}
        for run in (base, other) if number % 2 == 0 else (other, base):
            begun = time.process_time()
            run()
            seconds[run] = time.process_time() - begun
        ratios.append(seconds[base] / seconds[other])
    return ratios


def write_results(results: Mapping[str, dict[str, object]], options: argparse.Namespace) -> str:
    rows = []
    for name, found in results.items():
        speeds = [ratio(found.get(part)) for part in ("training", "decoding")]
        rows.append([name, f"{number(found['parameters']) / 1e6:.2f}", *speeds])
    kind = str(number_format()).removeprefix("torch.")
    about = (
        f"{' '.join(['6+6 layers of d 512', *options.setting])}, {options.vocabulary_size} subwords; "
        f"training in {kind} with {options.rows} sentences of {options.length} "
        f"subwords, decoding in float32 with {options.rows // 2} sentences, beam {BEAM}, {options.steps} "
        f"steps. Median of {options.rounds} pairs with post-norm (lowest to highest)."
    )
    heads = ["system", "parameters, M", "training speed", "decoding speed"]
    kept = {key: value for key, value in vars(options).items() if key != "results"}
    return harness.write(
        options,
        ["connections"],
        "Connections beside post-norm",
        [about, "", *harness.table(heads, rows)],
        {"options": kept, "systems": results},
    )


def number(value: object) -> float:
    assert isinstance(value, int | float)
    return value


def ratio(values: object) -> str:
    if not isinstance(values, list):
        return "1"
    return f"{statistics.median(values):.2f} ({min(values):.2f} to {max(values):.2f})"


if __name__ == "__main__":
    main()
