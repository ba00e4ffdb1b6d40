"""Graphs, breaks and recompiles of every choice of every socket where layers are compiled.

    python benchmarks/compile_counts.py [--only hyper ...] [--backend inductor]

Each choice stands in both stacks where it can, as it comes and with its options of note (those of
tests/model/choices.py), in two or three layers of d 32. The model is trained as it is and compiled, on
batches as training makes them: of about as many tokens, in lengths that are multiples of 8. A line a choice:

- graphs: made while warming up, one a layer that is compiled; breaks: where a graph was left.
- recompiled: graphs that later batches needed.
- off by: the largest difference of a gradient or the loss from that of the model as it is, beside the largest
  number of that gradient, or 0.001 where rounding may be all of it. In float64, but float32 with inductor.
- as it is: why layers were not compiled.

With dropout, compiled layers draw other numbers.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import harness
import torch
from torch import Tensor
from torch._dynamo.utils import counters

from deepwire.data.batches.collator import whole_rows
from deepwire.data.vocabulary import PAD
from deepwire.model.stack_spec import SIDES
from deepwire.model.translation_model import TranslationModel
from deepwire.testing import LANGUAGES, SIZE, small_model
from deepwire.training import compilation
from deepwire.training.device import PrecisionPolicy

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "model"))
import choices

TOKENS = 384
# Lengths of source and target.
SHAPES = ((8, 8), (16, 16), (24, 16), (16, 24), (40, 48), (72, 64))
HEADS = ("choice", "graphs", "breaks", "recompiled", "off by", "as it is")


@dataclass(frozen=True)
class Counts:
    """What was counted of a model; the numbers are those of the table."""

    graphs: int
    breaks: int
    recompiled: int
    error: float
    reasons: list[str]


def main() -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--backend", default="eager", help="of torch.compile")
    parser.add_argument("--only", nargs="*", default=[""], help="parts of the choices' names")
    options = parser.parse_args()
    compilation.BACKEND = options.backend
    torch.set_num_threads(1)
    print("\n".join(harness.table(HEADS, [])))
    for name, settings in systems():
        if any(part in name for part in options.only):
            counts = count(settings, torch.float32 if options.backend == "inductor" else torch.float64)
            numbers = counts.graphs, counts.breaks, counts.recompiled, f"{counts.error:.0e}"
            row = name, *numbers, "; ".join(counts.reasons)
            print(harness.table(HEADS, [row])[-1], flush=True)


def systems() -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Every choice by its name, and the settings of a model that has it."""
    for socket in choices.SOCKETS:
        for kind, settings in choices.of_both_sides(socket):
            for options in ({}, *choices.VARIANTS.get(kind, ())):
                name = f"{socket} {kind} {options or ''}".strip()
                yield name, _with_options(settings, socket, kind, options)
    layers: dict[str, Any] = {side: {"layers": 2} for side in SIDES}
    for parts in choices.PARTS:
        yield str(parts), {**layers, **parts}
    for languages in choices.LANGUAGES[1:]:
        yield f"languages {languages}", {**layers, "languages": languages}
    yield "dropout", {**layers, "dropout": 0.1}
    yield "decoder only", {"architecture": "decoder_only"}


def _with_options(
    settings: Mapping[str, Any], socket: str, kind: str, options: Mapping[str, Any]
) -> Mapping[str, Any]:
    changed = dict(settings)
    for side in SIDES:
        if settings[side][socket]["type"] == kind:
            layers = max(settings[side]["layers"], len(options.get("mixers", ())))
            changed[side] = {**settings[side], "layers": layers, socket: {"type": kind, **options}}
    return changed


def count(settings: Mapping[str, Any], dtype: torch.dtype = torch.float64) -> Counts:
    """Train a model as it is, and compiled."""
    torch._dynamo.reset()
    counters.clear()
    wide = {"d_model": 32, "feed_forward": 48, "max_length": 2 * max(map(max, SHAPES))}
    model = small_model({**wide, **settings}).to(dtype).train()
    expected, reasons = [gradients(model, sides) for sides in batches()], list[str]()
    compilation.compile_layers(model, reasons.append)
    compilation.warm_up(model, model.loss, PrecisionPolicy("fp32", "highest", "cpu"), TOKENS)
    graphs = counters["stats"]["unique_graphs"]
    found = [gradients(model, sides) for sides in batches()]
    errors = (
        float((one - other).abs().max() / other.abs().max().clamp(min=1e-3))
        for pair in zip(found, expected, strict=True)
        for one, other in zip(*pair, strict=True)
    )
    return Counts(
        graphs,
        sum(counters["graph_break"].values()),
        counters["stats"]["unique_graphs"] - graphs,
        max(errors),
        reasons,
    )


def batches() -> Iterator[tuple[Tensor, Tensor, Tensor]]:
    """Source, input and output of the target; most rows end in padding."""
    generator = torch.Generator().manual_seed(1)
    for lengths in SHAPES:
        rows = whole_rows(TOKENS // max(lengths))
        source, target = (torch.randint(4, SIZE, (rows, n), generator=generator) for n in lengths)
        for row in range(rows):
            source[row, lengths[0] - row % 7 :] = PAD
            target[row, lengths[1] - row % 5 :] = PAD
        yield source, target, target.roll(-1, 1)


def gradients(model: TranslationModel, sides: tuple[Tensor, Tensor, Tensor]) -> list[Tensor]:
    """The loss of a batch, and its gradient for every parameter."""
    torch.manual_seed(1)
    languages = torch.arange(len(sides[0])) % LANGUAGES if model.languages else None
    loss = model.loss(*sides, 0.1, languages=languages).smoothed
    return [loss.detach(), *torch.autograd.grad(loss, list(model.parameters()), materialize_grads=True)]


if __name__ == "__main__":
    main()
