"""Weights over depth that depend on the text, followed through a stack and averaged over the words of a text.

Connections and aggregations say how they mix the parts of their state at each position (`mixing`). What a
sub-layer reads of each output below it follows from all mixes in between, position by position.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import cast

import torch
from torch import Tensor

from deepwire.lab.subject.model_and_text import PairBatch
from deepwire.model.aggregations.aggregation import Aggregation, History
from deepwire.model.aggregations.mudd import MUDD
from deepwire.model.connections.connection import Connection, ConnectionWrapper, DepthState
from deepwire.model.context import Context
from deepwire.model.introspection import (
    DepthWeights,
    composite_norms,
    of_composite_mixes,
    of_layer_inputs,
    of_sublayers,
)
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel

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
def text_weights(
    model: TranslationModel, batches: Iterable[PairBatch]
) -> Iterator[tuple[Side, DepthWeights]]:
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
    """The mean over words of numbers `[..., B or 1, T or 1]`."""

    def __init__(self) -> None:
        self._sum: Tensor | float = 0.0
        self._count = 0

    def add(self, numbers: Tensor, words: Tensor) -> None:
        """Take in those of one batch, `words` being `[B, T]`."""
        self._sum = self._sum + of_words(numbers, words).double().sum(-1)
        self._count += int(words.sum())

    @property
    def value(self) -> Tensor:
        """`[...]`."""
        return torch.as_tensor(self._sum) / max(self._count, 1)


def of_words(numbers: Tensor, words: Tensor) -> Tensor:
    """`[..., B or 1, T or 1]` at the real tokens, `[..., n]`."""
    return numbers.expand(*numbers.shape[:-2], *words.shape)[..., words]


class _Follower(ConnectionWrapper):
    """A connection beside which the weights of all outputs in the parts of its state are carried.

    Attributes:
        words: Which tokens of the batch are real, `[B, T]`.
    """

    words: Tensor

    def __init__(self, inner: Connection) -> None:
        super().__init__(inner)
        self._rows = [_Mean() for _ in range(len(inner.calls) + 1)]
        self._norms = _Mean()
        self._seen = False
        # Of every output in every part, [P, R, outputs so far, B, T]: R parts of an output.
        self._carried: Tensor | None = None
        self._mixes: list[Tensor] = []
        self._next = 0

    def start(self, x: Tensor, context: Context) -> DepthState:
        """The weights of the embedding alone."""
        self._carried, self._mixes, self._next = None, [], 0
        return self.inner.start(x, context)

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """As before."""
        self._follow(state, index)
        return self.inner.read(state, index, context)

    def result(self, state: DepthState, context: Context) -> Tensor:
        """As before."""
        if self._next == len(self.calls):
            self._follow(state, self._next)
        return self.inner.result(state, context)

    def found(self) -> Iterator[DepthWeights]:
        """The means, where there were weights."""
        if not self._seen:
            return
        values = torch.full((len(self._rows),) * 2, float("nan"), dtype=torch.float64)
        for number, row in enumerate(self._rows):
            values[number, : number + 1] = row.value
        title = "Outputs of sub-layers in what each sub-layer reads"
        yield of_sublayers(values, key="mixing", title=f"{title}, {MEAN}")
        norms = self._norms.value
        if norms.dim():
            yield of_composite_mixes(
                norms, key="composite-mix-of-text", title=f"Norms, {MEAN}, of the mix of parts"
            )

    def _follow(self, state: DepthState, index: int) -> None:
        mixing = self.inner.mixing(state, index)
        if mixing is None:
            return
        self._seen, self._next = True, index + 1
        read = mixing.read.double()
        if self._carried is None:
            self._carried = _of_the_embedding(*read.shape[:2]).to(read.device)
        seen = torch.einsum("rpbt,pscbt->rscbt", read, self._carried)
        # Of an output in parts the size of the matrix between its parts and those that are read.
        size = seen[0, 0] if len(read) == 1 else seen.square().sum((0, 1)).sqrt() / len(read) ** 0.5
        self._rows[index].add(size, self.words)
        if mixing.write is None:
            self._end()
        else:
            self._write(mixing.write.double(), read.size(1))

    def _write(self, write: Tensor, parts: int) -> None:
        assert self._carried is not None
        old = torch.einsum("qpbt,pscbt->qscbt", write[:, :parts], self._carried)
        new = write[:, parts:].unsqueeze(2)
        positions = max(old.shape[3:], new.shape[3:], key=lambda shape: shape.numel())
        self._carried = torch.cat([each.expand(*each.shape[:3], *positions) for each in (old, new)], 2)
        self._mixes.append(of_words(write[:, :parts], self.words))

    def _end(self) -> None:
        sizes = {mix.shape[:2] for mix in self._mixes}
        if sizes and all(rows == columns > 1 for rows, columns in sizes):
            norms = composite_norms(self._mixes)
            # The mean of this batch counts for each of its words.
            self._norms.add(norms[..., None, None], self.words)


def _of_the_embedding(read: int, parts: int) -> Tensor:
    """Every part is the embedding, or where parts are read each of them its own part of it."""
    weights = torch.ones(parts, 1) if read == 1 else torch.eye(parts)
    return weights.double().view(parts, read, 1, 1, 1)


class _Tap(Aggregation):
    """An aggregation that shows the weights of its sums."""

    words: Tensor

    def __init__(self, inner: Aggregation) -> None:
        super().__init__()
        self.inner, self.acts = inner, inner.acts
        self._rows: dict[tuple[str, int], _Mean] = {}

    def start(self, x: Tensor, context: Context) -> tuple[History, Tensor]:
        """As before."""
        return self.inner.start(x, context)

    def close(self, history: History, output: Tensor, layer: int, context: Context) -> tuple[History, Tensor]:
        """As before."""
        mixing = self.inner.mixing(output, layer)
        if mixing is not None:
            ways = mixing.read
            for name, way in zip(_WAYS[-len(ways) :], ways, strict=True):
                self._rows.setdefault((name, layer), _Mean()).add(way, self.words)
        return self.inner.close(history, output, layer, context)

    def inputs(self, history: History, layer: int, context: Context) -> tuple[Tensor, ...]:
        """As before; of MUDD."""
        return cast("MUDD", self.inner).inputs(history, layer, context)

    def found(self) -> Iterator[DepthWeights]:
        """The means, by what is read."""
        for name in _WAYS:
            rows = {layer: mean.value for (way, layer), mean in self._rows.items() if way == name}
            if rows:
                yield _of_sums(name, rows)


def _of_sums(name: str, rows: dict[int, Tensor]) -> DepthWeights:
    size = max(rows) + 2
    values = torch.full((size - 1, size), float("nan"), dtype=torch.float64)
    for layer, row in rows.items():
        values[layer, : len(row)] = row
    return of_layer_inputs(f"sums-{name}", values, title=f"Weights ({MEAN}; {name})")
