"""Dynamic combination: every position weighs the features of all layers by what it finds in them.

Dou et al. 2019 (Dynamic Layer Aggregation for Neural Machine Translation with Routing-by-Agreement).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.model.context import Context
from deepwire.model.fusions.fusion import Fusion, FusionSection
from deepwire.model.fusions.layer_network import LayerNetwork, network_norms
from deepwire.model.introspection import DepthWeights
from deepwire.model.stack_spec import StackSpec


class DynamicCombinationConfig(FusionSection):
    """Sum of all layers, each weighed feature by feature by a network that reads all of them."""

    type: Literal["dynamic_combination"] = "dynamic_combination"
    maps: int = Field(3, ge=1, le=100, description="linear maps of each layer's network")

    def has_norm(self, spec: StackSpec) -> bool:
        """None of its own."""
        return False

    def build(self, spec: StackSpec) -> Fusion:
        """The fusion of a whole stack."""
        return DynamicCombination(self, spec)


class DynamicCombination(Fusion):
    """o = sum_l f_l([h_1; ...; h_L]) * h_l; each h_l has the connection's final norm, if there is one."""

    def __init__(self, config: DynamicCombinationConfig, spec: StackSpec) -> None:
        super().__init__()
        self.keeps = frozenset(range(1, spec.layers + 1))
        self.networks = nn.ModuleList(LayerNetwork(spec, config.maps) for _ in range(spec.layers))

    def forward(
        self,
        kept: Sequence[Tensor],
        normalise: Callable[[Tensor], Tensor],
        context: Context,
    ) -> tuple[Tensor, ...]:
        """One result, `[B, T, d]`."""
        layers = [normalise(layer) for layer in kept]
        side_by_side = torch.cat(layers, -1)
        result = torch.zeros_like(layers[0])
        for network, layer in zip(self.networks, layers, strict=True):
            result = torch.addcmul(result, network(side_by_side), layer)
        return (result,)

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """Weights of each layer in the input of each network."""
        return (network_norms("combination", "Norm of the map from each layer", self.networks),)
