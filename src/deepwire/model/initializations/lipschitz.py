"""Lipschitz-constrained initialisation, the default of Neutron."""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from deepwire.model.embedding import TokenEmbedding
from deepwire.model.initializations.base import Initialization, uniform, zero_bias


class LipschitzConfig(Initialization):
    """Uniform in +-1/sqrt(fan_in), embeddings in +-sqrt(2/(V + d)), biases 0 (Xu et al. 2020; Neutron)."""

    type: Literal["lipschitz"] = "lipschitz"

    def linear(self, module: nn.Linear, layer: int) -> None:
        """Uniform by the number of inputs."""
        uniform(module.weight, module.in_features**-0.5)
        zero_bias(module)

    def embedding(self, module: TokenEmbedding) -> None:
        """Uniform by both measures, which a tied output projection shares."""
        uniform(module.weight, (2 / sum(module.weight.shape)) ** 0.5)

    def language_embedding(self, table: Tensor) -> None:
        """As an embedding."""
        uniform(table, (2 / sum(table.shape)) ** 0.5)

    def projection(self, module: TokenEmbedding) -> None:
        """A linear map like the others."""
        uniform(module.weight, module.weight.size(1) ** -0.5)

    def positions(self, table: Tensor) -> None:
        """Uniform by the width, as every matrix."""
        uniform(table, table.size(1) ** -0.5)

    def relative_keys(self, table: Tensor) -> None:
        """Uniform by the width, as every matrix."""
        uniform(table, table.size(1) ** -0.5)
