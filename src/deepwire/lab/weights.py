"""Connection weights: how much a model takes from each depth, now and over its training.

Wang et al. 2019, Fig. 5 (DLCL, and its rule for what is left blank); Yang et al. 2022, Fig. 8 and 9 (GTrans).
Parts of a model return their weights by `depth_weights`; this module knows none of the parts by name.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import starmap
from pathlib import Path
from typing import cast

import torch
from torch import Tensor

from deepwire.data.languages import Direction
from deepwire.decoding.model_loading import languages_of
from deepwire.errors import DataError, UsageError
from deepwire.lab.finding import BarChart, Figure, Finding, HeatMap, LineChart, Series, provenance
from deepwire.lab.subject import AnalysedModel, ReadText, open_model, repeating, run_of, text_for
from deepwire.model.aggregations.aggregation import Aggregation, History
from deepwire.model.aggregations.mudd import MUDD
from deepwire.model.connections.connection import Connection, ConnectionWrapper, DepthState
from deepwire.model.context import Context
from deepwire.model.introspection import (
    OF_SUBLAYERS,
    TARGET_LANGUAGE,
    DepthWeights,
    of_layer_inputs,
    of_sublayers,
)
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel
from deepwire.training.device import DeviceBatch
from deepwire.training.log import read_records

_MEASURED_ON_TEXT = (
    "; and what the text decides, as the mean over the words of a text that the model reads, the decoder "
    "with the reference as its past."
)


_OfStack = tuple[Side, DepthWeights]


def analyse_weights(
    model: str,
    source: Path | None = None,
    reference: Path | None = None,
    sentences: int | None = 500,
    device: str = "cpu",
    direction: Direction | None = None,
) -> Finding:
    """The weights that a model gives to its depths; those that depend on a text are averaged over it.

    For the text see `text_for`. For a run directory, weights over training are shown too: those recorded
    (``training.record.depth_weights``).

    Raises:
        UsageError: The model has no such weights, or they depend on a text that is not there or does not fit.
        DataError: A text cannot be read.
        ModelError: There is no such model, or it is damaged.
    """
    subject = open_model(model, device)
    network, languages = subject.loaded.model, languages_of(subject.loaded)
    text, missing = _text_to_read(subject, source, reference, sentences, direction)
    stacks = network.stacks().items()
    weights: list[_OfStack] = [(side, each) for side, stack in stacks for each in stack.depth_weights()]
    if text is not None:
        weights += text_weights(network, text.batches)
    if not weights:
        raise UsageError(
            f"{model}: nothing in it weighs one depth against another"
            + (f" without a text ({missing})" if missing else ""),
            "DLCL, GTrans, MUDD, lanes, attention residuals, transparent attention, MLRF (linear, "
            "feed_forward), ReZero and Runge-Kutta blocks of learned combination have such weights; for "
            f"gates see {shlex.join(['deepwire', 'analyze', 'gates', model])}",
        )
    if languages is not None:
        weights = [
            (side, replace(each, rows=languages.names) if each.row_axis == TARGET_LANGUAGE else each)
            for side, each in weights
        ]
    run = run_of(model)
    records = [] if run is None else read_records(run.depth_weights)
    return Finding(
        analysis="weights",
        title=f"Connection weights of {model}",
        measured="The numbers by which the model weighs what comes from different depths, read from its "
        f"parameters{_MEASURED_ON_TEXT if text else ': no text is involved.'}",
        figures=[*starmap(_figure, weights), *_over_training(weights, records)],
        notes=_notes(weights, network, missing),
        provenance=provenance([subject.source], [text.description] if text else ()),
    )


def _notes(weights: Sequence[_OfStack], model: TranslationModel, missing: str) -> Iterator[str]:
    if any(each.values.shape[2:].numel() > 1 for _, each in weights):
        yield "A pair of depths has several weights (one a feature, or some); their mean is shown."
    for side, stack in model.stacks().items():
        axes = {each.column_axis for of_side, each in weights if of_side == side}
        if stack.aggregation.acts and OF_SUBLAYERS in axes:
            yield f"Weights of sub-layers of the {side} leave out what its aggregation adds."
    if missing:
        yield f"What depends on the text is left out: {missing}."


def _text_to_read(
    subject: AnalysedModel,
    source: Path | None,
    reference: Path | None,
    sentences: int | None,
    direction: Direction | None,
) -> tuple[ReadText | None, str]:
    """The text to read if weights depend on it, or the reason why they are left out."""
    if not depends_on_text(subject.loaded.model):
        return None, ""
    if reason := repeating(subject.loaded.model):
        return None, reason
    try:
        return text_for(subject, source, reference, sentences, direction), ""
    except (UsageError, DataError) as error:
        if (source, reference, direction) != (None, None, None):
            raise
        return None, str(error)


def _title(side: str, weights: DepthWeights) -> str:
    return f"{side.capitalize()}: {weights.title[0].lower()}{weights.title[1:]}"


def _figure(side: str, weights: DepthWeights) -> Figure:
    """Weights as plain numbers; the mean where a pair of depths has several."""
    values = weights.values.detach().float().cpu()
    rows = (values.mean(-1) if values.dim() > 2 else values).tolist()
    if len(weights.rows) == 1:
        return BarChart(
            name=f"{side}-{weights.key}",
            title=_title(side, weights),
            x=weights.column_axis,
            y=weights.value,
            categories=weights.columns,
            series=[Series(name=weights.value, y=rows[0])],
        )
    return HeatMap(
        name=f"{side}-{weights.key}",
        title=_title(side, weights),
        row_axis=weights.row_axis,
        column_axis=weights.column_axis,
        value=weights.value,
        rows=weights.rows,
        columns=weights.columns,
        values=rows,
    )


def _over_training(
    stacks: Sequence[_OfStack], records: Sequence[Mapping[str, object]]
) -> Iterator[LineChart]:
    """The last row of weights over the updates of their records, one line for each column."""
    for side, weights in stacks:
        rows: dict[int, list[float | None]] = {}
        for record in records:
            match record.get("update"), record.get(f"{side}.{weights.key}"):
                case int(update), [*_, list(row)] if len(row) == len(weights.columns):
                    rows[update] = [value if isinstance(value, float) else None for value in row]
        if len(rows) < 2:
            continue
        last = f"The last row of the matrix: {weights.row_axis} {weights.rows[-1]}."
        yield LineChart(
            name=f"{side}-{weights.key}-over-training",
            title=f"{_title(side, weights)}, over training",
            caption="" if len(weights.rows) == 1 else last,
            x="update",
            y=weights.value,
            series=[
                Series(name=column, x=list(rows), y=[row[number] for row in rows.values()])
                for number, column in enumerate(weights.columns)
            ],
            legend=weights.column_axis,
            ordered=True,
        )


MEAN = "mean over the text"
_WAYS = ("queries", "keys", "values", "stream")


def depends_on_text(model: TranslationModel) -> bool:
    """Whether any stack has weights over depth that are not the same for every text."""
    return any(
        type(stack.connection).mixing is not Connection.mixing
        or type(stack.aggregation).mixing is not Aggregation.mixing
        for stack in model.stacks().values()
    )


@torch.inference_mode()
def text_weights(model: TranslationModel, batches: Iterable[DeviceBatch]) -> Iterator[_OfStack]:
    """Let a model read text, the reference as the decoder's past, and average what weighs its depths.

    Padding is left out. A stack all of whose weights are the same for every text gives nothing.
    """
    followers = {side: _Follower(stack.connection) for side, stack in model.stacks().items()}
    taps = {side: _Tap(stack.aggregation) for side, stack in model.stacks().items()}
    stacks = {
        side: stack.with_parts(connection=followers[side], aggregation=taps[side])
        for side, stack in model.stacks().items()
    }
    followed = model.with_stacks(**stacks)
    for batch in batches:
        for side, tokens in model.reads(batch.source, batch.target_input).items():
            followers[side].words = taps[side].words = tokens != model.pad_id
        followed.decode(batch.source, batch.target_input, languages=batch.languages)
    for side in stacks:
        yield from ((side, weights) for weights in (*followers[side].found(), *taps[side].found()))


class _Mean:
    """The mean `[...]` over words of numbers `[..., B or 1, T or 1]`, `words` being `[B, T]`."""

    def __init__(self) -> None:
        self._sum: Tensor | float = 0.0
        self._count = 0

    def add(self, numbers: Tensor, words: Tensor) -> None:
        of_words = numbers.expand(*numbers.shape[:-2], *words.shape)[..., words]
        self._sum = self._sum + of_words.double().sum(-1)
        self._count += int(words.sum())

    @property
    def value(self) -> Tensor:
        return torch.as_tensor(self._sum) / max(self._count, 1)


class _Follower(ConnectionWrapper):
    """A connection beside which the weights of all outputs in the parts of its state are carried.

    Attributes:
        words: Which tokens of the batch are real, `[B, T]`.
    """

    words: Tensor

    def __init__(self, inner: Connection) -> None:
        super().__init__(inner)
        self._rows = [_Mean() for _ in range(len(inner.calls) + 1)]
        self._seen = False
        # Of every output in every part, [P, R, outputs so far, B, T]: R parts of an output.
        self._carried: Tensor | None = None
        self._next = 0

    def start(self, x: Tensor, context: Context) -> DepthState:
        self._carried, self._next = None, 0
        return self.inner.start(x, context)

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        self._follow(state, index)
        return self.inner.read(state, index, context)

    def result(self, state: DepthState, context: Context) -> Tensor:
        if self._next == len(self.calls):
            self._follow(state, self._next)
        return self.inner.result(state, context)

    def found(self) -> Iterator[DepthWeights]:
        if not self._seen:
            return
        values = torch.full((len(self._rows),) * 2, float("nan"), dtype=torch.float64)
        for number, row in enumerate(self._rows):
            values[number, : number + 1] = row.value
        title = "Outputs of sub-layers in what each sub-layer reads"
        yield of_sublayers(values, key="mixing", title=f"{title}, {MEAN}")

    def _follow(self, state: DepthState, index: int) -> None:
        mixing = self.inner.mixing(state, index)
        if mixing is None:
            return
        self._seen, self._next = True, index + 1
        read = mixing.read.double()
        parts = read.size(1)
        if self._carried is None:  # every part is the embedding, or where parts are read its own part of it
            begin = torch.ones(parts, 1) if len(read) == 1 else torch.eye(parts)
            self._carried = begin.to(read).view(parts, len(read), 1, 1, 1)
        seen = torch.einsum("rpbt,pscbt->rscbt", read, self._carried)
        # Of an output in parts the size of the matrix between its parts and those that are read.
        size = seen[0, 0] if len(read) == 1 else seen.square().sum((0, 1)).sqrt() / len(read) ** 0.5
        self._rows[index].add(size, self.words)
        if mixing.write is not None:
            write = mixing.write.double()
            old = torch.einsum("qpbt,pscbt->qscbt", write[:, :parts], self._carried)
            new = write[:, parts:].unsqueeze(2)
            positions = max(old.shape[3:], new.shape[3:], key=lambda shape: shape.numel())
            self._carried = torch.cat([each.expand(*each.shape[:3], *positions) for each in (old, new)], 2)


class _Tap(Aggregation):
    """An aggregation that shows the weights of its sums."""

    words: Tensor

    def __init__(self, inner: Aggregation) -> None:
        super().__init__()
        self.inner, self.acts = inner, inner.acts
        self._rows: dict[tuple[str, int], _Mean] = {}

    def start(self, x: Tensor, context: Context) -> tuple[History, Tensor]:
        return self.inner.start(x, context)

    def close(self, history: History, output: Tensor, layer: int, context: Context) -> tuple[History, Tensor]:
        mixing = self.inner.mixing(output, layer)
        if mixing is not None:
            ways = mixing.read
            for name, way in zip(_WAYS[-len(ways) :], ways, strict=True):
                self._rows.setdefault((name, layer), _Mean()).add(way, self.words)
        return self.inner.close(history, output, layer, context)

    def inputs(self, history: History, layer: int, context: Context) -> tuple[Tensor, ...]:
        return cast("MUDD", self.inner).inputs(history, layer, context)

    def found(self) -> Iterator[DepthWeights]:
        for name in _WAYS:
            rows = {layer: mean.value for (way, layer), mean in self._rows.items() if way == name}
            if rows:
                size = max(rows) + 2
                values = torch.full((size - 1, size), float("nan"), dtype=torch.float64)
                for layer, row in rows.items():
                    values[layer, : len(row)] = row
                yield of_layer_inputs(f"sums-{name}", values, title=f"Weights ({MEAN}; {name})")
