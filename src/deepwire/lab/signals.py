"""Signal propagation: how large what passes through a model is, layer by layer, before or after training.

Whether a deep model can learn is decided by its first forward and backward pass: signals that vanish or grow
from layer to layer, and gradients that do so on the way down (Glorot and Bengio 2010, section 4.2; Wang et
al. 2019, section 2.1; Schoenholz et al. 2017).
"""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from statistics import median
from typing import NamedTuple

import torch
from torch import Tensor

from deepwire.decoding.model_loading import pick_device
from deepwire.errors import DataError, UsageError
from deepwire.lab.finding import Figure, Finding, LineChart, ModelSource, Series, Table, provenance
from deepwire.lab.subject import (
    model_source,
    open_model,
    open_untrained,
    run_of,
    training_text,
    untrained_model,
)
from deepwire.model.connections.connection import Connection, ConnectionWrapper, DepthState
from deepwire.model.context import Context
from deepwire.model.embedding import Embedding
from deepwire.model.encoder_decoder import EncoderDecoder
from deepwire.model.layer_ownership import evaluating
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.cross_entropy import SmoothingForm
from deepwire.recipes import is_run_file
from deepwire.training.device import DeviceBatch
from deepwire.training.extras import layers_of
from deepwire.training.log import read_records


class Signal(NamedTuple):
    """A signal of a model.

    Attributes:
        side: Whose it is: encoder or decoder.
        kind: Of a stack ``token part``, ``position part``, ``embedding``, ``results``, ``logits``; of a layer
            ``enters``, ``output``, ``output gradient``, ``parameter gradient``; of a call ``reads``,
            ``gives``.
        number: Which layer or call, from 0; 0 where there is one only.
    """

    side: Side
    kind: str
    number: int = 0


def signal_sizes(
    model: TranslationModel,
    batches: Iterable[DeviceBatch],
    smoothing: tuple[float, SmoothingForm] = (0.0, "uniform_wrong"),
) -> dict[Signal, float]:
    """Let a model read batches forwards and backwards, without dropout: the rms of each of its signals.

    Gradients of outputs are those of the loss summed over target tokens, so that they do not depend on the
    number of sentences; gradients of parameters those of the loss per target token. The model is as it was
    afterwards, but its parameters have no gradients.
    """
    squares, counts = defaultdict[Signal, float](float), Counter[Signal]()

    def add(signal: Signal, numbers: Tensor) -> None:
        squares[signal] += float(numbers.detach().double().square().sum())
        counts[signal] += numbers.numel()

    tokens = 0
    model.zero_grad()
    with evaluating(model), torch.enable_grad():
        for batch in batches:
            results, seen = _read(model, batch)
            loss = model.head.loss(results, batch.target_output, *smoothing, batch.languages)
            torch.autograd.backward(loss.smoothed)
            tokens += int(loss.tokens)
            with torch.no_grad():
                for signal, numbers in _parts_of_embedding(model, batch):
                    add(signal, numbers)
                for signal, numbers, real in seen:
                    add(signal, numbers[real])
                    if signal.kind == "output" and numbers.grad is not None:
                        add(signal._replace(kind="output gradient"), numbers.grad[real])
                for result in results:
                    logits = model.head.logits(result, batch.languages)
                    add(Signal("decoder", "logits"), logits[batch.target_input != model.pad_id])
    for side, stack in model.stacks().items():
        layers = dict(layers_of(model))
        for layer in range(stack.depth):
            for parameter in layers.get(f"{side}.{layer + 1}", ()):
                if parameter.grad is not None:
                    add(Signal(side, "parameter gradient", layer), parameter.grad / tokens)
    model.zero_grad()
    return {
        signal: math.sqrt(total / counts[signal]) if counts[signal] else math.nan
        for signal, total in squares.items()
    }


@torch.no_grad()
def signal_values(model: TranslationModel, batch: DeviceBatch) -> dict[Signal, Tensor]:
    """The signals themselves at the real tokens of one batch, `[tokens, ...]`, without dropout.

    Of several results of a stack the first is taken.
    """
    values: dict[Signal, Tensor] = {}
    with evaluating(model):
        for signal, tensor, real in _read(model, batch)[1]:
            values.setdefault(signal, tensor[real])
    return values


def _read(
    model: TranslationModel, batch: DeviceBatch
) -> tuple[Sequence[Tensor], list[tuple[Signal, Tensor, Tensor]]]:
    """The results of the decoder, and each signal `[B, T, ...]` with which tokens are real, `[B, T]`."""
    words = {
        side: tokens != model.pad_id for side, tokens in model.reads(batch.source, batch.target_input).items()
    }
    taps = {side: _ConnectionTap(stack.connection) for side, stack in model.stacks().items()}
    tapped = {side: stack.with_parts(connection=taps[side]) for side, stack in model.stacks().items()}
    results = model.with_stacks(**tapped).decode(batch.source, batch.target_input, languages=batch.languages)
    left: dict[Side, Sequence[Tensor]] = {"decoder": results}
    if isinstance(model, EncoderDecoder):
        with torch.no_grad():
            left["encoder"] = model.encode(batch.source, languages=batch.languages)[0]
    seen = []
    for side, tap in taps.items():
        seen += [(Signal(side, kind, number), tensor, words[side]) for kind, number, tensor in tap.seen]
        real = batch.target_input != model.pad_id if side == "decoder" else words[side]
        seen += [(Signal(side, "results"), tensor, real) for tensor in left.get(side, ())]
    return results, seen


def _parts_of_embedding(model: TranslationModel, batch: DeviceBatch) -> Iterator[tuple[Signal, Tensor]]:
    """The parts of tokens and of positions at real tokens, before norm and dropout."""
    sides: tuple[tuple[Side, Embedding, Tensor], ...] = (
        (next(iter(model.stacks())), model.source_embedding, batch.source),
        ("decoder", model.target_embedding, batch.target_input),
    )
    for side, embedding, tokens in sides:
        words, of_tokens = tokens != model.pad_id, embedding.of_tokens(tokens, batch.languages)
        yield Signal(side, "token part"), of_tokens[words]
        positions = embedding.vectors(0, tokens.size(1))
        if positions is not None:
            yield Signal(side, "position part"), positions.expand_as(of_tokens)[words]


class _ConnectionTap(ConnectionWrapper):
    """A connection that keeps what it sees in a pass, in order.

    Attributes:
        seen: Names as in `Signal`, the number of the call or layer, and the tensor; ``output`` keeps its
            gradient where one is taken.
    """

    def __init__(self, inner: Connection) -> None:
        super().__init__(inner)
        self.seen: list[tuple[str, int, Tensor]] = []

    def start(self, x: Tensor, context: Context) -> DepthState:
        if not self.seen:  # in an encoder with rounds only the first of its parts begins with the embedding
            self.seen.append(("embedding", 0, x))
        return self.inner.start(x, context)

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        if index == 0 or self.calls[index - 1].closes:
            self.seen.append(("enters", self.calls[index].layer, self.inner.stream(state)))
        read = self.inner.read(state, index, context)
        self.seen.append(("reads", index, read))
        return read

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        self.seen.append(("gives", index, output))
        state = self.inner.write(state, index, read, output, context)
        if self.calls[index].closes:
            x = self.inner.stream(state)
            if x.requires_grad:
                x.retain_grad()
            self.seen.append(("output", self.calls[index].layer, x))
            state = self.inner.with_stream(state, x)  # so that what follows is made of it
        return state


_MICRO_BATCH = 2048
_SEEDS = 3
_MIXED = "Where an aggregation mixes layers, what goes into a layer is not what came out of the one below it."
_MEMORY = "The result of the encoder is the memory that the decoder reads."

Sizes = Mapping[Signal, Sequence[float]]
"""The rms of each signal, for each seed."""


def analyse_signal(
    subject: str,
    overrides: Sequence[str] = (),
    *,
    seeds: int | None = None,
    tokens: int = 2048,
    device: str = "cpu",
) -> Finding:
    """The size of every signal of a model and of its gradients, on text that it is trained on.

    Args:
        subject: A run file or recipe, whose model is looked at before training; or a MODEL name of a run.
        seeds: How many models to draw for a run file, with its seed and the next ones; default: 3.
        tokens: Target tokens to read, at least one sentence.

    Raises:
        UsageError: There is no such subject or device, or a trained model is to be changed.
        DataError, ModelError, ResourceError: The text or the model cannot be read.
    """
    place = pick_device(device)
    models: Iterable[TranslationModel]
    if is_run_file(subject):
        text = open_untrained(subject, overrides)
        drawn = range(text.config.seed, text.config.seed + (seeds or _SEEDS))
        title = f"First forward pass of {' '.join((subject, *overrides))}, untrained"
        models = (untrained_model(text, seed, place) for seed in drawn)
        told = f"{drawn[0]} to {drawn[-1]}" if len(drawn) > 1 else str(drawn[0])
        sources, settings = list[ModelSource](), {"seeds": told}
    elif overrides or seeds is not None:
        change = "changed" if overrides else "drawn with other seeds"
        raise UsageError(
            f"{subject}: a trained model cannot be {change}", "give its run file, as it is before training"
        )
    else:
        opened = open_model(subject, device)
        text = training_text(subject, opened.loaded.vocabularies)
        title, models = f"Signals of {subject}", [opened.loaded.model]
        sources, settings = [opened.source], {}
    training = text.config.training
    update = next(text.updates(place, batch_tokens=tokens, seed=text.config.seed))
    batches = [
        piece
        for batch in update.batches
        for piece in batch.cut(math.ceil(batch.target_input.numel() / _MICRO_BATCH))
    ]
    smoothing = (training.label_smoothing, training.label_smoothing_form)
    measured = []
    for model in models:  # one in memory at a time
        measured.append(signal_sizes(model, batches, smoothing))
    of_seeds = {signal: [sizes[signal] for sizes in measured] for signal in measured[0]}
    sizes = {signal: each for signal, each in of_seeds.items() if all(map(math.isfinite, each))}
    rows = sum(len(batch.source) for batch in batches)
    unit = "pairs" if text.config.data.text is None else "blocks"
    return Finding(
        analysis="signal",
        title=title,
        measured="Root of the mean square (rms) of all numbers at real tokens, without dropout, in float32"
        + (f"; the mean over {len(measured)} seeds, in figures with the range." if len(measured) > 1 else ".")
        + " Gradients of what layers give are those of the loss summed over target tokens, gradients of "
        "parameters those of the loss per target token.",
        tables=_tables(model, sizes),
        figures=_figures(model, sizes),
        notes=[_MIXED, *([_MEMORY] if "encoder" in model.stacks() else [])],
        provenance=provenance(
            sources, [f"training text, {rows:,} of {len(text.prepared.train):,} {unit}"], settings
        ),
    )


def _mean(sizes: Sequence[float] | None) -> float | None:
    return sum(sizes) / len(sizes) if sizes else None


def _tables(model: TranslationModel, sizes: Sizes) -> Iterator[Table]:
    ends = ("token part", "position part", "embedding", "results", "logits")
    yield Table(
        title="Into the stacks and out of them, rms",
        columns=["stack", "tokens", "positions", "embedding", "result", "logits"],
        rows=[(side, *(_mean(sizes.get(Signal(side, kind))) for kind in ends)) for side in model.stacks()],
    )
    for side, stack in model.stacks().items():
        yield Table(
            title=f"{side.capitalize()}: what each sub-layer reads and gives, rms",
            columns=["layer", "sub-layer", "reads", "gives"],
            rows=[
                (
                    call.layer + 1,
                    call.kind.replace("_", "-"),
                    *(_mean(sizes.get(Signal(side, kind, index))) for kind in ("reads", "gives")),
                )
                for index, call in enumerate(stack.calls)
            ],
        )


def _figures(model: TranslationModel, sizes: Sizes) -> Iterator[LineChart]:
    passing = {", into the layer": "enters", ", out of the layer": "output"}
    output, parameters = {"": "output gradient"}, {"": "parameter gradient"}
    for name, title, y, kinds in (
        ("stream", "Stream into and out of each layer", "rms", passing),
        ("output-gradients", "Gradient of the summed loss at each layer's output", "rms [nats]", output),
        (
            "parameter-gradients",
            "Gradient of the loss per token in each layer's parameters",
            "rms [nats/token]",
            parameters,
        ),
    ):
        series = [
            Series(
                name=f"{side}{suffix}",
                x=[signal.number + 1 for signal in layers],
                y=[_mean(sizes[signal]) for signal in layers],
                # Of one seed there is no range.
                low=[min(sizes[signal]) for signal in layers if len(sizes[signal]) > 1],
                high=[max(sizes[signal]) for signal in layers if len(sizes[signal]) > 1],
            )
            for side in model.stacks()
            for suffix, kind in kinds.items()
            if (layers := sorted(signal for signal in sizes if signal[:2] == (side, kind)))
        ]
        if series:
            yield LineChart(
                name=name, title=title, x="layer, from the bottom", y=y, y_log=True, series=series
            )


_NORM = "gradient norm [nats/token]"  # of the loss; parameters have no unit


def analyse_gradients(run: str) -> Finding:
    """The gradient norm of each layer's parameters over the updates of a run.

    Raises:
        UsageError: There is no such run, or it was not trained with ``training.record.gradients``.
        DataError: The records are damaged.
    """
    place = run_of(run)
    if place is None:
        raise UsageError(f"{run}: no such run directory", "gradients are recorded in the folder of a run")
    records = read_records(place.gradients)
    if not records:
        raise UsageError(
            f"{run}: recorded no gradients", "train with training.record.gradients=100, also from here on"
        )
    updates = [_update(record, place.gradients) for record in records]
    figures: list[Figure] = []
    medians: list[Series] = []
    for side in ("encoder", "decoder"):
        layers = [key.partition(".")[2] for key in records[0] if key.startswith(f"{side}.")]
        layers = [layer for layer in layers if layer != "rest"]
        curves = [
            Series(name=f"layer {layer}", x=updates, y=[each.get(f"{side}.{layer}") for each in records])
            for layer in layers
        ]
        if curves:
            figures.append(
                LineChart(
                    name=f"{side}-gradients",
                    title=f"{side.capitalize()}: gradient norm of each layer",
                    x="update",
                    y=_NORM,
                    y_log=True,
                    series=curves,
                    ordered=True,
                )
            )
            finite = [[y for y in curve.y if y is not None] or [math.nan] for curve in curves]
            medians.append(Series(name=side, x=map(float, layers), y=map(median, finite)))
    by_layer = LineChart(  # no bars: on a logarithmic scale they begin nowhere
        name="gradients-by-layer",
        title="Gradient norm by layer, median over the recorded updates",
        x="layer, from the bottom",
        y=_NORM,
        y_log=True,
        series=medians,
    )
    return Finding(
        analysis="gradients",
        title=f"Gradients by layer of {run}",
        measured="The Euclidean norm of the gradient of the training loss per target token with respect to "
        "the parameters that belong to one layer alone, before the whole gradient is clipped. Recorded by "
        f"training itself at {len(records)} of its updates.",
        figures=[*figures, by_layer],
        notes=(
            "What several layers share (such as the gates of a depth-wise LSTM), embeddings and the weights "
            "of aggregations and fusions are in no layer; the records have them as rest.",
        ),
        provenance=provenance(model_source(run, each.path) for each in place.checkpoints()[-1:]),
    )


def _update(record: Mapping[str, object], path: Path) -> float:
    update = record.get("update")
    if not isinstance(update, int):
        raise DataError(f"{path}: a record has no update")
    return float(update)
