"""The contract of an initialisation: how the parameters of a built model begin."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

from deepwire.config.base import Section
from deepwire.model.embedding import TokenEmbedding
from deepwire.model.linear import Linear


class Initialization(Section, ABC):
    """How linear maps, embeddings and tables of positions begin.

    Norms, gates, mixing weights and parameters of other shapes are set by the modules that own them.
    """

    type: str

    @abstractmethod
    def linear(self, module: nn.Linear, layer: int) -> None:
        """Set a linear map `[out, in]` with its bias.

        Args:
            module: The map; a `Linear` says what it is for.
            layer: The layer of its stack that it belongs to, from 1; 1 for what several layers share.
        """

    @abstractmethod
    def embedding(self, module: TokenEmbedding) -> None:
        """Set an embedding matrix `[V, d]`, also where it is the output projection; PAD is zeroed later."""

    def projection(self, module: TokenEmbedding) -> None:
        """Set an output projection `[V, d]` that is a matrix of its own; like an embedding as a rule."""
        self.embedding(module)

    def positions(self, table: Tensor) -> None:
        """Set a learned table of positions `[n, d]`: normal with d^-0.5 as a rule."""
        nn.init.normal_(table, std=table.size(1) ** -0.5)

    def language_embedding(self, table: Tensor) -> None:
        """Set the vectors of the target languages `[L, d]`: normal with d^-0.5 as a rule."""
        nn.init.normal_(table, std=table.size(1) ** -0.5)

    def relative_keys(self, table: Tensor) -> None:
        """Set a table of relative positions `[n, h]`: Glorot's uniform as a rule."""
        nn.init.xavier_uniform_(table)


def part_of_attention(module: nn.Linear) -> int | None:
    """Outputs of one of the queries, keys and values that a map makes; None where it makes none."""
    if isinstance(module, Linear) and module.role in ("self_attention", "cross_attention"):
        return module.out_features // module.parts
    return None


def uniform(tensor: Tensor, bound: float) -> None:
    """Draw uniformly from [-bound, bound]."""
    nn.init.uniform_(tensor, -bound, bound)


def glorot_bound(inputs: int, outputs: int) -> float:
    """sqrt(6 / (inputs + outputs)) (Glorot and Bengio 2010, equation 16)."""
    return float((6 / (inputs + outputs)) ** 0.5)


def zero_bias(module: nn.Linear) -> None:
    """Set the bias to zero, where there is one."""
    if module.bias is not None:
        nn.init.zeros_(module.bias)
