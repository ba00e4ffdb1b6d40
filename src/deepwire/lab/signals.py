"""Signal propagation: how large what passes through a model is, layer by layer, before or after training.

Whether a deep model can learn is decided by its first forward and backward pass: signals that vanish or grow
from layer to layer, and gradients that do so on the way down (Glorot and Bengio 2010, section 4.2; Wang et
al. 2019, section 2.1; Schoenholz et al. 2017).
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple, TypeVar

import torch
from torch import Tensor

from deepwire.decoding.model_loading import pick_device
from deepwire.errors import DataError, UsageError
from deepwire.lab.finding import Figure, Finding, LineChart, ModelSource, Series, Table, provenance
from deepwire.lab.subject import (
    TrainingText,
    open_model,
    open_untrained,
    run_of,
    source_of,
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
        kind: Of a stack ``token part``, ``position part``, ``embedding``, ``results``; ``logits``; of a layer
            ``enters``, ``output``, ``output gradient``; of a call ``reads``, ``gives``.
        number: Which layer or call, from 0; 0 where there is one only.
    """

    side: Side
    kind: str
    number: int = 0


@dataclass
class SquareSum:
    """The sum of the squares of numbers, and how many they are."""

    squares: float = 0.0
    count: int = 0

    def add(self, numbers: Tensor) -> None:
        """Take in numbers of any shape."""
        self.squares += float(numbers.detach().double().square().sum())
        self.count += numbers.numel()

    @property
    def rms(self) -> float:
        """Root of the mean square."""
        return math.sqrt(self.squares / self.count) if self.count else math.nan


@dataclass
class SignalSizes:
    """Sizes of one model.

    Attributes:
        signals: By signal. Gradients are those of the loss summed over target tokens, so that they do not
            depend on the number of sentences.
        gradients: rms of the gradient of the loss per target token with respect to the parameters of each
            layer, by ``encoder.1``, ``encoder.rest``, ``other``.
    """

    signals: dict[Signal, float] = field(default_factory=dict)
    gradients: dict[str, float] = field(default_factory=dict)


def signal_sizes(
    model: TranslationModel,
    batches: Iterable[DeviceBatch],
    smoothing: tuple[float, SmoothingForm] = (0.0, "uniform_wrong"),
) -> SignalSizes:
    """Let a model read batches forwards and backwards, without dropout, and measure its signals.

    The model is as it was afterwards, but its parameters have no gradients.
    """
    sums: dict[Signal, SquareSum] = defaultdict(SquareSum)
    tokens = 0
    model.zero_grad()
    with evaluating(model), torch.enable_grad():
        for batch in batches:
            tokens += _read(model, batch, smoothing, sums)
    sizes = SignalSizes({signal: each.rms for signal, each in sums.items()})
    for name, parameters in layers_of(model):
        squares = SquareSum()
        for parameter in parameters:
            if parameter.grad is not None:
                squares.add(parameter.grad / tokens)
        if squares.count:
            sizes.gradients[name] = squares.rms
    model.zero_grad()
    return sizes


@torch.no_grad()
def signal_values(model: TranslationModel, batch: DeviceBatch) -> dict[Signal, Tensor]:
    """The signals themselves at the real tokens of one batch, `[tokens, ...]`, without dropout.

    Of several results of a stack the first is taken.
    """
    values: dict[Signal, Tensor] = {}
    with evaluating(model):
        read = _Pass(model, batch)
        for signal, tensor in read.seen():
            values.setdefault(signal, tensor)
    return values


def _read(
    model: TranslationModel,
    batch: DeviceBatch,
    smoothing: tuple[float, SmoothingForm],
    sums: dict[Signal, SquareSum],
) -> int:
    """Read one batch forwards and backwards; returns its target tokens."""
    read = _Pass(model, batch)
    loss = read.model.head.loss(read.results, batch.target_output, *smoothing, batch.languages)
    torch.autograd.backward(loss.smoothed)
    with torch.no_grad():
        for signals in (_parts_of_embedding(model, batch), read.seen(), read.gradients()):
            for signal, tensor in signals:
                sums[signal].add(tensor)
        for result in read.results:
            logits = model.head.logits(result, batch.languages)
            sums[Signal("decoder", "logits")].add(logits[read.target_words])
    return int(loss.tokens)


class _Pass:
    """A model, which shares its parameters with the one given, that read a batch with taps at connections.

    `words` are the real tokens of those that a stack reads, `target_words` those of the target, `[B, T]`.
    """

    def __init__(self, model: TranslationModel, batch: DeviceBatch) -> None:
        inputs = model.reads(batch.source, batch.target_input)
        self.words = {side: tokens != model.pad_id for side, tokens in inputs.items()}
        self.target_words = batch.target_input != model.pad_id
        stacks = model.stacks()
        self._taps = {side: ConnectionTap(stack.connection) for side, stack in stacks.items()}
        tapped = {side: stack.with_parts(connection=self._taps[side]) for side, stack in stacks.items()}
        self.model = model.with_stacks(**tapped)
        self.results = self.model.decode(batch.source, batch.target_input, languages=batch.languages)
        self._left: dict[Side, Sequence[Tensor]] = {"decoder": self.results}
        if isinstance(model, EncoderDecoder):
            with torch.no_grad():
                self._left["encoder"] = model.encode(batch.source, languages=batch.languages)[0]

    def seen(self) -> Iterator[tuple[Signal, Tensor]]:
        """The signals at the taps and the results of the stacks, at real tokens."""
        for side, tap in self._taps.items():
            for kind, number, tensor in tap.seen:
                yield Signal(side, kind, number), tensor[self.words[side]]
            left = self.target_words if side == "decoder" else self.words[side]
            for tensor in self._left.get(side, ()):
                yield Signal(side, "results"), tensor[left]

    def gradients(self) -> Iterator[tuple[Signal, Tensor]]:
        """Gradients at the outputs of layers, after a backward pass."""
        for side, tap in self._taps.items():
            for kind, number, tensor in tap.seen:
                if kind == "output" and tensor.grad is not None:
                    yield Signal(side, "output gradient", number), tensor.grad[self.words[side]]


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


class ConnectionTap(ConnectionWrapper):
    """A connection that keeps what it sees in a pass, in order.

    Attributes:
        seen: Names as in `Signal`, the number of the call or layer, and the tensor; ``output`` keeps its
            gradient where one is taken.
    """

    def __init__(self, inner: Connection) -> None:
        super().__init__(inner)
        self.seen: list[tuple[str, int, Tensor]] = []

    def start(self, x: Tensor, context: Context) -> DepthState:
        """As before; in an encoder with rounds, only the first of its parts begins with the embedding."""
        if not self.seen:
            self.seen.append(("embedding", 0, x))
        return self.inner.start(x, context)

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """As before."""
        if index == 0 or self.calls[index - 1].closes:
            self.seen.append(("enters", self.calls[index].layer, self.inner.stream(state)))
        read = self.inner.read(state, index, context)
        self.seen.append(("reads", index, read))
        return read

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """As before."""
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

Key = TypeVar("Key")
Spread = tuple[float, float, float]
"""Mean, least and most of a size."""


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
    if is_run_file(subject):
        text = open_untrained(subject, overrides)
        drawn = range(text.config.seed, text.config.seed + (seeds or _SEEDS))
        title = f"First forward pass of {' '.join((subject, *overrides))}, untrained"
        models = (untrained_model(text, seed, place) for seed in drawn)
        told = f"{drawn[0]} to {drawn[-1]}" if len(drawn) > 1 else str(drawn[0])
        return _signal_finding(title, text, models, _batches(text, tokens, place), settings={"seeds": told})
    if overrides or seeds is not None:
        change = "changed" if overrides else "drawn with other seeds"
        raise UsageError(
            f"{subject}: a trained model cannot be {change}", "give its run file, as it is before training"
        )
    opened = open_model(subject, device)
    text = training_text(subject, opened.loaded)
    batches = _batches(text, tokens, place)
    return _signal_finding(f"Signals of {subject}", text, [opened.loaded.model], batches, [opened.source])


def _signal_finding(
    title: str,
    text: TrainingText,
    models: Iterable[TranslationModel],
    batches: Sequence[DeviceBatch],
    sources: Sequence[ModelSource] = (),
    settings: Mapping[str, str] | None = None,
) -> Finding:
    training = text.config.training
    smoothing = (training.label_smoothing, training.label_smoothing_form)
    measured = []
    for model in models:  # one in memory at a time
        measured.append(signal_sizes(model, batches, smoothing))
    sizes = SizesOfSeeds(
        len(measured),
        _spreads([each.signals for each in measured]),
        _spreads([each.gradients for each in measured]),
    )
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


@dataclass(frozen=True)
class SizesOfSeeds:
    """The sizes of `seeds` models that differ in their seed alone, as in `SignalSizes`; finite ones only."""

    seeds: int
    signals: Mapping[Signal, Spread]
    gradients: Mapping[str, Spread]

    def signal(self, side: Side, kind: str, number: int = 0) -> float | None:
        """The mean size of a signal."""
        spread = self.signals.get(Signal(side, kind, number))
        return None if spread is None else spread[0]

    def series(self, name: str, spreads: Mapping[float, Spread]) -> Series:
        """A curve with a range over the seeds."""
        mean, low, high = zip(*spreads.values(), strict=True)
        ranges = {"low": low, "high": high} if self.seeds > 1 else {}
        return Series(name=name, x=list(spreads), y=mean, **ranges)


def _spreads(each: Sequence[Mapping[Key, float]]) -> dict[Key, Spread]:
    """The spread of every size over models."""
    by_key = {key: [sizes[key] for sizes in each] for key in each[0]}
    return {
        key: (sum(values) / len(values), min(values), max(values))
        for key, values in by_key.items()
        if all(map(math.isfinite, values))
    }


def _batches(text: TrainingText, tokens: int, device: torch.device) -> list[DeviceBatch]:
    """The first training batches, about so many target tokens of them."""
    update = next(text.updates(device, batch_tokens=tokens, seed=text.config.seed))
    return [
        piece
        for batch in update.batches
        for piece in batch.cut(math.ceil(batch.target_input.numel() / _MICRO_BATCH))
    ]


def _tables(model: TranslationModel, sizes: SizesOfSeeds) -> Iterator[Table]:
    ends = ("token part", "position part", "embedding", "results", "logits")
    yield Table(
        title="Into the stacks and out of them, rms",
        columns=["stack", "tokens", "positions", "embedding", "result", "logits"],
        rows=[(side, *(sizes.signal(side, kind) for kind in ends)) for side in model.stacks()],
    )
    for side, stack in model.stacks().items():
        yield Table(
            title=f"{side.capitalize()}: what each sub-layer reads and gives, rms",
            columns=["layer", "sub-layer", "reads", "gives"],
            rows=[
                (
                    call.layer + 1,
                    call.kind.replace("_", "-"),
                    *(sizes.signal(side, kind, index) for kind in ("reads", "gives")),
                )
                for index, call in enumerate(stack.calls)
            ],
        )


def _figures(model: TranslationModel, sizes: SizesOfSeeds) -> Iterator[LineChart]:
    def of_signals(side: Side, kind: str) -> dict[float, Spread]:
        return {
            signal.number + 1.0: spread
            for signal, spread in sizes.signals.items()
            if (signal.side, signal.kind) == (side, kind)
        }

    def of_parameters(side: Side) -> dict[float, Spread]:
        layers = range(1, model.stack(side).depth + 1)
        names = {float(layer): f"{side}.{layer}" for layer in layers}
        return {layer: sizes.gradients[name] for layer, name in names.items() if name in sizes.gradients}

    sides = model.stacks()
    passing = {"into the layer": "enters", "out of the layer": "output"}
    streams = {f"{side}, {name}": of_signals(side, kind) for side in sides for name, kind in passing.items()}
    outputs = {side: of_signals(side, "output gradient") for side in sides}
    parameters = {side: of_parameters(side) for side in sides}
    for name, title, unit, curves in (
        ("stream", "Stream into and out of each layer", "", streams),
        ("output-gradients", "Gradient of the summed loss at each layer's output", "nats", outputs),
        (
            "parameter-gradients",
            "Gradient of the loss per token in each layer's parameters",
            "nats/token",
            parameters,
        ),
    ):
        y = f"rms [{unit}]" if unit else "rms"
        series = [sizes.series(label, spreads) for label, spreads in curves.items() if spreads]
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
    updates = [_update(record, str(place.gradients)) for record in records]
    figures: list[Figure] = []
    medians: list[Series] = []
    for side in ("encoder", "decoder"):
        layers = [key for key in records[0] if key.startswith(f"{side}.") and not key.endswith(".rest")]
        curves = [
            Series(name=f"layer {key.partition('.')[2]}", x=updates, y=_norms(records, key)) for key in layers
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
            numbers = [float(key.partition(".")[2]) for key in layers]
            finite = [[y for y in curve.y if y is not None] for curve in curves]
            medians.append(Series(name=side, x=numbers, y=[median(each or [math.nan]) for each in finite]))
    by_layer = LineChart(  # no bars: on a logarithmic scale they begin nowhere
        name="gradients-by-layer",
        title="Gradient norm by layer, median over the recorded updates",
        x="layer, from the bottom",
        y=_NORM,
        y_log=True,
        series=medians,
    )
    newest = place.checkpoints()[-1:]
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
        provenance=provenance(source_of(run, each.path, {"update": each.update}) for each in newest),
    )


def _update(record: Mapping[str, object], path: str) -> float:
    update = record.get("update")
    if not isinstance(update, int):
        raise DataError(f"{path}: a record has no update")
    return float(update)


def _norms(records: Sequence[Mapping[str, object]], key: str) -> list[float | None]:
    values = [record.get(key) for record in records]
    return [float(value) if isinstance(value, int | float) else None for value in values]
