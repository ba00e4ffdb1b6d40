"""Do deep stacks train? Very deep models of the papers beside plain post-norm of the same depth.

    python benchmarks/depth.py [--updates 200] [--only dlcl-30-6 ...] [--json FILE]

Trains each model for a few hundred updates on Multi30k (examples/multi30k, German to English, BPE 4,000);
prints the training loss on the way and the gradient norm of the lowest, a middle and the topmost layer of
each stack. The papers say that DLCL, depth-wise LSTM and GTrans train at these depths, where the post-norm
Transformer does not (Wang et al. 2019, Table 1; Xu et al. 2024, Table 6; Yang et al. 2022, Fig. 11).
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Iterator, Mapping
from pathlib import Path

import machine
import torch

from deepwire.data.batches.batching import BatchSettings, StreamPosition, UpdateStream
from deepwire.data.prepare.prepared import Prepared, prepare
from deepwire.model.build import build_model
from deepwire.model.translation_model import TranslationModel
from deepwire.runfile import load_run_file
from deepwire.training.optimizer import Optimizer
from deepwire.training.schedule import build_schedule

# Encoder layers, decoder layers, and what both stacks are made of.
SYSTEMS: Mapping[str, tuple[int, int, tuple[str, ...]]] = {
    "post-norm-30-6": (30, 6, ("connection=post_norm",)),
    "dlcl-30-6": (30, 6, ("connection=pre_norm", "aggregation=dlcl")),
    "dlcl-post-norm-30-6": (30, 6, ("connection=post_norm", "aggregation=dlcl")),
    "post-norm-24-24": (24, 24, ("connection=post_norm",)),
    "depth-lstm-24-24": (24, 24, ("connection=depth_lstm",)),
    "depth-lstm-24-24-open": (24, 24, ("connection={type: depth_lstm, forget_bias: 2}",)),
    "post-norm-60-12": (60, 12, ("connection=post_norm",)),
    "gtrans-60-12": (60, 12, ("connection=post_norm", "fusion={type: groups, size: SIZE}")),
}
GROUP_SIZE = {"encoder": 3, "decoder": 2}


def main() -> None:
    options = arguments()
    torch.set_num_threads(options.threads)
    results = []
    for name in options.only or SYSTEMS:
        results.append(train(name, options))
        print(as_text(results[-1]), flush=True)
    if options.json is not None:
        record = {
            "machine": machine.description(),
            "options": vars(options) | {"json": None},
            "results": results,
        }
        options.json.write_text(json.dumps(record, indent=1, default=str) + "\n")


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--updates", type=int, default=200)
    parser.add_argument("--batch-tokens", type=int, default=1024)
    parser.add_argument("--width", type=int, default=64)
    parser.add_argument("--rate", type=float, default=0.002, help="peak learning rate")
    parser.add_argument("--warmup", type=int, default=100)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--threads", type=int, default=torch.get_num_threads())
    parser.add_argument("--only", nargs="*", choices=SYSTEMS)
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    return parser.parse_args()


def train(name: str, options: argparse.Namespace) -> dict[str, object]:
    """Losses and gradient norms of one model."""
    run = load_run_file("demo", overrides(name, options)).config
    prepared = prepare(run.data, seed=options.seed)
    size = prepared.vocabularies.target.size
    torch.manual_seed(options.seed)
    model = build_model(run.model, size, size).train()
    optimizer = Optimizer(model.named_parameters(), run.training.optimizer, None)
    schedule = build_schedule(run.training.schedule, d_model=options.width, max_updates=options.updates)
    losses: list[float] = []
    gradients: dict[int, dict[str, float]] = {}
    begun = time.perf_counter()
    for number, batches, tokens in updates(prepared, options):
        optimizer.zero_grad()
        total = torch.zeros(())
        for batch in batches:
            loss = model.loss(*batch, run.training.label_smoothing).smoothed / tokens
            loss.backward()
            total += loss.detach()
        if number in (1, options.updates // 2, options.updates):
            gradients[number] = layer_norms(model)
        optimizer.step(schedule(number), total)
        losses.append(total.item())
    return {
        "name": name,
        "parameters": sum(parameter.numel() for parameter in model.parameters()),
        "losses": losses,
        "gradients": gradients,
        "seconds": time.perf_counter() - begun,
    }


def overrides(name: str, options: argparse.Namespace) -> list[str]:
    encoder, decoder, parts = SYSTEMS[name]
    settings = [
        f"model.d_model={options.width}",
        f"model.feed_forward={2 * options.width}",
        "model.dropout=0",
        f"training.max_updates={options.updates}",
        f"training.schedule={{type: inverse_sqrt, peak: {options.rate}, warmup: {options.warmup}}}",
    ]
    for side, layers in (("encoder", encoder), ("decoder", decoder)):
        settings.append(f"model.{side}.layers={layers}")
        settings += [f"model.{side}.{part}".replace("SIZE", str(GROUP_SIZE[side])) for part in parts]
    return settings


def updates(
    prepared: Prepared, options: argparse.Namespace
) -> Iterator[tuple[int, list[tuple[torch.Tensor, torch.Tensor, torch.Tensor]], int]]:
    """Number, batches and target tokens of each update."""
    settings = BatchSettings(batch_tokens=options.batch_tokens, micro_batch_tokens=options.batch_tokens)
    stream = UpdateStream(prepared.train, settings, seed=options.seed)
    for update, _ in stream.updates(StreamPosition()):
        yield (
            update.number,
            [
                (
                    torch.from_numpy(batch.source),
                    torch.from_numpy(batch.target_input),
                    torch.from_numpy(batch.target_output),
                )
                for batch in update.batches
            ],
            update.target_tokens,
        )
        if update.number == options.updates:
            return


def layer_norms(model: TranslationModel) -> dict[str, float]:
    """Gradient norm of each layer's sub-layers: ``encoder 1``, ..."""
    found = {}
    for side, stack in (("encoder", model.encoder), ("decoder", model.decoder)):
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


def as_text(result: Mapping[str, object]) -> str:
    losses, gradients = result["losses"], result["gradients"]
    assert isinstance(losses, list)
    assert isinstance(gradients, dict)
    marks = [1, *(len(losses) * quarter // 4 for quarter in (1, 2, 3, 4))]
    smooth = [statistics.fmean(losses[max(0, mark - 10) : mark]) for mark in marks]
    lines = [
        f"\n{result['name']}: {result['parameters']:,} parameters, {result['seconds']:.0f} s",
        "  loss (mean of the last 10)  "
        + "  ".join(f"u{mark} {loss:.2f}" for mark, loss in zip(marks, smooth, strict=True)),
    ]
    for number, norms in gradients.items():
        lines.append(f"  gradient norms at update {number}: " + chosen(norms))
    return "\n".join(lines)


def chosen(norms: Mapping[str, float]) -> str:
    """Lowest, middle and topmost layer of each stack."""
    shown = []
    for side in ("encoder", "decoder"):
        names = [name for name in norms if name.startswith(side)]
        shown += [f"{name} {norms[name]:.1e}" for name in (names[0], names[len(names) // 2], names[-1])]
    return ", ".join(shown)


if __name__ == "__main__":
    main()
