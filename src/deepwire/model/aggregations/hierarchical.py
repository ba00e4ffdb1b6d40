"""Hierarchical layer aggregation: where a block of layers is complete, a small network merges its outputs.

Dou et al. 2018 (Exploiting Deep Representations for Neural Machine Translation), as in Neutron, the authors'
toolkit of the depth-wise LSTM papers.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from deepwire.config.counts import MAX_SIZE, Count
from deepwire.model.aggregations.aggregation import Aggregation, AggregationSection, History
from deepwire.model.context import Context
from deepwire.model.introspection import DepthWeights
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.dropout import Dropout

CombinerActivation = Literal["sigmoid", "relu", "gelu"]
CombinerBias = Literal["both", "first", "none"]
_ACTIVATIONS: Mapping[CombinerActivation, Callable[[Tensor], Tensor]] = {
    "sigmoid": torch.sigmoid,
    "relu": functional.relu,
    "gelu": functional.gelu,
}


class HierarchicalConfig(AggregationSection):
    """Blocks of layers, merged at their end. The stack's output is normalised already: set
    `final_norm: false` where the connection would norm it again."""

    type: Literal["hierarchical"] = "hierarchical"
    block: int = Field(
        2,
        ge=1,
        description="layers in a block; the last block is shorter where the number does not divide the depth",
    )
    block_input: bool = Field(
        True,
        description="every block but the first also merges what it read; false: outputs alone "
        "(Neutron's Incept)",
    )
    activation: CombinerActivation = Field("sigmoid", description="between the two linear maps")
    hidden: Count | None = Field(
        None,
        ge=1,
        le=MAX_SIZE,
        description="width between the two linear maps; model.feed_forward without it",
    )
    bias: CombinerBias = Field("first", description="which of the two linear maps have a bias")
    dropout: float = Field(0.0, ge=0, lt=1, description="after the activation and after the second map")

    def check(self, spec: StackSpec) -> None:
        """No block that is larger than the stack."""
        if self.block > spec.layers:
            raise ValueError(
                f"hierarchical aggregation: a block of {self.block} layers does not fit into a stack of "
                f"{spec.layers}"
            )

    def build(self, spec: StackSpec) -> Aggregation:
        """The aggregation of a whole stack."""
        return Hierarchical(self, spec)


class Combiner(nn.Module):
    """AGG(x_1, ..., x_k) = LN(W_2 act(W_1 [x_1; ...; x_k] + b_1) + x_1 + ... + x_k) (Dou et al. 2018).

    `inputs` is the number k of vectors.
    """

    def __init__(self, config: HierarchicalConfig, spec: StackSpec, inputs: int) -> None:
        super().__init__()
        hidden = config.hidden or spec.feed_forward
        self.input = nn.Linear(inputs * spec.dim, hidden, bias=config.bias != "none")
        self.output = nn.Linear(hidden, spec.dim, bias=config.bias == "both")
        self.norm = spec.norm()
        self.activation = _ACTIVATIONS[config.activation]
        self.dropout = Dropout(config.dropout)

    def forward(self, vectors: Sequence[Tensor], context: Context) -> Tensor:
        """Merge k tensors `[..., d]` into one of the same shape."""
        hidden = self.dropout(self.activation(self.input(torch.cat(tuple(vectors), -1))))
        total = self.dropout(self.output(hidden))
        for vector in vectors:
            total = total + vector
        return self.norm(total, context)

    def input_norms(self) -> Tensor:
        """Frobenius norm of the part of W_1 that reads each of the k vectors, `[k]`."""
        parts = self.input.weight.detach().view(len(self.input.weight), -1, self.output.out_features)
        return parts.norm(dim=(0, 2))


class Hierarchical(Aggregation):
    """x_{l+1} = y_l inside a block; at its end x_{l+1} = AGG(block input, outputs of the block's layers).

    The first block has no block input. The last block gives the stack's output, so a connection needs no
    final norm of its own.
    """

    def __init__(self, config: HierarchicalConfig, spec: StackSpec) -> None:
        super().__init__()
        self.block, self.layers, self.block_input = config.block, spec.layers, config.block_input
        combiners = []
        for first in range(0, spec.layers, config.block):
            outputs = min(config.block, spec.layers - first)
            inputs = outputs + (1 if first and config.block_input else 0)
            combiners.append(Combiner(config, spec, inputs))
        self.combiners = nn.ModuleList(combiners)

    def start(self, x: Tensor, context: Context) -> tuple[History, Tensor]:
        """Layer 1 reads the embedding, which is never merged."""
        return (), x

    def close(self, history: History, output: Tensor, layer: int, context: Context) -> tuple[History, Tensor]:
        """Keep the output; at the end of a block the next layer reads all that was kept, merged."""
        history = (*history, output)
        if (layer + 1) % self.block and layer + 1 < self.layers:
            return history, output
        # A ModuleList forgets the type.
        merged = cast("Combiner", self.combiners[layer // self.block])(history, context)
        return (merged,) if self.block_input else (), merged

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """Frobenius norm of the columns of W_1 that read each vector; a row is one block's combiner."""
        first = 1 if self.block_input else 0
        names = (*(["block input"] if first else []), *(f"output {place + 1}" for place in range(self.block)))
        values = torch.full((len(self.combiners), len(names)), float("nan"))
        for number, combiner in enumerate(cast("list[Combiner]", list(self.combiners))):
            norms = combiner.input_norms()
            begin = 0 if number and self.block_input else first
            values[number, begin : begin + len(norms)] = norms.to(values)
        return (
            DepthWeights(
                key="combiner",
                title="Norm of the map from each vector into a block's combiner",
                values=values,
                rows=tuple(f"block {number + 1}" for number in range(len(self.combiners))),
                columns=names,
                row_axis="combiner",
                column_axis="vector that is merged",
                value="norm",
            ),
        )
