"""How little each layer changes, and what a trained model loses without it: which layers it could spare.

Similarity of the streams at different depths is the cosine of the angle between them, word by word. A layer
whose input and output are nearly the same does little (Men et al. 2024, ShortGPT: block influence). What it
is worth is seen when it is left out (Fan et al. 2020, LayerDrop). Nothing is trained again.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor
from torch.nn import functional

from deepwire.data.languages import Direction
from deepwire.errors import LogFn
from deepwire.lab.internals.signal_sizes import Signal, signal_values
from deepwire.lab.report.finding import Cell, Figure, Finding, HeatMap, LineChart, Series, Table, provenance
from deepwire.lab.subject.document_text import ReadText, text_for
from deepwire.lab.subject.model_and_text import NotApplicableError, open_model, present, repeating
from deepwire.model.introspection import layer_names
from deepwire.model.stack_spec import SIDES, Side
from deepwire.model.translation_model import TranslationModel
from deepwire.training.device import DeviceBatch


@dataclass(frozen=True)
class Similarities:
    """Mean cosines of the streams of one stack.

    Attributes:
        depths: `[L + 1, L + 1]`, between the embedding and the outputs of all layers.
        layers: `[L]`, between what enters a layer and what leaves it.
    """

    depths: Tensor
    layers: Tensor


@dataclass(frozen=True)
class LayersLeftOut:
    """Negative log-likelihood per target token of a model without some layers of one stack, nats.

    Attributes:
        alone: Without layer 1, 2, ... alone.
        order: The layers, from 1, in the order of what each costs, the cheapest first.
        together: Without the first 1, 2, ... of that order, one less than there are.
    """

    alone: tuple[float, ...]
    order: tuple[int, ...]
    together: tuple[float, ...]


def analyse_similarity(
    model: str,
    source: Path | None = None,
    reference: Path | None = None,
    sentences: int | None = 500,
    device: str = "cpu",
    direction: Direction | None = None,
    *,
    sides: Sequence[Side] = SIDES,
    tell: LogFn = lambda _text: None,
) -> Finding:
    """How alike the streams at different depths are, and the loss without each layer.

    Args:
        model: A MODEL name.
        source, reference, sentences, direction: See `text_for`.
        device: Where the model reads.
        sides: Whose layers.
        tell: Hears what has been measured.

    Raises:
        ModelError, UsageError, DataError: There is no such model or text.
    """
    subject = open_model(model, device)
    inside = subject.loaded.model
    text = text_for(subject, source, reference, sentences, direction)
    alike = similarities(inside, text, sides)
    whole = loss_of(inside, text)
    tables: list[Table] = []
    figures: list[Figure] = []
    rounds = repeating(inside)
    notes = [f"Similarities are those of the first round: {rounds}."] if rounds else []
    for side in present(inside, sides):
        figures.append(_heat_map(side, alike[side]))
        reason = why_all_are_needed(inside, side)
        left_out = None if reason else layers_left_out(inside, side, text, tell)
        if reason:
            notes.append(f"No layer of the {side} is left out: {reason}.")
        tables.append(_table(side, alike[side], whole, left_out))
        if left_out is not None and left_out.together:
            figures.append(_curve(side, whole, left_out))
    return Finding(
        analysis="similarity",
        title=f"Similarity of depths of {model}",
        measured=f"The model reads the text{text.past} without dropout. Similarity: the cosine of the angle "
        "between two vectors of a word, as the mean over words; what a layer changes is 1 less that of its "
        "input and output. Loss: negative log-likelihood per target token. A layer that is left out passes "
        "on what it was given, and nothing is trained again.",
        tables=tables,
        figures=figures,
        notes=notes,
        provenance=provenance([subject.source], [text.description]),
    )


@torch.inference_mode()
def similarities(
    model: TranslationModel, text: ReadText, sides: Sequence[Side] = SIDES
) -> Mapping[Side, Similarities]:
    """Let a model read a text and compare its streams at real tokens.

    Raises:
        NotApplicableError: The layers of a side give vectors of another width than the embedding's.
    """
    sums: dict[tuple[Side, str], Tensor] = {}
    words: dict[Side, int] = {}
    for batch in text.batches():
        read = DeviceBatch(batch.source, batch.target_input, batch.target_output, batch.languages)
        values = signal_values(model, read, logits=False)
        for side in present(model, sides):
            layers = range(model.stack(side).depth)
            outputs = [values[Signal(side, "output", layer)] for layer in layers]
            embedding = values[Signal(side, "embedding")]
            if embedding.shape != outputs[0].shape:
                raise NotApplicableError(
                    f"depths of the {side} cannot be compared: {side}.connection "
                    f"{model.config.stack(side).connection.type} widens the stream",
                    "choose the other stack with --side",
                )
            units = _units([embedding, *outputs])
            entering = _units([values[Signal(side, "enters", layer)] for layer in layers])
            products = {
                "depths": torch.einsum("ind,jnd->ij", units, units),
                "layers": (entering * units[1:]).sum((1, 2)),
            }
            for kind, numbers in products.items():
                sums[side, kind] = sums.get((side, kind), 0) + numbers
            words[side] = words.get(side, 0) + units.size(1)
    return {
        side: Similarities(sums[side, "depths"] / count, sums[side, "layers"] / count)
        for side, count in words.items()
    }


def _units(streams: Sequence[Tensor]) -> Tensor:
    """`[k, n, d]`, each vector at length 1."""
    return functional.normalize(torch.stack(list(streams)).double(), dim=-1)


@torch.inference_mode()
def loss_of(model: TranslationModel, text: ReadText) -> float:
    """Negative log-likelihood per target token, nats."""
    total, tokens = 0.0, 0
    for batch in text.batches():
        sums = model.loss(batch.source, batch.target_input, batch.target_output, languages=batch.languages)
        total, tokens = total + float(sums.nll), tokens + int(sums.tokens)
    return total / tokens


def why_all_are_needed(model: TranslationModel, side: Side) -> str:
    """Why no layer of a stack can be left out; nothing where any can."""
    section = model.config.stack(side)
    if section.mixer.reads_below:
        return f"{side}.mixer {section.mixer.type} reads what the layers below made"
    if section.connection.droppable() == "nothing":
        return f"{side}.connection {section.connection.type} needs every layer as it is set"
    return ""


def layers_left_out(model: TranslationModel, side: Side, text: ReadText, tell: LogFn) -> LayersLeftOut:
    """Leave out each layer of a stack alone, and then more and more of them together."""
    stack = model.stack(side)
    layers = range(stack.depth)

    def without(*left_out: int) -> float:
        loss = loss_of(model.with_stacks(**{side: stack.without(left_out)}), text)
        names = ", ".join(str(layer + 1) for layer in left_out)
        tell(f"{side} without layer {names}: {loss:.3f} nats a token")
        return loss

    alone = tuple(without(layer) for layer in layers)
    order = sorted(layers, key=alone.__getitem__)
    together = (alone[order[0]], *(without(*order[:count]) for count in range(2, stack.depth)))
    return LayersLeftOut(alone, tuple(layer + 1 for layer in order), together[: stack.depth - 1])


def _heat_map(side: Side, alike: Similarities) -> HeatMap:
    names = layer_names(len(alike.layers), embedding=True)
    axis = "output of layer; 0: embedding"
    return HeatMap(
        name=f"{side}-similarity",
        title=f"{side.capitalize()}: similarity of the streams at different depths",
        row_axis=axis,
        column_axis=axis,
        value="cosine",
        rows=names,
        columns=names,
        values=alike.depths.tolist(),
    )


def _table(side: Side, alike: Similarities, whole: float, left_out: LayersLeftOut | None) -> Table:
    columns = ["layer", "changes .3"]
    rows: list[tuple[Cell, ...]] = [
        (layer, 1 - similarity) for layer, similarity in enumerate(alike.layers.tolist(), 1)
    ]
    if left_out is not None:
        columns += ["loss without it [nats/token] .3", "more than whole [nats/token] .3"]
        columns += ["order [1: cheapest]"]
        rows = [
            (*row, loss, loss - whole, left_out.order.index(layer) + 1)
            for layer, (row, loss) in enumerate(zip(rows, left_out.alone, strict=True), 1)
        ]
    title = f"{side.capitalize()}: what each layer changes, and is worth"
    return Table(title=title, columns=columns, rows=rows)


def _curve(side: Side, whole: float, left_out: LayersLeftOut) -> LineChart:
    losses = (whole, *left_out.together)
    return LineChart(
        name=f"{side}-left-out",
        title=f"{side.capitalize()}: loss without the layers that cost least",
        caption="Layers in the order of what each costs alone: " + ", ".join(map(str, left_out.order)) + ".",
        x="layers left out",
        y="loss [nats/token]",
        series=[Series(name=side, x=range(len(losses)), y=losses)],
    )
