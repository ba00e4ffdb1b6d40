"""One layer of a trained model replaced by a linear map of what enters it.

Section 4 of the 2020 preprint of the depth-wise LSTM paper (Xu et al. 2020, Rewiring the Transformer with
Depth-Wise LSTMs, Eq. 11 and 12): y = f(x) becomes y = W x + b. The map sees one position only, so the layer
loses its attention, cross-attention included, together with all that is not linear in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import torch
from torch import Tensor, nn

from deepwire.errors import UsageError
from deepwire.lab.subject.model_and_text import check_layer
from deepwire.model.connections.connection import Call, Connection, ConnectionWrapper, DepthState
from deepwire.model.context import Side
from deepwire.model.layers import NoNorm
from deepwire.model.translation_model import TranslationModel

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

    def read(self, state: DepthState, index: int, languages: Tensor | None = None) -> Tensor:
        """As before, but for the linear layer: see the class."""
        if index == self.place:
            return torch.cat(state, -1) if self.cell == "map" else self.inner.stream(state)
        return self.inner.read(state, self._before(index), languages)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, languages: Tensor | None = None
    ) -> DepthState:
        """As before, but for the linear layer: its output is the layer's."""
        if index != self.place:
            return self.inner.write(state, self._before(index), read, output, languages)
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

    def read(self, state: DepthState, index: int, languages: Tensor | None = None) -> Tensor:
        """As before."""
        if index in self._first:
            self.before[self._first[index]] = self._passed(state)
        return self.inner.read(state, index, languages)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, languages: Tensor | None = None
    ) -> DepthState:
        """As before."""
        state = self.inner.write(state, index, read, output, languages)
        if index in self._last:
            self.after[self._last[index]] = self._passed(state)
        return state

    def _passed(self, state: DepthState) -> DepthState:
        """What passes between layers, the stream first."""
        return (self.inner.stream(state), *state[1:])


class _ForAllLanguages(nn.Module):
    """A linear map in the place of a feed-forward network."""

    def __init__(self, linear: nn.Linear) -> None:
        super().__init__()
        self.linear = linear

    def forward(self, x: Tensor, _languages: Tensor | None = None) -> Tensor:
        """Map `[B, T, d]`, the same for all target languages."""
        mapped: Tensor = self.linear(x)
        return mapped


def linearised(
    model: TranslationModel, side: Side, layer: int, linear: nn.Linear, cell: Cell = "carry"
) -> TranslationModel:
    """The model with one layer replaced by `linear`; all other parameters are shared with `model`.

    It translates, scores and decodes step by step as any model does.

    Args:
        model: Any model.
        side: Encoder or decoder.
        layer: Which layer, counted from 1.
        linear: `width(model, side, cell)` features in and out.
        cell: What happens to what passes between layers besides the stream; see `OneLayerLinear`.

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
    """What passes from layer to layer, of one position, `[1, 1, d]` each."""
    example = next(model.parameters()).new_zeros(1, 1, model.config.size(side)[0])
    # Norms may be those of target languages; all of them give the same shapes, so any language will do.
    languages = torch.zeros(1, dtype=torch.long, device=example.device)
    return model.stack(side).connection.start(example, languages=languages)


def _place(connection: Connection, layer: int) -> tuple[int, int]:
    """Number of the first call of a layer (from 0), and how many calls it has; they follow each other."""
    calls = [index for index, call in enumerate(connection.calls) if call.layer == layer]
    return calls[0], len(calls)
