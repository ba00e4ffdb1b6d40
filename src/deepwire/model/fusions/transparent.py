"""Transparent attention: every decoder layer attends to its own mixture of all encoder layers.

Bapna et al. 2018 (Training Deeper Neural Machine Translation Models with Transparent Attention).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import copy
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.model.context import Context
from deepwire.model.fusions.fusion import Fusion, FusionSection
from deepwire.model.introspection import DepthWeights, layer_names
from deepwire.model.stack_spec import Side, StackSpec
from deepwire.ops.dropout import Dropout

Initial = Literal["zero", "uniform", "released"]


class TransparentConfig(FusionSection):
    """One memory for each decoder layer. Encoder only."""

    normalises: ClassVar[bool] = False
    type: Literal["transparent"] = "transparent"
    sides: ClassVar[frozenset[Side]] = frozenset({"encoder"})
    per_decoder_layer: ClassVar[bool] = True
    initial: Initial = Field(
        "zero",
        description="of W: zero (equal weights), uniform in +-1/sqrt(encoder layers + 1), or released: "
        "uniform in +-1/sqrt(decoder layers), as Neutron initialises it",
    )
    dropout: float | None = Field(
        None, ge=0, lt=1, description="of W before its softmax; default: model.dropout.sublayer"
    )

    def build(self, spec: StackSpec) -> Fusion:
        """Builds the mixtures for all decoder layers."""
        dropout = spec.dropout.sublayer if self.dropout is None else self.dropout
        return Transparent(spec.layers, spec.other_layers, initial=self.initial, dropout=dropout)


class Transparent(Fusion):
    """z_j = sum_i s_ij h_i with s_.j = softmax over i of drop(W)_.j, for each decoder layer j.

    h_0 is the embedding as it enters the stack, h_i the output of layer i, each with the connection's final
    norm if there is one. W is `[encoder layers + 1, decoder layers]`.
    """

    def __init__(self, layers: int, decoder_layers: int, *, initial: Initial, dropout: float) -> None:
        super().__init__()
        self.keeps = frozenset(range(layers + 1))
        self.weights = nn.Parameter(torch.zeros(layers + 1, decoder_layers))
        if initial != "zero":
            bound = (decoder_layers if initial == "released" else layers + 1) ** -0.5
            nn.init.uniform_(self.weights, -bound, bound)
        self.dropout = Dropout(dropout)

    def forward(
        self, kept: Sequence[Tensor], normalise: Callable[[Tensor], Tensor], context: Context
    ) -> tuple[Tensor, ...]:
        """One result `[B, T, d]` for each decoder layer."""
        # One matrix product: separate sums would read all layers once for each decoder layer.
        layers = torch.stack([normalise(layer) for layer in kept])
        shares = self.shares().to(layers.dtype)
        mixed = shares.t() @ layers.flatten(1)
        return mixed.view(-1, *layers.shape[1:]).unbind(0)

    def shares(self) -> Tensor:
        """The shares s `[encoder layers + 1, decoder layers]`; each column sums to 1."""
        logits: Tensor = self.dropout(self.weights[: len(self.keeps)])
        return logits.softmax(0)

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """The shares without dropout, one row for each decoder layer; each row sums to 1."""
        encoder, decoder = self.weights.shape
        return (
            DepthWeights(
                key="transparent",
                title="Shares of encoder layers in the memory of each decoder layer",
                values=self.weights.detach().softmax(0).t(),
                rows=layer_names(decoder),
                columns=layer_names(encoder - 1, embedding=True),
                row_axis="decoder layer",
                column_axis="output of encoder layer; 0: embedding",
                value="share",
            ),
        )

    def lowest(self, layers: int) -> Fusion:
        """Mixtures of the embedding and the lowest layers only, whose shares again sum to 1."""
        lower = copy(self)
        lower.keeps = frozenset(range(layers + 1))
        return lower
