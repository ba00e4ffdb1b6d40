"""One layer at a time of a trained model replaced by a linear map of what enters it.

Section 4 of the 2020 preprint of the depth-wise LSTM paper (Xu et al. 2020, Rewiring the Transformer with
Depth-Wise LSTMs, Eq. 11 and 12; Tables 6 and 7): y = f(x) becomes y = W x + b. The map sees one position, so
the layer loses its attention, cross-attention included, together with all that is not linear in it.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from copy import deepcopy
from dataclasses import asdict, dataclass
from itertools import islice
from pathlib import Path
from typing import Literal

import torch
from torch import Tensor, nn

from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import LogFn, ModelError, UsageError
from deepwire.io.atomic import disk_errors, write_json
from deepwire.io.regular_files import read_json
from deepwire.lab.report.finding import BarChart, Finding, Series, Table, provenance
from deepwire.lab.subject.model_and_text import check_layer, present
from deepwire.lab.subject.scorer import Scorer
from deepwire.lab.subject.training_text import TrainingText
from deepwire.model.connections.connection import Call, Connection, ConnectionWrapper, DepthState
from deepwire.model.context import Context
from deepwire.model.encoder_decoder import EncoderDecoder
from deepwire.model.layers import NoNorm
from deepwire.model.stack_spec import SIDES, Side
from deepwire.model.translation_model import TranslationModel
from deepwire.ops.cross_entropy import SmoothingForm
from deepwire.training.device import DeviceUpdate
from deepwire.training.optimizers.optimizer import Adam, AdamWConfig, Optimizer
from deepwire.training.parallel_strategy import ParallelStrategy
from deepwire.training.schedule import CosineConfig

Cell = Literal["carry", "map"]


class OneLayerLinear(ConnectionWrapper):
    """A connection one of whose layers is a single call, which reads and writes what passes between layers.

    With `cell` "carry" the call reads the stream x `[B, T, d]`; whatever else passes from layer to layer (the
    cell of a depth-wise LSTM) goes past the layer unchanged. With "map" it reads and writes stream and cell
    side by side, `[B, T, 2 d]`.
    """

    def __init__(self, inner: Connection, layer: int, cell: Cell) -> None:
        place, replaced = _place(inner, layer)
        linear = Call("feed_forward", layer, closes=True)
        super().__init__(inner, (*inner.calls[:place], linear, *inner.calls[place + replaced :]))
        self.cell, self.place, self.replaced = cell, place, replaced

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """As before, but for the linear layer: see the class."""
        if index == self.place:
            return torch.cat(state, -1) if self.cell == "map" else self.inner.stream(state)
        return self.inner.read(state, self._before(index), context)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """As before, but for the linear layer: its output is the layer's."""
        if index != self.place:
            return self.inner.write(state, self._before(index), read, output, context)
        if self.cell == "map":
            return output.chunk(len(state), -1)
        return self.inner.with_stream(state, output)

    def _before(self, index: int) -> int:
        """The number that a call had in the connection as it was."""
        return index if index < self.place else index + self.replaced - 1


class LayerTap(ConnectionWrapper):
    """A connection that keeps what enters and what leaves some of its layers in the latest pass.

    Attributes:
        before, after: By layer (from 0), the tensors that pass between layers, `[B, T, d]` each.
    """

    def __init__(self, inner: Connection, layers: Sequence[int]) -> None:
        super().__init__(inner)
        places = {layer: _place(inner, layer) for layer in layers}
        self._first = {place: layer for layer, (place, _) in places.items()}
        self._last = {place + count - 1: layer for layer, (place, count) in places.items()}
        self.before: dict[int, DepthState] = {}
        self.after: dict[int, DepthState] = {}

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """As before."""
        if index in self._first:
            self.before[self._first[index]] = self._passed(state)
        return self.inner.read(state, index, context)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """As before."""
        state = self.inner.write(state, index, read, output, context)
        if index in self._last:
            self.after[self._last[index]] = self._passed(state)
        return state

    def _passed(self, state: DepthState) -> DepthState:
        """The tensors between layers, the stream first."""
        return (self.inner.stream(state), *state[1:])


class _ForAllLanguages(nn.Module):
    """A linear map in the place of a feed-forward network."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: Tensor, _context: Context) -> Tensor:
        """Map `[B, T, d]`, the same for all target languages."""
        mapped: Tensor = self.linear(x)
        return mapped


def linearised(
    model: TranslationModel, side: Side, layer: int, linear: nn.Linear, cell: Cell = "carry"
) -> TranslationModel:
    """The model with one layer (from 1) replaced by `linear`; all other parameters are shared with `model`.

    It translates, scores and decodes step by step as any model does. The map has `width(model, side, cell)`
    features in and out.

    Raises:
        UsageError: There is no such layer, or no cell to map.
    """
    stack = model.stack(side)
    check_layer(stack, side, layer)
    if linear.in_features != (wanted := width(model, side, cell)) or linear.out_features != wanted:
        raise ValueError(f"the map must be {wanted} x {wanted}")
    modules: list[nn.Module] = list(stack.feed_forwards) or [NoNorm() for _ in range(stack.depth)]
    modules[layer - 1] = _ForAllLanguages(linear)
    connection = OneLayerLinear(stack.connection, layer - 1, cell)
    return model.with_stacks(**{side: stack.with_parts(connection=connection, feed_forwards=modules)})


def width(model: TranslationModel, side: Side, cell: Cell) -> int:
    """Features of what the linear map reads: the stream, or all tensors of its width that pass on.

    Raises:
        UsageError: Layers above read what a layer made inside; or nothing passes between layers but the
            stream, or something that is not of its shape.
    """
    mixer = model.config.stack(side).mixer
    if mixer.reads_below:
        raise UsageError(
            f"no layer of the {side} can be replaced: {side}.mixer {mixer.type} reads what the layers below "
            "made"
        )
    state = _passed_on(model, side)
    stream = model.stack(side).connection.stream(state)
    if cell == "carry":
        return stream.size(-1)
    if not has_cell(model, side):
        raise UsageError(
            f"cell map: the layers of the {side} pass on nothing but the stream; they have no cell",
            "leave the cell setting out",
        )
    if any(each.shape != stream.shape for each in state):
        raise UsageError(f"cell map: what the layers of the {side} pass on is not all of one width")
    return stream.size(-1) * len(state)


def has_cell(model: TranslationModel, side: Side) -> bool:
    """Whether anything passes from layer to layer besides the stream, which may have several parts itself."""
    state = _passed_on(model, side)
    return len(state) > 1 and model.stack(side).connection.stream(state) is state[0]


def _passed_on(model: TranslationModel, side: Side) -> DepthState:
    """The tensors between layers, of one position, `[1, 1, d]` each."""
    example = next(model.parameters()).new_zeros(1, 1, model.config.size(side)[0])
    # Norms may be those of target languages; all of them give the same shapes, so any language will do.
    languages = torch.zeros(1, dtype=torch.long, device=example.device)
    return model.stack(side).connection.start(example, Context(languages))


def _place(connection: Connection, layer: int) -> tuple[int, int]:
    """Number of the first call of a layer (from 0), and how many calls it has; they follow each other."""
    calls = [index for index, call in enumerate(connection.calls) if call.layer == layer]
    return calls[0], len(calls)


@dataclass(frozen=True)
class Fit:
    """A fitted map.

    Attributes:
        linear: The map.
        explained: Share of the variance of the layer's output that it explains, at most 1; nan where the
            output does not vary.
        positions: Positions that it was fitted on.
    """

    linear: nn.Linear
    explained: float
    positions: int


class LeastSquares:
    """The map W x + b that is nearest to y, for pairs that come in batches; only sums are kept."""

    def __init__(self, inputs: int, outputs: int, device: torch.device) -> None:
        self.positions = 0
        self._gram = torch.zeros(inputs + 1, inputs + 1, dtype=torch.float64, device=device)
        self._cross = torch.zeros(inputs + 1, outputs, dtype=torch.float64, device=device)
        self._squares = torch.zeros(outputs, dtype=torch.float64, device=device)

    def add(self, x: Tensor, y: Tensor) -> None:
        """Take in pairs, `[N, inputs]` and `[N, outputs]`."""
        x, y = x.double(), y.double()
        x = torch.cat((x, x.new_ones(len(x), 1)), -1)
        self._gram += x.t() @ x
        self._cross += x.t() @ y
        self._squares += y.square().sum(0)
        self.positions += len(x)

    def solve(self) -> Fit:
        """The map with the least sum of squared errors; of several, the one with the smallest weights."""
        solution = torch.linalg.pinv(self._gram, hermitian=True) @ self._cross
        linear = nn.Linear(len(solution) - 1, solution.size(1), device=solution.device)
        with torch.no_grad():
            linear.weight.copy_(solution[:-1].t())
            linear.bias.copy_(solution[-1])
        mean = self._cross[-1] / max(self.positions, 1)
        spread = (self._squares - self.positions * mean.square()).sum()
        wrong = (self._squares - 2 * (solution * self._cross).sum(0)).sum()
        wrong = wrong + (solution * (self._gram @ solution)).sum()
        return Fit(linear, float(1 - wrong / spread) if spread > 0 else float("nan"), self.positions)


@torch.no_grad()
def match(
    model: TranslationModel,
    side: Side,
    layers: Sequence[int],
    updates: Iterable[DeviceUpdate],
    cell: Cell = "carry",
) -> dict[int, Fit]:
    """For each layer (from 1) the map nearest to its output by mean squared error, exactly, in one pass.

    The layer reads what it reads in the model as it is. With `cell` "map" the layer's new cell is matched
    too.

    Raises:
        UsageError: There is no cell to map.
    """
    numbers = [layer - 1 for layer in layers]
    stack = model.stack(side)
    tap = LayerTap(stack.connection, numbers)
    watched = model.with_stacks(**{side: stack.with_parts(connection=tap)}).eval()
    size = width(model, side, cell)
    device = next(model.parameters()).device
    sums = {number: LeastSquares(size, size, device) for number in numbers}
    for update in updates:
        for batch in update.batches:
            if side == "encoder" and isinstance(watched, EncoderDecoder):
                watched.encode(batch.source, languages=batch.languages)
            else:
                watched.decode(batch.source, batch.target_input, languages=batch.languages)
            real = watched.reads(batch.source, batch.target_input)[side] != model.pad_id
            for number, least in sums.items():
                x, y = (_passed(state, cell)[real] for state in (tap.before[number], tap.after[number]))
                least.add(x, y)
    return {number + 1: least.solve() for number, least in sums.items()}


def train_on_translation(
    model: TranslationModel,
    side: Side,
    layer: int,
    linear: nn.Linear,
    updates: Sequence[DeviceUpdate] | Iterator[DeviceUpdate],
    *,
    count: int,
    rate: float,
    smoothing: tuple[float, SmoothingForm],
    cell: Cell = "carry",
) -> list[float]:
    """Train the map in place of a layer (from 1) by the translation loss, everything else frozen.

    `linear` is where it begins, and is changed in place; the model stays as it is. It takes `count` steps of
    Adam, at a rate that falls from `rate` to nothing along half a cosine.

    Returns:
        Smoothed loss a target token of each step, nats.
    """
    changed = linearised(model, side, layer, linear, cell).eval()
    schedule = CosineConfig(peak=rate, warmup=0).build(d_model=model.config.d_model, max_updates=count)
    losses = []
    with _only(changed, linear):
        strategy = ParallelStrategy(changed, ProcessGroup())
        learning = dict(linear.named_parameters())
        optimizer = Optimizer(learning.items(), [Adam(learning, AdamWConfig(), strategy)], 1.0, strategy)
        for number, update in zip(range(1, count + 1), updates, strict=False):
            optimizer.zero_grad()
            total = linear.weight.new_zeros(())
            for batch in update.batches:
                sides = (batch.source, batch.target_input, batch.target_output)
                sums = changed.loss(*sides, *smoothing, languages=batch.languages)
                loss = sums.smoothed / update.target_tokens
                torch.autograd.backward(loss)
                total += loss.detach()
            optimizer.step(schedule(number), total)
            losses.append(total.item())
    return losses


@contextmanager
def _only(model: TranslationModel, learning: nn.Module) -> Iterator[None]:
    """Let gradients reach one part of a model alone."""
    before = [(parameter, parameter.requires_grad) for parameter in model.parameters()]
    model.requires_grad_(False)
    learning.requires_grad_(True)
    try:
        yield
    finally:
        for parameter, needed in before:
            parameter.requires_grad_(needed)
            parameter.grad = None


def _passed(state: Sequence[Tensor], cell: Cell) -> Tensor:
    return torch.cat(tuple(state), -1) if cell == "map" else state[0]


class _Finished:
    """Measured numbers by name, each in a file; those measured with other settings count as not there."""

    def __init__(self, folder: Path, settings: Mapping[str, str]) -> None:
        self._folder, self._settings = folder, dict(settings)

    def get(self, name: str) -> dict[str, float] | None:
        try:
            stored = read_json(self._folder / f"{name}.json")
        except (ModelError, OSError):
            return None
        record = stored.get("record")
        if stored.get("settings") != self._settings or not isinstance(record, dict):
            return None
        return {key: math.nan if value is None else float(value) for key, value in record.items()}

    def put(self, name: str, numbers: Mapping[str, float]) -> None:
        with disk_errors(self._folder):
            self._folder.mkdir(parents=True, exist_ok=True)
        record = {key: None if math.isnan(value) else value for key, value in numbers.items()}
        write_json(self._folder / f"{name}.json", {"settings": self._settings, "record": record})


Reading = Literal["match", "translation"]
READINGS: tuple[Reading, Reading] = ("match", "translation")
_HOW: dict[Reading, str] = {
    "match": "fitted to the layer's output by least squares",
    "translation": "trained by the translation loss, from the least-squares map on",
}


@dataclass(frozen=True)
class LinearisationSettings:
    """The readings to measure, and how long to train.

    Attributes:
        readings: Of the preprint's "trained to distil": fit the layer's output, or train by the loss.
        cell: What happens to a cell that passes between layers: goes past the layer, or is mapped too.
        updates: Updates of training text that are read: for the fit, and by the training.
        batch_tokens: Target tokens of an update.
        rate: First learning rate of the training.
        seed: Of the order of the text.
        sides: Encoder, decoder or both.
        layers: Layers of each side, from 1; None for all.
    """

    readings: tuple[Reading, ...] = READINGS
    cell: Cell = "carry"
    updates: int = 200
    batch_tokens: int = 4096
    rate: float = 1e-3
    seed: int = 1
    sides: tuple[Side, ...] = SIDES
    layers: tuple[int, ...] | None = None

    @property
    def shown(self) -> dict[str, str]:
        """The settings that decide the numbers of a layer, by name."""
        values = asdict(self)
        return {name: str(values[name]) for name in ("cell", "updates", "batch_tokens", "rate", "seed")}

    def layers_of(self, scorer: Scorer, side: Side) -> list[int]:
        """The layers to replace, one at a time.

        Raises:
            UsageError: The stack has no such layer, or no cell to map.
        """
        width(scorer.model, side, self.cell)
        stack = scorer.model.stack(side)
        for layer in self.layers or ():
            check_layer(stack, side, layer)
        return list(self.layers or range(1, stack.depth + 1))


@dataclass(frozen=True)
class LayerScore:
    """BLEU with one layer linear.

    Attributes:
        explained: Share of the variance of the layer's output that the least-squares map explains.
        loss: Smoothed loss a target token at the end of the training, nats; nan for `match`.
    """

    side: Side
    layer: int
    reading: Reading
    bleu: float
    explained: float
    loss: float

    def change(self, whole: float) -> float:
        """Relative change of BLEU, in percent of that of the whole model."""
        return 100 * (self.bleu - whole) / whole if whole else math.nan


def layer_scores(
    scorer: Scorer,
    text: TrainingText,
    settings: LinearisationSettings,
    folder: Path,
    tell: LogFn,
) -> tuple[float, list[LayerScore]]:
    """BLEU of the whole model, and with each layer linear.

    What is done lies in `folder`; a call with the same model, text and settings goes on from there.

    Raises:
        UsageError: There is no such layer, or no cell to map.
    """
    layers = {side: settings.layers_of(scorer, side) for side in present(scorer.model, settings.sides)}
    done = _Finished(folder, _decisive(scorer, text, settings))
    if (record := done.get("whole")) is None:
        record = {"bleu": scorer.bleu(scorer.model)}
        done.put("whole", record)
    whole = record["bleu"]
    tell(f"whole model: BLEU {whole:.2f}")
    scores = []
    for side, numbers in layers.items():
        wanted = {
            (layer, reading): f"{side}-{layer}-{reading}"
            for layer in numbers
            for reading in settings.readings
        }
        records = {key: done.get(name) for key, name in wanted.items()}
        missing = [key for key, record in records.items() if record is None]
        for (layer, reading), record in _measure(scorer, text, settings, side, missing, tell):
            done.put(wanted[layer, reading], record)
            records[layer, reading] = record
            bleu = record["bleu"]
            change = f" ({100 * (bleu - whole) / whole:+.2f} %)" if whole else ""  # no share of nothing
            tell(f"{side} layer {layer}, {reading}: BLEU {bleu:.2f}{change}")
        for (layer, reading), record in sorted(records.items()):
            assert record is not None
            numbers_of = record["bleu"], record["explained"], record["loss"]
            scores.append(LayerScore(side, layer, reading, *numbers_of))
    return whole, scores


def _measure(
    scorer: Scorer,
    text: TrainingText,
    settings: LinearisationSettings,
    side: Side,
    wanted: Sequence[tuple[int, Reading]],
    tell: LogFn,
) -> Iterator[tuple[tuple[int, Reading], dict[str, float]]]:
    """The missing scores of one side, as they are found."""
    if not wanted:
        return
    layers = sorted({layer for layer, _ in wanted})
    tell(f"{side}: fitting {len(layers)} maps on {settings.updates} updates")
    fits = match(scorer.model, side, layers, _updates(scorer, text, settings), settings.cell)
    training = text.config.training
    for layer, reading in wanted:
        linear, loss = deepcopy(fits[layer].linear), math.nan
        if reading == "translation":
            losses = train_on_translation(
                scorer.model,
                side,
                layer,
                linear,
                _updates(scorer, text, settings),
                count=settings.updates,
                rate=settings.rate,
                smoothing=(training.label_smoothing, training.label_smoothing_form),
                cell=settings.cell,
            )
            tail = losses[-max(1, len(losses) // 10) :]
            loss = sum(tail) / len(tail)
        changed = linearised(scorer.model, side, layer, linear, settings.cell).eval()
        yield (
            (layer, reading),
            {"bleu": scorer.bleu(changed), "explained": fits[layer].explained, "loss": loss},
        )


def _updates(scorer: Scorer, text: TrainingText, settings: LinearisationSettings) -> Iterator[DeviceUpdate]:
    stream = text.updates(scorer.loaded.device, batch_tokens=settings.batch_tokens, seed=settings.seed)
    return islice(stream, settings.updates)


def _decisive(scorer: Scorer, text: TrainingText, settings: LinearisationSettings) -> dict[str, str]:
    """Everything that decides a layer's numbers; which layers are looked at does not."""
    training = text.config.training
    return {
        "model": scorer.source.digest,
        "training text": text.prepared.digest,
        "label smoothing": f"{training.label_smoothing} ({training.label_smoothing_form})",
        **scorer.settings,
        **settings.shown,
    }


def linearisation_finding(
    scorer: Scorer, settings: LinearisationSettings, whole: float, scores: Sequence[LayerScore]
) -> Finding:
    """The scores, at least one, as tables and bars."""
    columns = ["stack", "layer", "reading", "BLEU .2", "change [%] .2", "explained variance [%] .1"]
    rows = [
        (each.side, each.layer, each.reading, each.bleu, each.change(whole), 100 * each.explained, each.loss)
        for each in scores
    ]
    return Finding(
        analysis="linearise",
        title=f"One layer at a time replaced by a linear map: {scorer.name}",
        measured="A layer y = f(x) becomes y = W x + b, one layer at a time, and W and b are trained on the "
        "training set with everything else frozen and without dropout (2020 preprint of the depth-wise LSTM "
        "paper, section 4). The preprint does not name the loss; readings here: "
        f"{'; '.join(f'{reading}: {_HOW[reading]}' for reading in settings.readings)}. The linear layer sees "
        "one position only: it has no self-attention and, in the decoder, no cross-attention. The change is "
        "that of BLEU relative to the whole model.",
        tables=[
            Table(
                title="BLEU with one layer linear",
                columns=[*columns, "training loss, smoothed [nats/token] .3"],
                rows=[("whole model", None, None, whole, 0.0, None, None), *rows],
            )
        ],
        figures=[
            _bars(side, whole, [score for score in scores if score.side == side])
            for side in SIDES
            if any(score.side == side for score in scores)
        ],
        notes=_notes(scorer, settings),
        provenance=provenance(
            (scorer.source,), (scorer.pairs.description,), scorer.settings | settings.shown
        ),
    )


def _bars(side: Side, whole: float, scores: Sequence[LayerScore]) -> BarChart:
    layers = sorted({score.layer for score in scores})
    values = {(score.layer, score.reading): score.change(whole) for score in scores}
    readings = [reading for reading in READINGS if any(score.reading == reading for score in scores)]
    how = "; ".join(f"{reading}: {_HOW[reading]}" for reading in readings)
    return BarChart(
        name=side,
        title=f"Change of BLEU with one linear {side} layer",
        caption=f"Of {whole:.2f} BLEU of the whole model; below zero is a loss. {how}.",
        x=f"{side} layer",
        y="change of BLEU [%]",
        categories=map(str, layers),
        series=[
            Series(name=reading, y=[values.get((layer, reading)) for layer in layers]) for reading in readings
        ],
    )


def _notes(scorer: Scorer, settings: LinearisationSettings) -> Iterator[str]:
    yield f"Each map saw {settings.updates} updates of about {settings.batch_tokens} target tokens."
    if any(has_cell(scorer.model, side) for side in present(scorer.model, settings.sides)):
        yield "The layers of this model pass on a cell beside their output. " + (
            "The map gives both, from both."
            if settings.cell == "map"
            else "The map gives the output; the cell goes past the layer unchanged. The preprint does not "
            "say what it did; --cell map is the other choice."
        )
