"""The initialisation of fairseq up to 0.6, on which DLCL and the ODE Transformer were trained."""

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


class XavierConfig(Initialization):
    """Glorot's uniform, embeddings normal with d^-0.5, biases 0 (fairseq to 0.6).

    Queries, keys and values are one matrix `[3 d, d]` in both kinds of attention there, so each of them is
    uniform in +-sqrt(6 / 4d), however it is stored here.
    """

    type: Literal["xavier"] = "xavier"

    def linear(self, module: nn.Linear, layer: int) -> None:
        """Uniform by inputs and outputs."""
        part = part_of_attention(module)
        outputs = module.out_features if part is None else 3 * part
        uniform(module.weight, glorot_bound(module.in_features, outputs))
        zero_bias(module)

    def embedding(self, module: TokenEmbedding) -> None:
        """Normal with d^-0.5."""
        nn.init.normal_(module.weight, std=module.weight.size(1) ** -0.5)
