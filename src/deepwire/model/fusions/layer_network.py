"""A small network that reads all layers of a stack side by side; fusions have one for each layer."""

from __future__ import annotations

from itertools import pairwise

import torch
from torch import Tensor, nn
from torch.nn import functional

from deepwire.model.introspection import DepthWeights, layer_names
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.dropout import Dropout


class LayerNetwork(nn.Module):
    """f([h_1; ...; h_L]): a linear map to width d, `maps - 1` more, and drop(relu(.)) between two of them.

    Args:
        spec: The stack's measures.
        maps: Linear maps with a bias, at least one.
        outputs: Outputs of the last map; d without it.
    """

    def __init__(self, spec: StackSpec, maps: int, outputs: int | None = None) -> None:
        super().__init__()
        dim = spec.dim
        widths = [spec.layers * dim, *[dim] * (maps - 1), outputs or dim]
        self.maps = nn.ModuleList(nn.Linear(inputs, out) for inputs, out in pairwise(widths))
        self.dropout = Dropout(spec.dropout.activation)

    def forward(self, layers: Tensor) -> Tensor:
        """Map the layers side by side `[B, T, L d]` to `[B, T, d]`, or `[B, T, outputs]`."""
        x: Tensor = self.maps[0](layers)
        for linear in self.maps[1:]:
            x = linear(self.dropout(functional.relu(x)))
        return x

    def norms(self, layers: int) -> Tensor:
        """Frobenius norm of the part of the first map that reads each of the L layers, `[L]`."""
        weight = self.maps[0].get_parameter("weight").detach()
        norms: Tensor = weight.view(len(weight), layers, -1).norm(dim=(0, 2))
        return norms


def network_norms(key: str, title: str, networks: nn.ModuleList) -> DepthWeights:
    """Norms of the first map of each layer's network by layer, for analyses."""
    layers = len(networks)
    rows = [network.norms(layers) for network in networks if isinstance(network, LayerNetwork)]
    return DepthWeights(
        key=key,
        title=title,
        values=torch.stack(rows),
        rows=layer_names(layers),
        columns=layer_names(layers),
        row_axis="network of layer",
        column_axis="output of layer",
        value="norm",
    )
