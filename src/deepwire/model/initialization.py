"""Initialisation: a choice of its own, applied to a built model.

Norms, gates of groups, mixing weights and the like are set by their own modules; here only linear maps,
embeddings and tables of positions are.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Annotated, Literal

from pydantic import Field
from torch import nn

from deepwire.config.base import Section
from deepwire.model.embedding import TokenTable
from deepwire.model.mixers.self_attention import RelativeKeys
from deepwire.model.named import by_name
from deepwire.model.positions import LearnedPositions


class Initialization(Section, ABC):
    """How weights begin."""

    @abstractmethod
    def linear(self, module: nn.Linear) -> None:
        """Set a linear map `[out, in]`."""

    @abstractmethod
    def table(self, module: TokenTable) -> None:
        """Set an embedding matrix; padding is zeroed afterwards."""


class LipschitzConfig(Initialization):
    """Uniform in +-1/sqrt(fan_in), embeddings in +-sqrt(2/(V + d)), biases 0 (Xu et al. 2020; Neutron)."""

    type: Literal["lipschitz"] = "lipschitz"

    def linear(self, module: nn.Linear) -> None:
        """Uniform by the number of inputs."""
        bound = module.in_features**-0.5
        nn.init.uniform_(module.weight, -bound, bound)
        _zero_bias(module)

    def table(self, module: TokenTable) -> None:
        """Uniform by both measures."""
        bound = (2 / sum(module.weight.shape)) ** 0.5
        nn.init.uniform_(module.weight, -bound, bound)


class XavierConfig(Initialization):
    """Glorot's uniform on the stored shape, embeddings normal with d^-0.5, biases 0 (fairseq to 0.6)."""

    type: Literal["xavier"] = "xavier"

    def linear(self, module: nn.Linear) -> None:
        """Uniform by inputs and outputs; a joint projection counts as one matrix."""
        nn.init.xavier_uniform_(module.weight)
        _zero_bias(module)

    def table(self, module: TokenTable) -> None:
        """Normal."""
        nn.init.normal_(module.weight, std=module.weight.size(1) ** -0.5)


class GlorotConfig(Initialization):
    """Glorot's uniform everywhere, embeddings too; biases 0 (Neutron's alternative)."""

    type: Literal["glorot"] = "glorot"

    def linear(self, module: nn.Linear) -> None:
        """Uniform by inputs and outputs."""
        nn.init.xavier_uniform_(module.weight)
        _zero_bias(module)

    def table(self, module: TokenTable) -> None:
        """Uniform by both measures."""
        nn.init.xavier_uniform_(module.weight)


InitializationConfig = Annotated[
    Annotated[LipschitzConfig | XavierConfig | GlorotConfig, Field(discriminator="type")],
    by_name,
]


def initialize(model: nn.Module, config: Initialization) -> None:
    """Set every linear map, embedding and position table of a model; shared ones once."""
    for module in model.modules():
        if isinstance(module, nn.Linear):
            config.linear(module)
        elif isinstance(module, TokenTable):
            config.table(module)
            # Index 0 of a copy would not write through on the meta device, so fill the row in place.
            module.weight.data[module.pad_id].zero_()
        elif isinstance(module, RelativeKeys):
            nn.init.xavier_uniform_(module.table)
        elif isinstance(module, LearnedPositions):
            nn.init.normal_(module.table, std=module.table.size(1) ** -0.5)


def _zero_bias(module: nn.Linear) -> None:
    if module.bias is not None:
        nn.init.zeros_(module.bias)
