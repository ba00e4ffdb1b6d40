"""Signal propagation: how large what passes through a model is, layer by layer, before or after training.

Whether a deep model can learn is decided by its first forward and backward pass: signals that vanish or grow
from layer to layer, and gradients that do so on the way down (Glorot and Bengio 2010, section 4.2; Wang et
al. 2019, section 2.1; Schoenholz et al. 2017).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import torch

from deepwire.decoding.model_loading import pick_device
from deepwire.errors import UsageError
from deepwire.lab.internals.signal_sizes import Signal, SignalSizes, call_names, signal_sizes
from deepwire.lab.report.finding import Axis, Finding, LineChart, ModelSource, Series, Table, provenance
from deepwire.lab.subject.model_and_text import open_model
from deepwire.lab.subject.training_text import TrainingText, open_untrained, training_text
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel
from deepwire.recipes import is_run_file
from deepwire.training.device import DeviceBatch

_MICRO_BATCH = 2048
_SEEDS = 3

Read = Callable[[SignalSizes], float | None]
Reads = Mapping[float, Read]


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
        overrides: ``key.sub=value``, changes to the run file.
        seeds: How many models to draw for a run file, with its seed and the next ones; default: 3.
        tokens: Target tokens to read, at least one sentence.
        device: Where the models read.

    Raises:
        UsageError: There is no such subject or device, or a trained model is to be changed.
        DataError, ModelError, ResourceError: The text or the model cannot be read.
    """
    place = pick_device(device)
    if is_run_file(subject):
        opened = _untrained(subject, overrides, seeds or _SEEDS, place)
    elif overrides or seeds is not None:
        change = "changed" if overrides else "drawn with other seeds"
        raise UsageError(
            f"{subject}: a trained model cannot be {change}", "give its run file, as it is before training"
        )
    else:
        opened = _trained(subject, device)
    text = opened.text
    batches = _batches(text, tokens, place)
    training = text.config.training
    smoothing = (training.label_smoothing, training.label_smoothing_form)
    measured = []
    for model in opened.models:  # one in memory at a time
        measured.append(signal_sizes(model, batches, smoothing))
    sizes = SizesOfSeeds(model, measured)
    rows = sum(len(batch.source) for batch in batches)
    return Finding(
        analysis="signal",
        title=opened.title,
        measured="Root of the mean square (rms) of all numbers at real tokens, without dropout, in float32, "
        + _past(text, model)
        + (f"; the mean over {len(measured)} seeds, in figures with the range." if len(measured) > 1 else ".")
        + " Gradients of what layers give are those of the loss summed over target tokens, gradients of "
        "parameters those of the loss per target token.",
        tables=_tables(sizes),
        figures=_figures(sizes),
        notes=_notes(text, model, trained=bool(opened.sources)),
        provenance=provenance(
            opened.sources,
            [f"training text, {rows:,} of {len(text.prepared.train):,} {text.unit}"],
            opened.settings,
        ),
    )


@dataclass(frozen=True)
class _Subject:
    """The models to look at, their text, and what a finding says of them."""

    title: str
    text: TrainingText
    models: Iterable[TranslationModel]
    sources: Sequence[ModelSource] = ()
    settings: dict[str, str] = field(default_factory=dict)


def _untrained(name: str, overrides: Sequence[str], seeds: int, device: torch.device) -> _Subject:
    run = open_untrained(name, overrides)
    first = run.text.config.seed
    last = first + seeds - 1
    return _Subject(
        f"First forward pass of {run.description}, untrained",
        run.text,
        (run.model(seed, device) for seed in range(first, last + 1)),
        settings={"seeds": f"{first} to {last}" if last > first else str(first)},
    )


def _trained(name: str, device: str) -> _Subject:
    opened = open_model(name, device)
    text = training_text(name, opened.loaded)
    return _Subject(f"Signals of {name}", text, [opened.loaded.model], [opened.source])


@dataclass(frozen=True)
class SizesOfSeeds:
    """The sizes of models that differ in their seed alone, and one of these models."""

    model: TranslationModel
    each: Sequence[SignalSizes]

    def spread(self, read: Read) -> tuple[float, float, float] | None:
        """Mean, least and most of a size; None where it does not exist or is not finite."""
        values = [value for sizes in self.each if (value := read(sizes)) is not None]
        if not values or not all(map(math.isfinite, values)):
            return None
        return sum(values) / len(values), min(values), max(values)

    def mean(self, read: Read) -> float | None:
        """The mean of a size."""
        spread = self.spread(read)
        return None if spread is None else spread[0]

    def signal(self, signal: Signal) -> float | None:
        """The mean size of a signal."""
        return self.mean(_of_signal(signal))

    def series(self, name: str, reads: Reads) -> Series | None:
        """A curve with a range over the seeds; None without any value."""
        spreads = {x: spread for x, read in reads.items() if (spread := self.spread(read)) is not None}
        if not spreads:
            return None
        mean, low, high = zip(*spreads.values(), strict=True)
        ranges = {"low": low, "high": high} if len(self.each) > 1 else {}
        return Series(name=name, x=list(spreads), y=mean, **ranges)


def _of_signal(signal: Signal) -> Read:
    return lambda sizes: sizes.signals.get(signal)


def _of_gradient(name: str) -> Read:
    return lambda sizes: sizes.gradients.get(name)


def _of_parameters(name: str) -> Read:
    return lambda sizes: sizes.parameters.get(name)


def _batches(text: TrainingText, tokens: int, device: torch.device) -> list[DeviceBatch]:
    """The first training batches, about so many target tokens of them."""
    update = next(text.updates(device, batch_tokens=tokens, seed=text.config.seed))
    return [
        piece
        for batch in update.batches
        for piece in batch.cut(math.ceil(batch.target_input.numel() / _MICRO_BATCH))
    ]


def _past(text: TrainingText, model: TranslationModel) -> str:
    if text.config.data.text is not None:
        return "each token with those before it in its block as its past"
    before = "the reference" if "encoder" in model.stacks() else "the source and the reference"
    return f"the decoder with {before} as its past"


def _tables(sizes: SizesOfSeeds) -> Iterator[Table]:
    stacks = sizes.model.stacks()
    ends = ("token part", "position part", "embedding", "results", "logits")
    yield Table(
        title="Into the stacks and out of them, rms",
        columns=["stack", "tokens", "positions", "embedding", "result", "logits"],
        rows=[(side, *(sizes.signal(Signal(side, kind)) for kind in ends)) for side in stacks],
    )
    for side, stack in stacks.items():
        names = call_names(stack.calls)
        yield Table(
            title=f"{side.capitalize()}: what each sub-layer reads and gives, rms",
            columns=["layer", "sub-layer", "reads", "gives"],
            rows=[
                (
                    call.layer + 1,
                    names[index],
                    *(sizes.signal(Signal(side, kind, index)) for kind in ("reads", "gives")),
                )
                for index, call in enumerate(stack.calls)
            ],
        )
    of_no_layer = [name for name in sizes.each[0].parameters if not name.partition(".")[2].isdigit()]
    yield Table(
        title="Parameters of no single layer, rms",
        columns=["part", "parameters", "gradient [nats/token]"],
        rows=[
            (
                "embeddings and output"
                if name == "other"
                else name.replace(".rest", ", shared and last norm"),
                sizes.mean(_of_parameters(name)),
                sizes.mean(_of_gradient(name)),
            )
            for name in of_no_layer
        ],
    )


def _figures(sizes: SizesOfSeeds) -> Iterator[LineChart]:
    stacks = sizes.model.stacks()
    layers = {side: sorted({call.layer for call in stack.calls}) for side, stack in stacks.items()}

    def of_signals(side: Side, kind: str) -> Reads:
        return {layer + 1.0: _of_signal(Signal(side, kind, layer)) for layer in layers[side]}

    def of_parameters(side: Side) -> Reads:
        return {layer + 1.0: _of_gradient(f"{side}.{layer + 1}") for layer in layers[side]}

    passing = {"into the layer": "enters", "out of the layer": "output"}
    charts: list[tuple[str, str, str, dict[str, Reads]]] = [
        (
            "stream",
            "Stream into and out of each layer, rms",
            "",
            {f"{side}, {name}": of_signals(side, kind) for side in stacks for name, kind in passing.items()},
        ),
        (
            "output-gradients",
            "Gradient of the summed loss at each layer's output, rms",
            "nats",
            {side: of_signals(side, "output gradient") for side in stacks},
        ),
        (
            "parameter-gradients",
            "Gradient of the loss per token in each layer's parameters, rms",
            "nats/token",
            {side: of_parameters(side) for side in stacks},
        ),
    ]
    for name, title, unit, curves in charts:
        y = Axis(label="rms", unit=unit, log=True)
        series = [
            curve for label, reads in curves.items() if (curve := sizes.series(label, reads)) is not None
        ]
        if series:
            yield LineChart(name=name, title=title, x="layer, from the bottom", y=y, series=series)


def _notes(text: TrainingText, model: TranslationModel, *, trained: bool) -> Iterator[str]:
    config = text.config.training
    for name, other in (("start_from", config.start_from), ("pretrained", config.pretrained)):
        if other is not None and not trained:
            yield f"training.{name} is left out: the models begin as model.initialization says."
    if "encoder" in model.stacks():
        yield "The result of the encoder is the memory that the decoder reads."
    yield (
        "Where an aggregation mixes layers, what goes into a layer is not what came out of the one below it."
    )
