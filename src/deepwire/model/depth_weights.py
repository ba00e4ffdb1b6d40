"""Numbers by which a model weighs what comes from different depths, as its sockets show them to analyses."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from torch import Tensor

TARGET_LANGUAGE = "target language"
"""The axis of rows that are languages: named here by their number from 1, as the model knows no names."""


@dataclass(frozen=True)
class DepthWeights:
    """A matrix of weights that hold for every text: parameters, or what the model makes of them.

    Attributes:
        key: Short name, one of its kind in a stack: ``dlcl``.
        title: What they are, in a few words.
        values: ``[R, C]``, or ``[R, C, n]`` where a pair has n weights; NaN where nothing is connected.
        rows, columns: Names of both; a column is the depth that something comes from.
        row_axis, column_axis: What rows and columns are.
        value: What a number of it is.
        thinned: Whether plots leave out small weights, as Wang et al. 2019 do in Fig. 5.
    """

    key: str
    title: str
    values: Tensor
    rows: tuple[str, ...]
    columns: tuple[str, ...]
    row_axis: str
    column_axis: str
    value: str = "weight"
    thinned: bool = False


def single(
    key: str, title: str, values: Tensor, columns: Sequence[str], column_axis: str, value: str = "weight"
) -> DepthWeights:
    """One row of weights, `[C]` or `[C, n]`."""
    row = values.detach().unsqueeze(0)
    return DepthWeights(key, title, row, ("",), tuple(columns), "", column_axis, value)


def layer_names(count: int, *, embedding: bool = False) -> tuple[str, ...]:
    """Names of the layers from 1, the embedding as 0 in front of them."""
    return tuple(str(layer) for layer in range(0 if embedding else 1, count + 1))
