"""Glorot's uniform everywhere, Neutron's alternative."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from deepwire.model.embedding import TokenEmbedding
from deepwire.model.initializations.base import Initialization, zero_bias


class GlorotConfig(Initialization):
    """Glorot's uniform on the stored shapes, embeddings too; biases 0 (Neutron's alternative)."""

    type: Literal["glorot"] = "glorot"

    def linear(self, module: nn.Linear, layer: int) -> None:
        """Uniform by inputs and outputs."""
        nn.init.xavier_uniform_(module.weight)
        zero_bias(module)

    def embedding(self, module: TokenEmbedding) -> None:
        """Uniform by both measures."""
        nn.init.xavier_uniform_(module.weight)

    def language_embedding(self, table: Tensor) -> None:
        """Uniform by both measures."""
        nn.init.xavier_uniform_(table)

    def positions(self, table: Tensor) -> None:
        """Uniform by both measures."""
        nn.init.xavier_uniform_(table)
