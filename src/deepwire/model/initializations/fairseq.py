"""The initialisation of fairseq 1.0 and later, on which GTrans was trained."""

from __future__ import annotations

from typing import Literal

from torch import nn

from deepwire.model.embedding import TokenEmbedding
from deepwire.model.initializations.base import (
    Initialization,
    glorot_bound,
    part_of_attention,
    uniform,
    zero_bias,
)
from deepwire.model.linear import Linear


class FairseqConfig(Initialization):
    """Glorot's uniform in attention, PyTorch's defaults elsewhere, embeddings normal (fairseq from 1.0).

    Queries, keys and values are Glorot's uniform with gain 1/sqrt(2) and keep PyTorch's biases, in
    +-1/sqrt(d); the attention's output is Glorot's uniform with bias 0; feed-forward layers are uniform in
    +-1/sqrt(fan_in), biases too.
    """

    type: Literal["fairseq"] = "fairseq"

    def linear(self, module: nn.Linear, layer: int) -> None:
        """By role."""
        module.reset_parameters()
        part = part_of_attention(module)
        if part is not None:
            uniform(module.weight, glorot_bound(module.in_features, part) / 2**0.5)
        elif isinstance(module, Linear) and module.role == "attention_output":
            nn.init.xavier_uniform_(module.weight)
            zero_bias(module)

    def embedding(self, module: TokenEmbedding) -> None:
        """Normal with d^-0.5."""
        nn.init.normal_(module.weight, std=module.weight.size(1) ** -0.5)
