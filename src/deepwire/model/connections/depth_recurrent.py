"""How a recurrence over layers reads the attention outputs of a layer; depth-wise LSTM and RNN share it."""

from __future__ import annotations

from abc import abstractmethod
from typing import ClassVar, Literal

import torch
from torch import Tensor, nn

from deepwire.model.connections.connection import Call, Connection, DepthState
from deepwire.model.context import Context
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.dropout import Dropout

Merge = Literal["add", "concat", "two"]
FirstNorm = Literal["second_attention", "second_layer"]


class DepthRecurrent(Connection):
    """Gathers the attention outputs of a layer, merges them, and runs one unit; or a unit for each output.

    The state is (stream, cell...) between units, and (stream, cell..., gathered outputs...) within a layer.

    Attributes:
        carried: Tensors of the state between units.
        units_per_layer: One, or with the merge `two` one for each attention.
        input_width: Width of what a unit reads: the stream and the merged outputs.
    """

    carried: ClassVar[int] = 1

    def __init__(
        self,
        calls: tuple[Call, ...],
        spec: StackSpec,
        *,
        merge: Merge,
        first_norm: FirstNorm,
        final_norm: bool,
    ) -> None:
        super().__init__(calls)
        self.per_layer = len(spec.sublayers)
        self.merge = merge if self.per_layer > 1 else "add"
        self.units_per_layer = self.per_layer if self.merge == "two" else 1
        self.input_width = spec.dim * (1 + (self.per_layer if self.merge == "concat" else 1))
        # Attentions without a norm of their query: the first, which reads the embedding, or its whole layer.
        self.without_norm = self.per_layer if first_norm == "second_layer" else 1
        self.norms = nn.ModuleList(spec.norm() for _ in self.calls[self.without_norm :])
        self.final_norm = spec.norm() if final_norm else None
        self.dropout = Dropout(spec.dropout.sublayer)

    @abstractmethod
    def unit(self, number: int, state: DepthState, merged: Tensor, context: Context) -> DepthState:
        """Run unit `number`, from 0 at the bottom, on its merged input; the state between units."""

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """The output of the layer below, plus what this layer has attended to so far; normalised above."""
        # 2020 preprint, section 3.3: cross-attention is asked with the self-attention output and its input.
        stream = state[0]
        for gathered in state[self.carried :]:
            stream = stream + gathered
        if index < self.without_norm:
            return stream
        read: Tensor = self.norms[index - self.without_norm](stream, context)
        return read

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Gather the output; run the unit when all of its inputs are there."""
        output = self.dropout(output)
        if self.merge == "two":
            return self.unit(index, state, output, context)
        if not self.calls[index].closes:
            return (*state, output)
        inputs = (*state[self.carried :], output)
        merged = sum(inputs[1:], start=inputs[0]) if self.merge == "add" else torch.cat(inputs, -1)
        return self.unit(index // self.per_layer, state[: self.carried], merged, context)

    def normalise(self, x: Tensor, context: Context) -> Tensor:
        """The final norm, where there is one."""
        return x if self.final_norm is None else self.final_norm(x, context)
