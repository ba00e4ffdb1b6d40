"""Layer aggregation by routing and dynamic combination: equations by hand, settings, sizes, whole models."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, cast

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.fusions.routing import (
    DynamicCombination,
    DynamicCombinationConfig,
    DynamicRouting,
    DynamicRoutingConfig,
    EMRoutingConfig,
    EMRoutingFusion,
)
from deepwire.model.layers import NoNorm
from deepwire.model.meta_init import meta_model
from deepwire.ops.routing import dynamic_routing, em_routing, squash

CONTEXT = replace(
    ModelConfig.model_validate({"d_model": 8, "heads": 2, "feed_forward": 12}).specs()["decoder"], layers=3
)
L, N, C = 3, 2, 4


@pytest.fixture
def kept() -> list[Tensor]:
    """Three layers, [2, 5, 8] each."""
    return list(torch.randn(3, 2, 5, 8, generator=torch.Generator().manual_seed(0)).unbind(0))


@pytest.fixture
def votes() -> Tensor:
    """Of one position, [3, 2, 4]."""
    return torch.randn(L, N, C, generator=torch.Generator().manual_seed(1))


def test_squash_keeps_the_direction_and_bounds_the_length() -> None:
    x = torch.tensor([3.0, 4.0])
    torch.testing.assert_close(squash(x), 25 / 26 * x / 5)
    assert not squash(torch.zeros(2)).any()


def m_step(votes: Tensor, weight: Tensor, beta_u: Tensor, beta_a: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Hinton et al. 2018, procedure 1, M-step with lambda 2, output by output."""
    means, variances, active = [], [], []
    for n in range(N):
        share = weight[:, n] / weight[:, n].sum()
        means.append(sum((share[layer] * votes[layer, n] for layer in range(L)), torch.zeros(C)))
        spread = [(votes[layer, n] - means[n]) ** 2 * share[layer] for layer in range(L)]
        variances.append(sum(spread, torch.zeros(C)))
        cost = ((beta_u[n] + variances[n].sqrt().log()) * weight[:, n].sum()).sum()
        active.append(torch.sigmoid(2 * (beta_a[n] - cost)))
    return torch.stack(means), torch.stack(variances), torch.stack(active)


def test_em_routing_number_by_number(votes: Tensor) -> None:
    """Two M-steps with an E-step between them; input activations weigh the votes and get a gradient."""
    activation = torch.tensor([0.9, 0.3, 0.6], requires_grad=True)
    beta_u, beta_a = torch.tensor([0.2, -0.1]), torch.tensor([0.5, 0.1])
    weight = activation.unsqueeze(1) / N * torch.ones(1, N)
    mean, variance, active = m_step(votes, weight, beta_u, beta_a)
    density = torch.distributions.Normal(mean, variance.sqrt()).log_prob(votes).sum(-1).exp()
    routing = active * density / (active * density).sum(1, keepdim=True)
    mean, _, active = m_step(votes, activation.unsqueeze(1) * routing, beta_u, beta_a)
    found = em_routing(votes, activation, beta_u, beta_a, iterations=2, inverse_temperature=2.0)
    torch.testing.assert_close(found.routing, routing, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.mean, mean, rtol=1e-4, atol=1e-5)
    torch.testing.assert_close(found.activation, active, rtol=1e-4, atol=1e-5)
    (gradient,) = torch.autograd.grad(found.mean.sum(), activation)
    assert gradient.abs().max() > 1e-2


def network(module: Any, layers: Tensor) -> Tensor:
    """A layer's network written out."""
    x = layers @ module.maps[0].weight.t() + module.maps[0].bias
    for linear in module.maps[1:]:
        x = x.clamp(min=0) @ linear.weight.t() + linear.bias
    return cast("Tensor", x)


def test_dynamic_combination(kept: list[Tensor]) -> None:
    """Every feature of every layer has a weight of its own, made from all layers."""
    fusion = DynamicCombinationConfig(maps=2).build(CONTEXT).eval()
    assert isinstance(fusion, DynamicCombination)
    assert fusion.keeps == {1, 2, 3}
    (found,) = fusion(kept, torch.tanh, Context())
    layers = [layer.tanh() for layer in kept]
    side_by_side = torch.cat(layers, -1)
    wanted = sum(network(fusion.networks[number], side_by_side) * layers[number] for number in range(3))
    torch.testing.assert_close(found, wanted)


def test_fusions_route_what_their_networks_make(kept: list[Tensor]) -> None:
    """Input capsules, votes and activations of the fusions; capsules lie side by side in the result."""
    layers = torch.cat([layer.tanh() for layer in kept], -1)
    dynamic = DynamicRoutingConfig(capsules=2, input_maps=2, norm=False).build(CONTEXT).eval()
    assert isinstance(dynamic, DynamicRouting)
    votes = torch.stack(
        [
            (network(dynamic.networks[number], layers) @ dynamic.votes[number].weight.t()).view(2, 5, 2, 4)
            for number in range(3)
        ],
        2,
    )
    (found,) = dynamic(kept, torch.tanh, Context())
    torch.testing.assert_close(found, dynamic_routing(votes, 3).view(2, 5, 8))
    by_em = EMRoutingConfig(capsules=2, input_maps=2, norm=False).build(CONTEXT).eval()
    assert isinstance(by_em, EMRoutingFusion)
    by_em.networks, by_em.votes = dynamic.networks, dynamic.votes
    activation = torch.cat([network(each, layers) for each in by_em.activations.networks], -1).sigmoid()
    betas = torch.zeros(2)
    routed = em_routing(votes, activation, betas, betas, iterations=3, inverse_temperature=0.01)
    (found,) = by_em(kept, torch.tanh, Context())
    wanted = (routed.mean * routed.activation.unsqueeze(-1)).view(2, 5, 8)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)
    assert isinstance(by_em.norm, NoNorm)
    by_em.activated, by_em.norm = False, CONTEXT.norm()
    (found,) = by_em(kept, torch.tanh, Context())
    wanted = functional.layer_norm(routed.mean.view(2, 5, 8), (8,), eps=CONTEXT.norm_eps)
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("fusion", "squares"),
    [
        ("dynamic_combination", 8),
        ({"type": "dynamic_routing", "input_maps": 6}, 12),
        ({"type": "em_routing", "input_maps": 4}, 18),
    ],
)
def test_six_layers_add_the_published_number_of_squares(fusion: object, squares: int) -> None:
    """d^2 for each layer of either side: 25.1M, 37.8M and 56.8M of the paper's base model, biases aside."""

    def weights(model: dict[str, Any]) -> int:
        config = ModelConfig.model_validate({"d_model": 64, "heads": 4, **model})
        parameters = meta_model(config, 100, 100).named_parameters()
        return sum(value.numel() for name, value in parameters if value.dim() == 2)

    plain = weights({})
    fused = weights({side: {"fusion": fusion} for side in ("encoder", "decoder")})
    activations = 12 * 64 if squares == 18 else 0
    assert fused - plain == 12 * squares * 64**2 + activations
