"""The initialisation of PyTorch's own Transformer layers, which ReZero's authors use."""

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


class PyTorchConfig(Initialization):
    """As `torch.nn.MultiheadAttention` and `torch.nn.Linear` set themselves (the layers of ReZero's authors).

    Queries, keys and values are one matrix `[3 d, d]`, Glorot's uniform; every other weight is uniform in
    +-1/sqrt(fan_in). Biases of attention are 0, the others uniform like their weights. Embeddings, which
    those layers do not have, are normal with d^-0.5.
    """

    type: Literal["pytorch"] = "pytorch"

    def linear(self, module: nn.Linear, layer: int) -> None:
        """By role."""
        module.reset_parameters()
        part = part_of_attention(module)
        if part is not None:
            uniform(module.weight, glorot_bound(module.in_features, 3 * part))
        if isinstance(module, Linear) and module.role != "other":
            zero_bias(module)

    def embedding(self, module: TokenEmbedding) -> None:
        """Normal with d^-0.5."""
        nn.init.normal_(module.weight, std=module.weight.size(1) ** -0.5)
