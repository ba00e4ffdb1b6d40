"""What training large models on many GPUs would cost: time, memory, network, from counts and constants.

    python benchmarks/scaling.py [--gpu h100|a100] [--utilisation 0.35] [--pairs 1000M] [--length 27]
        [--gpus 8 64] [--update-tokens 400k] [--updates 100k] [--json FILE]

Operations and bytes are counted from the built models (deepwire.model.cost); rates of devices and networks
are those of the makers' data sheets; how much of the device's rate training reaches is an assumption, to be
replaced by what benchmarks/gpu.py measures on the device. Nothing is measured here: all times are
extrapolated. Prints the tables of docs/reports/scaling.md.
"""

from __future__ import annotations

import argparse
import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path

from deepwire.model.config import ModelConfig
from deepwire.model.cost import TrainingCost, meta_model, training_cost
from deepwire.runfile import load_run_file

VOCABULARY = 32_000
GIB = 2**30
BYTES = 4
# Of each parameter: itself, its gradient and two moments, all in float32.
STATE = 4 * BYTES
# Autocast keeps what products need in bfloat16, and norms, softmax and residuals in float32.
BFLOAT16_SHARE = 0.6
# Of the device's memory, the rest being the libraries' and what lies between blocks.
USABLE = 0.9
GPUS_OF_A_MACHINE = 8
# A pass with fewer tokens leaves a large device idle.
LEAST_TOKENS = 4096
# Of one exchange until its first byte arrives, and what goes in one where parameters are not sharded.
LATENCY = 50e-6
BUCKET = 32 * 2**20
# Saving: parameters and two moments, once, by one process, to a disk of this rate.
DISK = 1e9


@dataclass(frozen=True)
class Gpu:
    """What the makers' data sheets say of a device and its machine.

    Attributes:
        products: Dense bfloat16 operations a second.
        memory: Bytes.
        copies: Bytes a second to and from its memory.
        link: Bytes a second of each device to the others of its machine, one way.
        network: Bytes a second of each device's own adapter to other machines.
    """

    name: str
    products: float
    memory: float
    copies: float
    link: float
    network: float


GPUS: Mapping[str, Gpu] = {
    "h100": Gpu("H100 SXM, NVLink 4, 400 Gb/s a device", 989e12, 80e9, 3.35e12, 450e9, 50e9),
    "a100": Gpu("A100 SXM, NVLink 3, 200 Gb/s a device", 312e12, 80e9, 2.0e12, 300e9, 25e9),
}


@dataclass(frozen=True)
class Subject:
    """A model, by its recipe and what is changed in it."""

    name: str
    recipe: str
    settings: tuple[str, ...]


SUBJECTS = (
    Subject("6+6 big", "papers/neutron-big", ()),
    Subject(
        "60+12 base",
        "papers/neutron-base",
        ("model.encoder.layers=60", "model.decoder.layers=12"),
    ),
    Subject(
        "60+12 big",
        "papers/neutron-big",
        ("model.encoder.layers=60", "model.decoder.layers=12"),
    ),
)


@dataclass(frozen=True)
class Counted:
    """What was counted of a model, for each target token where nothing else is said.

    Attributes:
        parameters: Of the model.
        layers, output: Operations of forward and backward pass.
        kept: Bytes for the backward pass in float32.
        entering: The part of `kept` that enters the layers, which activation checkpointing keeps.
        largest: The part of `kept` that one layer has, which activation checkpointing makes again.
        largest_block: Parameters that come together for one pass where they are sharded.
        blocks: How many such there are.
    """

    parameters: int
    layers: float
    output: float
    kept: float
    entering: float
    largest: float
    largest_block: int
    blocks: int


@dataclass(frozen=True)
class Plan:
    """One way of training a model on so many devices.

    Attributes:
        static: Bytes of parameters, gradients and moments on each device.
        activations: Bytes for one pass of `pass_tokens` target tokens.
        pass_tokens: Target tokens of a forward pass on a device.
        passes: Passes of a device in an update.
        compute, network, step: Seconds of an update for products, for exchange, and for Adam.
        seconds: Of an update, with the exchange hidden behind products as far as this way hides it.
        sent: Bytes that each device sends in an update.
    """

    gpus: int
    sharding: str
    checkpointing: bool
    static: float
    activations: float
    pass_tokens: int
    passes: int
    compute: float
    network: float
    step: float
    seconds: float
    sent: float

    @property
    def memory(self) -> float:
        return self.static + self.activations


def main() -> None:
    options = arguments()
    gpu = GPUS[options.gpu]
    record: dict[str, object] = {"gpu": asdict(gpu), "utilisation": options.utilisation}
    print(f"{gpu.name}; {options.utilisation:.0%} of {gpu.products / 1e12:.0f} TFLOP/s; ", end="")
    print(f"{options.length} tokens a sentence on each side; {options.update_tokens:,} tokens an update\n")
    counts = {subject.name: counted(subject, options.length) for subject in SUBJECTS}
    print(table_of_counts(counts))
    rows = {
        name: [
            found
            for gpus in options.gpus
            for found in plans(one, gpu, gpus, options.utilisation, options.update_tokens)
        ]
        for name, one in counts.items()
    }
    print(f"\n{table_of_plans(rows, gpu)}")
    print(f"\n{table_of_runs(rows, options)}")
    record["counts"] = {name: asdict(one) for name, one in counts.items()}
    record["plans"] = {name: [asdict(one) for one in found] for name, found in rows.items()}
    if options.json is not None:
        options.json.write_text(json.dumps(record, indent=1) + "\n", encoding="utf-8")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--gpu", choices=sorted(GPUS), default="h100")
    parser.add_argument("--utilisation", type=share, default=0.35, help="of the device's products")
    parser.add_argument("--pairs", type=number, default=10**9)
    parser.add_argument("--length", type=int, default=27, help="tokens of a sentence on each side")
    parser.add_argument("--gpus", type=int, nargs="+", default=[8, 64])
    parser.add_argument("--update-tokens", type=number, default=400_000)
    parser.add_argument("--updates", type=number, default=100_000)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser.parse_args()


def share(text: str) -> float:
    value = float(text)
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(f"{text} is no share of 1")
    return value


def number(text: str) -> int:
    match = re.fullmatch(r"(\d+)([kMG]?)", text)
    if match is None:
        raise argparse.ArgumentTypeError(f"{text!r} is no number, such as 400k or 1000M")
    return int(match[1]) * {"": 1, "k": 10**3, "M": 10**6, "G": 10**9}[match[2]]


def counted(subject: Subject, length: int) -> Counted:
    """Count a model. Deep stacks are counted by their layers: each adds what the last one added."""
    config = load_run_file(subject.recipe, list(subject.settings)).config.model
    small = {(2, 2): cost(config, 2, 2, length), (3, 2): cost(config, 3, 2, length)}
    small[2, 3] = cost(config, 2, 3, length)
    base = small[2, 2]
    more = {"encoder": config.encoder.layers - 2, "decoder": config.decoder.layers - 2}
    added = {"encoder": minus(small[3, 2], base), "decoder": minus(small[2, 3], base)}

    def whole(name: str) -> float:
        first: float = getattr(base, name)
        return first + sum(more[side] * getattr(added[side], name) for side in more)

    layers = config.encoder.layers + config.decoder.layers
    # A source position for each target position: what enters a layer is one vector for each.
    entering = layers * config.d_model * BYTES
    largest = max(one.kept for one in added.values())
    outside = base.kept - 2 * sum(one.kept for one in added.values())
    parameters = round(whole("weights")) // BYTES
    return Counted(
        parameters=parameters,
        layers=whole("layers"),
        output=whole("output"),
        kept=whole("kept"),
        entering=entering + max(0.0, outside),
        largest=largest,
        largest_block=VOCABULARY * config.d_model
        + max(4 * config.d_model**2, 2 * config.d_model * config.feed_forward),
        blocks=2 * config.encoder.layers + 3 * config.decoder.layers + 1,
    )


def cost(config: ModelConfig, encoder: int, decoder: int, length: int) -> TrainingCost:
    """The cost of the model with so many layers."""
    changed = config.model_copy(
        update={
            "encoder": config.encoder.model_copy(update={"layers": encoder}),
            "decoder": config.decoder.model_copy(update={"layers": decoder}),
        }
    )
    model = meta_model(changed, VOCABULARY, VOCABULARY)
    return training_cost(model, source_length=length, target_length=length, sentences=4)


def minus(one: TrainingCost, other: TrainingCost) -> TrainingCost:
    """What a layer adds."""
    return replace(
        one,
        layers=one.layers - other.layers,
        output=one.output - other.output,
        moved=one.moved - other.moved,
        kept=one.kept - other.kept,
        weights=one.weights - other.weights,
    )


def plans(one: Counted, gpu: Gpu, gpus: int, utilisation: float, update_tokens: int) -> list[Plan]:
    """Every way that fits: whole or sharded parameters, all activations kept or the layers computed again."""
    found = [
        plan(one, gpu, gpus, utilisation, update_tokens, sharding=sharding, checkpointing=checkpointing)
        for sharding in ("none", "full")
        for checkpointing in (False, True)
    ]
    return [each for each in found if each is not None]


def plan(
    one: Counted,
    gpu: Gpu,
    gpus: int,
    utilisation: float,
    update_tokens: int,
    *,
    sharding: str,
    checkpointing: bool,
) -> Plan | None:
    """Time and memory of an update; None if it does not fit."""
    sharded = sharding == "full"
    static: float = one.parameters * STATE
    if sharded:
        static = static / gpus + 2 * BYTES * one.largest_block
    token = BFLOAT16_SHARE * (one.entering + one.largest if checkpointing else one.kept)
    room = int((USABLE * gpu.memory - static) // token)
    own = math.ceil(update_tokens / gpus)
    if room < min(own, LEAST_TOKENS):
        return None
    passes = math.ceil(own / room)
    pass_tokens = math.ceil(own / passes)
    operations = one.layers * (4 / 3 if checkpointing else 1) + one.output
    compute = own * operations / (utilisation * gpu.products)
    # Between machines as many rings as adapters run side by side, each with its part of the numbers.
    rings = min(gpu.link, GPUS_OF_A_MACHINE * gpu.network)
    slowest = gpu.link if gpus <= GPUS_OF_A_MACHINE else rings
    # A ring: everything but the own part leaves each device once to be added up, and once to be handed out.
    part = (gpus - 1) / gpus * BYTES * one.parameters
    sent = (3 * passes if sharded else 2) * part
    exchanges = 3 * passes * one.blocks if sharded else math.ceil(BYTES * one.parameters / BUCKET)
    network = sent / slowest + exchanges * LATENCY
    # Adam reads four numbers of each parameter and writes three.
    step = 7 * BYTES * one.parameters / (gpus if sharded else 1) / gpu.copies
    # Sharded parameters come while the layer before is computed; unsharded gradients go after the last pass.
    busy = max(compute, network) if sharded else compute + network
    return Plan(
        gpus, sharding, checkpointing, static, token * pass_tokens, pass_tokens, passes,
        compute, network, step, busy + step, sent,
    )  # fmt: skip


def table_of_counts(counts: Mapping[str, Counted]) -> str:
    lines = [
        "| model | parameters | GFLOP a token | of it output | MB kept a token, float32 "
        "| with activation checkpointing | GB of parameters, gradients, moments | checkpoint GB, seconds |",
        "|---|---|---|---|---|---|---|---|",
    ]
    for name, one in counts.items():
        saved = 3 * BYTES * one.parameters
        lines.append(
            f"| {name} | {one.parameters / 1e6:.0f} M | {(one.layers + one.output) / 1e9:.2f} "
            f"| {one.output / 1e9:.2f} | {one.kept / 1e6:.2f} | {(one.entering + one.largest) / 1e6:.2f} "
            f"| {one.parameters * STATE / 1e9:.1f} | {saved / 1e9:.1f}, {saved / DISK:.0f} |"
        )
    return "\n".join(lines)


def table_of_plans(rows: Mapping[str, Sequence[Plan]], gpu: Gpu) -> str:
    lines = [
        "| model | GPUs | sharding | activation checkpointing | GB a GPU | tokens a pass, passes "
        "| s compute | s exchange | s an update | not compute, share | tokens/s |",
        "|---|---|---|---|---|---|---|---|---|---|---|",
    ]
    for name, found in rows.items():
        for one in found:
            tokens = one.pass_tokens * one.passes * one.gpus
            lines.append(
                f"| {name} | {one.gpus} | {one.sharding} | {'yes' if one.checkpointing else 'no'} "
                f"| {one.memory / 1e9:.0f} of {gpu.memory / 1e9:.0f} | {one.pass_tokens:,} x {one.passes} "
                f"| {one.compute:.3f} | {one.network:.3f} | {one.seconds:.3f} "
                f"| {1 - one.compute / one.seconds:.0%} | {tokens / one.seconds / 1e3:,.0f}k |"
            )
    return "\n".join(lines)


def table_of_runs(rows: Mapping[str, Sequence[Plan]], options: argparse.Namespace) -> str:
    tokens = options.pairs * (options.length)
    lines = [
        f"| model | GPUs | the fastest way | {options.updates:,} updates, days | "
        f"GPU hours | an epoch of {options.pairs / 1e6:,.0f} M pairs, days | GPU hours |",
        "|---|---|---|---|---|---|---|",
    ]
    for name, found in rows.items():
        for gpus in options.gpus:
            ways = [one for one in found if one.gpus == gpus]
            if not ways:
                lines.append(f"| {name} | {gpus} | does not fit | - | - | - | - |")
                continue
            best = min(ways, key=lambda one: one.seconds)
            way = f"sharding {best.sharding}" + (", activation checkpointing" if best.checkpointing else "")
            cells = []
            for updates in (options.updates, tokens / options.update_tokens):
                days = updates * best.seconds / 86400
                cells.append(f"{days:.2f} | {days * 24 * gpus:,.0f}")
            lines.append(f"| {name} | {gpus} | {way} | {' | '.join(cells)} |")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
