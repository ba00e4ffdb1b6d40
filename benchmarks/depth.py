"""Do deep stacks train? Very deep models beside plain post-norm of the same depth.

    python benchmarks/depth.py [--updates 200] [--only dlcl-30-6 "24-24 DeepNorm" ...] [--json FILE]
    python benchmarks/depth.py --equal-depth --threads 1 --json benchmarks/results/depth_24-24_DATE.json

Trains each model for a few hundred updates on Multi30k (examples/multi30k, German to English, BPE 4,000);
prints a table of the training loss on the way and the gradient norm of the lowest and the topmost layer of
each stack. The papers say that DLCL, depth-wise LSTM and GTrans train at these depths, where the post-norm
Transformer does not (Wang et al. 2019, Table 1; Xu et al. 2024, Table 6; Yang et al. 2022, Fig. 11).
The systems called 24-24, which `--equal-depth` takes, are all connections and aggregations of connections.py
with 24+24 layers. Each of them begins as its kind learns best: with norms behind the sums from DeepNet's
initialisation at half the rate, otherwise from DS-Init; `--start default` leaves that to deepwire.
What FILE holds already is not trained again, so an interrupted measurement continues with the same command.
Beside it stands the table as Markdown.
"""

from __future__ import annotations

import argparse
import json
import statistics
import sys
import time
from collections.abc import Mapping
from itertools import islice
from pathlib import Path
from typing import Any

import machine
import torch
from connections import SYSTEMS as CONNECTIONS
from connections import both

import deepwire
from deepwire.data.subwords.base import PAD
from deepwire.model.translation_model import TranslationModel
from deepwire.runfile import load_run_file

GROUPS = ("model.encoder.fusion={type: groups, size: 3}", "model.decoder.fusion={type: groups, size: 2}")
PUBLISHED = "connection={type: depth_lstm, final_norm: decoder, forget_bias: 0}"
OPEN = "connection={type: depth_lstm, forget_bias: 2}"
EQUAL = "24-24"
# Encoder layers, decoder layers, and what both stacks are made of.
SYSTEMS: Mapping[str, tuple[int, int, tuple[str, ...]]] = {
    "post-norm-30-6": (30, 6, both("connection=post_norm")),
    "dlcl-30-6": (30, 6, both("connection=pre_norm", "aggregation=dlcl")),
    "dlcl-post-norm-30-6": (30, 6, both("connection=post_norm", "aggregation=dlcl")),
    "post-norm-24-24": (24, 24, both("connection=post_norm")),
    "depth-lstm-24-24": (24, 24, both(PUBLISHED)),
    "depth-lstm-24-24-open": (24, 24, both(OPEN)),
    "post-norm-60-12": (60, 12, both("connection=post_norm")),
    "gtrans-60-12": (60, 12, (*both("connection=post_norm"), *GROUPS)),
    f"{EQUAL} GTrans": (24, 24, (*both("connection=post_norm"), *GROUPS)),
    # Not the row whose sizes are those of a wide model.
    **{f"{EQUAL} {name}": (24, 24, parts) for name, parts in CONNECTIONS.items() if name != "today's parts"},
    # Branches that grow for 4,000 updates, as by default, would hardly have begun to.
    f"{EQUAL} BranchNorm": (24, 24, both("connection={type: branch_norm, updates: 100}")),
}


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    names = options.only or [name for name in SYSTEMS if name.startswith(EQUAL) or not options.equal_depth]
    results = earlier(options)
    for name in names:
        if name in results:
            continue
        results[name] = train(name, options)
        print(f"{name}: {results[name]['losses'][-1]:.2f}, {results[name]['seconds']:.0f} s", flush=True)
        if options.json is not None:  # also of a measurement that is interrupted
            write(results, options)
    print(table(list(results.values())))


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.002, help="peak learning rate")
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument(
        "--start", choices=["fair", "default"], default="fair", help="how 24-24 systems begin"
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--equal-depth", action="store_true", help="all systems with 24+24 layers, no others")
    parser.add_argument("--only", nargs="*", choices=SYSTEMS)
    parser.add_argument("--json", type=Path, help="also write the figures to this file, and continue it")
    return parser.parse_args()


def conditions(options: argparse.Namespace) -> dict[str, Any]:
    """Everything that must be equal for two measurements to stand in one table."""
    free = ("json", "only", "equal_depth")
    return {name: value for name, value in vars(options).items() if name not in free}


def earlier(options: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """The results that the file holds already, by name."""
    if options.json is None or not options.json.exists():
        return {}
    record = json.loads(options.json.read_text())
    if record["options"] != conditions(options):
        sys.exit(f"{options.json}: measured with other options: {record['options']}")
    return {result["name"]: result for result in record["results"]}


def write(results: Mapping[str, dict[str, Any]], options: argparse.Namespace) -> None:
    """The figures and, beside them, the table."""
    about = machine.description()
    ordered = list(results.values())
    record = {"machine": about, "options": conditions(options), "results": ordered}
    options.json.write_text(json.dumps(record, indent=1) + "\n")
    text = (
        f"# Depth, {about['date']}\n\n"
        f"d {options.width}, updates of {options.batch_tokens} tokens, inverse square root after "
        f"{options.warmup} updates, seed {options.seed}, float32.\n\n"
    )
    tail = f"\n\nMachine: {machine.in_words(about)}\n"
    options.json.with_suffix(".md").write_text(text + table(ordered) + tail)


def start(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Initialisation and peak learning rate of a system."""
    if options.start == "default" or not name.startswith(EQUAL):
        return {"initialization": None, "rate": options.rate}
    connection = load_run_file("demo", list(SYSTEMS[name][2])).config.model.encoder.connection
    if connection.norm_style == "output":
        return {"initialization": "deepnorm", "rate": options.rate / 2}
    return {"initialization": "depth_scaled", "rate": options.rate}


def train(name: str, options: argparse.Namespace) -> dict[str, Any]:
    """Losses and gradient norms of one model."""
    encoder, decoder, sockets = SYSTEMS[name]
    begins = start(name, options)
    initialization = begins["initialization"]
    settings = [
        *sockets,
        *([] if initialization is None else [f"model.initialization={initialization}"]),
        f"model.encoder.layers={encoder}",
        f"model.decoder.layers={decoder}",
        f"model.d_model={options.width}",
        f"model.feed_forward={2 * options.width}",
        "model.dropout=0",
        "training.optimizer=adamw",
        "training.precision=fp32",
        f"training.batch_tokens={options.batch_tokens}",
        f"training.max_updates={options.updates}",
        f"training.schedule={{type: inverse_sqrt, peak: {begins['rate']}, warmup: {options.warmup}}}",
        f"seed={options.seed}",
    ]
    parts = deepwire.training_parts(load_run_file("demo", settings))
    losses: list[float] = []
    gradients: dict[str, dict[str, float]] = {}
    counts = torch.zeros(parts.prepared.vocabularies.target.size)
    begun = time.perf_counter()
    for number, batch in enumerate(islice(parts.batches(), options.updates), 1):
        parts.model.begin_update(number)
        parts.optimizer.zero_grad()
        loss = parts.loss(batch)
        loss.backward()
        if number in (1, options.updates // 2, options.updates):
            gradients[str(number)] = layer_norms(parts.model)
        parts.optimizer.step(parts.schedule(number), loss.detach())
        counts += torch.bincount(batch.target_output[batch.target_output != PAD], minlength=len(counts))
        losses.append(loss.item())
    return {
        "name": name,
        "start": begins,
        "parameters": sum(parameter.numel() for parameter in parts.model.parameters()),
        "unigram": unigram_loss(counts, parts.settings.training.label_smoothing),
        "losses": losses,
        "gradients": gradients,
        "seconds": time.perf_counter() - begun,
    }


def unigram_loss(counts: torch.Tensor, smoothing: float) -> float:
    """The least label-smoothed loss of a model that knows nothing but how often each subword occurs."""
    frequencies = counts / counts.sum() * (1 - smoothing) + smoothing / len(counts)
    return -(frequencies * frequencies.log()).sum().item()


def layer_norms(model: TranslationModel) -> dict[str, float]:
    """Gradient norm of each layer's sub-layers: ``encoder 1``, ..."""
    found = {}
    for side, stack in model.stacks().items():
        for layer in range(len(stack.mixers)):
            parts = [part[layer] for part in (stack.mixers, stack.crosses, stack.feed_forwards) if len(part)]
            squares = [
                parameter.grad.square().sum()
                for part in parts
                for parameter in part.parameters()
                if parameter.grad is not None
            ]
            found[f"{side} {layer + 1}"] = torch.stack(squares).sum().sqrt().item()
    return found


def smooth(losses: list[float], updates: int) -> float:
    """The mean of ten updates up to this one."""
    return statistics.fmean(losses[max(0, updates - 10) : updates])


def table(results: list[dict[str, Any]]) -> str:
    """Losses at each quarter, beside the gradients that reach the ends of both stacks in the last update."""
    count = len(results[0]["losses"])
    marks = [count * quarter // 4 for quarter in (1, 2, 3, 4)]
    heads = ["system", "begins with", "peak", "parameters", *(f"update {mark}" for mark in marks)]
    heads += ["below unigrams"]
    heads += [f"{end} {side}" for side in ("encoder", "decoder") for end in ("lowest", "top")]
    rows = [heads, ["---"] * len(heads)]
    for result in sorted(results, key=lambda result: smooth(result["losses"], count)):
        losses, gradients = result["losses"], result["gradients"][str(count)]
        values = [smooth(losses, mark) for mark in marks]
        ends = [
            f"{norms[end]:.0e}"
            for side in ("encoder", "decoder")
            for norms in [[norm for name, norm in gradients.items() if name.startswith(side)]]
            for end in (0, -1)
        ]
        begins = result["start"]
        names = [result["name"].removeprefix(f"{EQUAL} "), begins["initialization"] or "the default"]
        size = f"{result['parameters']:,}"
        below = f"{result['unigram'] - values[-1]:.2f}"
        rows.append([*names, f"{begins['rate']:g}", size, *(f"{v:.2f}" for v in values), below, *ends])
    return "\n".join("| " + " | ".join(row) + " |" for row in rows)


if __name__ == "__main__":
    main()
