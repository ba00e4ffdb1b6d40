"""Views of the sockets for analyses: how they weigh depths, and where their gates can be seen.

Depth weights hold for every text. A mixing says what they are at each position, where the text has a say.
Gates depend on it too: a probe names a module and how to read gates off one call of it. Analyses put forward
hooks there; the modules know nothing of being watched, so training and decoding are the same with this file
and without it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import torch
from torch import Tensor, nn

TARGET_LANGUAGE = "target language"
"""The axis of rows that are languages: named here by their number from 1, as the model knows no names."""
OF_SUBLAYERS = "output of sub-layer; 0: embedding"
"""The axis of columns that are outputs of sub-layers."""


@dataclass(frozen=True)
class DepthWeights:
    """A matrix of weights that hold for every text: parameters, or what the model makes of them.

    Attributes:
        key: Short name of lower-case letters, digits and hyphens, one of its kind in a stack: ``dlcl``.
        title: What they are, in a few words.
        values: ``[R, C]``, or ``[R, C, n]`` where a pair has n weights; NaN where nothing is connected.
        rows, columns: Names of both; a column is the depth that something comes from.
        row_axis, column_axis: What rows and columns are.
        value: What a number of it is.
    """

    key: str
    title: str
    values: Tensor
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_axis: str
    column_axis: str
    value: str = "weight"


class Mixing(NamedTuple):
    """How the parts of a state are mixed at the positions of a text.

    Attributes:
        read: `[R, P, B, T]`, the weights of the P parts in the R vectors that are read. Axes of positions
            are of size 1 where the text has no say.
        write: `[P', P + R, B, T]`, the weights of the old parts, and of the R parts of what was made of
            what was read, in the new parts; None: nothing is written.
    """

    read: Tensor
    write: Tensor | None = None


def by_position(rows: Sequence[Sequence[Tensor]]) -> Tensor:
    """Rows of weights, each a number `[]` or one of each position `[B, T]`, as `[R, C, B or 1, T or 1]`."""
    wide = [[weight if weight.dim() else weight.view(1, 1) for weight in row] for row in rows]
    shape = max((weight.shape for row in wide for weight in row), key=lambda shape: shape.numel())
    return torch.stack([torch.stack([weight.expand(shape) for weight in row]) for row in wide])


def single(
    key: str, title: str, values: Tensor, columns: Sequence[str], column_axis: str, value: str = "weight"
) -> DepthWeights:
    """One row of weights, `[C]` or `[C, n]`."""
    row = values.detach().unsqueeze(0)
    return DepthWeights(key, title, row, ("",), tuple(columns), "", column_axis, value)


def of_layer_inputs(key: str, values: Tensor, *, title: str = "Weights") -> DepthWeights:
    """Weights of the embedding and of layer outputs in what each layer reads.

    Args:
        key: As of `DepthWeights`.
        values: `[R, C]` or `[R, C, n]`: those of C outputs, the embedding first, in the inputs of the last R
            layers.
        title: How the title begins: what weights these are.
    """
    last = values.size(1)
    return DepthWeights(
        key=key,
        title=f"{title} of layer outputs in what each layer reads",
        values=values,
        rows=tuple(f"x{layer}" for layer in range(last - values.size(0) + 1, last + 1)),
        columns=tuple(f"y{layer}" for layer in range(last)),
        row_axis="input of layer",
        column_axis="output of layer; y0: embedding",
    )


def of_sublayers(values: Tensor, *, key: str, title: str) -> DepthWeights:
    """Weights of the embedding and of the outputs of K calls in what each call and the result read.

    `values` are `[K + 1, K + 1]`, NaN where nothing is connected.
    """
    names = tuple(str(number) for number in range(1, len(values)))
    return DepthWeights(
        key=key,
        title=title,
        values=values,
        rows=(*names, "result"),
        columns=("0", *names),
        row_axis="input of sub-layer",
        column_axis=OF_SUBLAYERS,
    )


def layer_names(count: int, *, embedding: bool = False) -> tuple[str, ...]:
    """Names of the layers from 1, the embedding as 0 in front of them."""
    return tuple(str(layer) for layer in range(0 if embedding else 1, count + 1))


def mixer_weights(rows: Sequence[Tensor | None]) -> tuple[DepthWeights, ...]:
    """The weights `[l]` with which the mixer of layer l reads what mixers up to its own made, as one matrix.

    Nothing where no mixer has such weights.
    """
    values = torch.full((len(rows), len(rows)), float("nan"))
    for layer, row in enumerate(rows):
        if row is not None:
            values[layer, : len(row)] = row.detach().to(values)
    if all(row is None for row in rows):
        return ()
    names = layer_names(len(rows))
    title = "Weights of layers in the keys and values that a mixer uses"
    return (DepthWeights("mixer", title, values, names, names, "layer that reads", "layer that made them"),)


ReadGates = Callable[[tuple[Tensor, ...], object], Mapping[str, Tensor]]
"""The gates by name, each `[B, T, ...]`, from the inputs and the output of one call of a module."""


class Place(NamedTuple):
    """Where in depth a gate stands.

    Attributes:
        order: Its number from the bottom of the stack; gates of one place work together.
        name: For people: ``3``, or ``3 cross`` where a layer has several.
    """

    order: int
    name: str


@dataclass(frozen=True)
class GateProbe:
    """A module whose calls show gates.

    Attributes:
        family: What the gates belong to: ``depth-wise LSTM``.
        module: It is called once for each place within one pass over the stack.
        places: In the order of these calls.
        read: Takes the gates from a call.
        meaning: What it means that a gate is 1, by the gate's name.
        keeps: The gate whose product over places says how much of a state is still there; None without one.
        shares_of: Where the gates of a place are shares that sum to 1, what their names stand for; None where
            each gate is open or closed by itself.
    """

    family: str
    module: nn.Module
    places: tuple[Place, ...]
    read: ReadGates
    meaning: Mapping[str, str]
    keeps: str | None = None
    shares_of: str | None = None
