"""Layer aggregation by routing: the layers of a position are capsules that vote for the parts of its result.

Dou et al. 2019 (Dynamic Layer Aggregation for Neural Machine Translation with Routing-by-Agreement). How many
linear maps make an input capsule and its activation is not known to us: see docs/understand/papers.md.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from typing import ClassVar, Literal, cast

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from deepwire.config.counts import MAX_SIZE, Count
from deepwire.model.context import Context
from deepwire.model.fusions.fusion import Fusion, FusionSection
from deepwire.model.introspection import DepthWeights, GateProbe, Place, layer_names
from deepwire.model.layers import NoNorm
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.dropout import Dropout
from deepwire.ops.routing import EMForm, OutputCapsules, dynamic_routing, em_routing


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
        return weight.view(len(weight), layers, -1).norm(dim=(0, 2))


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


class DynamicCombinationConfig(FusionSection):
    """Sum of all layers, each weighed feature by feature by a network that reads all of them."""

    normalises: ClassVar[bool] = False
    type: Literal["dynamic_combination"] = "dynamic_combination"
    maps: int = Field(3, ge=1, le=100, description="linear maps of each layer's network")

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
        self, kept: Sequence[Tensor], normalise: Callable[[Tensor], Tensor], context: Context
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


class RoutingSection(FusionSection):
    """Settings that both ways of routing share."""

    capsules: Count | None = Field(
        None,
        ge=1,
        le=MAX_SIZE,
        description="output capsules N, side by side in the result; they divide its width. d_model without "
        "it: the paper's 512 (base) and 1024 (big)",
    )
    iterations: int = Field(3, ge=1, le=100, description="how often the output capsules are made")
    input_maps: int = Field(
        2,
        ge=1,
        le=100,
        description="linear maps of the network that makes each input capsule from all layers",
    )
    norm: bool = Field(
        True,
        description="a layer norm of the result, which is not in the paper's equations as we know them: "
        "without it the result of many capsules begins almost at zero",
    )

    def check(self, spec: StackSpec) -> None:
        """Output capsules of one width."""
        if self.capsules is not None and spec.dim % self.capsules:
            raise ValueError(
                f"{spec.side}.fusion: {self.capsules} capsules do not divide the width {spec.dim}"
            )

    def has_norm(self, spec: StackSpec) -> bool:
        """Whether the result has a norm."""
        return self.norm


class DynamicRoutingConfig(RoutingSection):
    """Layers are routed to the parts of the result by dynamic routing."""

    type: Literal["dynamic_routing"] = "dynamic_routing"

    def build(self, spec: StackSpec) -> Fusion:
        """The fusion of a whole stack."""
        return DynamicRouting(self, spec)


class EMRoutingConfig(RoutingSection):
    """Layers are routed to the parts of the result by expectation maximisation."""

    type: Literal["em_routing"] = "em_routing"
    form: EMForm = Field(
        "hinton",
        description="hinton (the equations), or normalised: weights divided by their sum over the outputs, "
        "so that the activations of the layers cancel (an implementation of other authors)",
    )
    output: Literal["activated", "mean"] = Field(
        "activated", description="the result: mean of a capsule times its activation, or the mean alone"
    )
    inverse_temperature: float = Field(
        0.01, gt=0, le=1000, description="lambda in the activation of the output capsules"
    )

    def build(self, spec: StackSpec) -> Fusion:
        """The fusion of a whole stack."""
        return EMRoutingFusion(self, spec)


class RoutingFusion(Fusion):
    """u_l = F_l([h_1; ...; h_L]) and votes V_ln = W_ln u_l in R^{d/N}; the result is made of them by routing.

    Each h_l has the connection's final norm, if there is one. F_l is a network of its own for every l.
    """

    def __init__(self, config: RoutingSection, spec: StackSpec) -> None:
        super().__init__()
        self.keeps = frozenset(range(1, spec.layers + 1))
        self.capsules = config.capsules or spec.dim
        layers = range(spec.layers)
        self.networks = nn.ModuleList(LayerNetwork(spec, config.input_maps) for _ in layers)
        # Those of all N output capsules below each other.
        self.votes = nn.ModuleList(nn.Linear(spec.dim, spec.dim, bias=False) for _ in layers)
        self.norm = spec.norm() if config.norm else NoNorm()

    def forward(
        self, kept: Sequence[Tensor], normalise: Callable[[Tensor], Tensor], context: Context
    ) -> tuple[Tensor, ...]:
        """One result, `[B, T, d]`."""
        layers = torch.cat([normalise(layer) for layer in kept], -1)
        inputs = torch.stack([network(layers) for network in self.networks], -2)
        return (self.norm(self.route(self.vote(inputs), layers).flatten(-2), context),)

    def vote(self, inputs: Tensor) -> Tensor:
        """The votes `[..., L, N, d / N]` of input capsules `[..., L, d]`."""
        votes = [vote(capsule) for vote, capsule in zip(self.votes, inputs.unbind(-2), strict=True)]
        stacked = torch.stack(votes, -2)
        return stacked.view(*stacked.shape[:-1], self.capsules, -1)

    @abstractmethod
    def route(self, votes: Tensor, layers: Tensor) -> Tensor:
        """Output capsules `[..., N, d / N]` of votes `[..., L, N, d / N]`; `layers` are side by side."""

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """Weights of each layer in the input of each network."""
        return (network_norms("capsules", "Norm of the map from each layer", self.networks),)


class DynamicRouting(RoutingFusion):
    """The result is [o_1; ...; o_N] by dynamic routing, see `deepwire.ops.routing.dynamic_routing`."""

    def __init__(self, config: DynamicRoutingConfig, spec: StackSpec) -> None:
        super().__init__(config, spec)
        self.iterations = config.iterations

    def route(self, votes: Tensor, layers: Tensor) -> Tensor:
        """The output capsules."""
        return dynamic_routing(votes, self.iterations)


class EMRouting(nn.Module):
    """EM routing with learned costs beta_u and beta_a, see `deepwire.ops.routing.em_routing`."""

    def __init__(self, config: EMRoutingConfig, capsules: int) -> None:
        super().__init__()
        self.config = config
        self.beta_u, self.beta_a = (nn.Parameter(torch.zeros(capsules)) for _ in range(2))

    def forward(self, votes: Tensor, activation: Tensor) -> OutputCapsules:
        """Route votes `[..., L, N, c]` of input capsules with activations `[..., L]`."""
        return em_routing(
            votes,
            activation,
            self.beta_u,
            self.beta_a,
            iterations=self.config.iterations,
            inverse_temperature=self.config.inverse_temperature,
            form=self.config.form,
        )


class Activations(nn.Module):
    """a_l = s(G_l([h_1; ...; h_L])), G_l a network like F_l with one output."""

    def __init__(self, spec: StackSpec, maps: int) -> None:
        super().__init__()
        self.networks = nn.ModuleList(LayerNetwork(spec, maps, 1) for _ in range(spec.layers))

    def forward(self, layers: Tensor) -> Tensor:
        """Activations `[B, T, L]` of the layers side by side."""
        return torch.cat([network(layers) for network in self.networks], -1).sigmoid()


class EMRoutingFusion(RoutingFusion):
    """The result is [A_1 mu_1; ...; A_N mu_N] by EM routing; every input capsule has an activation a_l."""

    def __init__(self, config: EMRoutingConfig, spec: StackSpec) -> None:
        super().__init__(config, spec)
        self.activations = Activations(spec, config.input_maps)
        self.activated = config.output == "activated"
        self.routing = EMRouting(config, self.capsules)

    def route(self, votes: Tensor, layers: Tensor) -> Tensor:
        """The output capsules."""
        capsules: OutputCapsules = self.routing(votes, self.activations(layers))
        return capsules.mean * capsules.activation.unsqueeze(-1) if self.activated else capsules.mean

    def gate_probes(self) -> tuple[GateProbe, ...]:
        """The activations of the layers at every position."""
        names = layer_names(len(self.networks))

        def read(_inputs: tuple[Tensor, ...], output: object) -> Mapping[str, Tensor]:
            activations = cast("Tensor", output)  # [B, T, L]
            return dict(zip(names, activations.unbind(-1), strict=True))

        meaning = dict.fromkeys(names, "all of this layer's vote counts")
        place = Place(0, "fusion")
        return (GateProbe("activation of layers", self.activations, (place,), read, meaning),)
