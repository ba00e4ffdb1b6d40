"""Multi-layer representation fusion: the reconstructed equations, settings, and whole models."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.fusions.mlrf import AttentionFusion, FeedForwardFusion, LinearFusion, MLRFConfig

CONTEXT = replace(
    ModelConfig.model_validate({"d_model": 8, "heads": 2, "feed_forward": 12}).specs()["decoder"], layers=3
)


def norm(x: Tensor) -> Tensor:
    """The norm of a fused result as it begins."""
    return functional.layer_norm(x, (8,), eps=CONTEXT.norm_eps)


@pytest.fixture
def kept() -> list[Tensor]:
    """The embedding and three layers, [2, 5, 8] each."""
    return list(torch.randn(4, 2, 5, 8, generator=torch.Generator().manual_seed(0)).unbind(0))


def test_linear(kept: list[Tensor]) -> None:
    """Shares of a softmax, equal at first, of what the connection's final norm makes of the layers."""
    fusion = MLRFConfig(form="linear").build(CONTEXT)
    assert isinstance(fusion, LinearFusion)
    assert fusion.keeps == {0, 1, 2, 3}
    (found,) = fusion(kept, torch.tanh, Context())
    assert torch.allclose(found, norm(torch.stack(kept).tanh().mean(0)), atol=1e-5)
    with torch.no_grad():
        fusion.weights.copy_(torch.tensor([0.0, 1.0, -1.0, 2.0]))
    shares = fusion.weights.exp() / fusion.weights.exp().sum()
    (found,) = fusion(kept, lambda x: x, Context())
    assert torch.allclose(found, norm((shares.view(4, 1, 1, 1) * torch.stack(kept)).sum(0)), atol=1e-5)


def test_feed_forward(kept: list[Tensor]) -> None:
    """Two linear maps with biases over the layers side by side."""
    torch.manual_seed(0)
    fusion = MLRFConfig(form="feed_forward").build(CONTEXT).eval()
    assert isinstance(fusion, FeedForwardFusion)
    (found,) = fusion(kept, lambda x: x, Context())
    hidden = (torch.cat(kept, -1) @ fusion.input.weight.t() + fusion.input.bias).clamp(min=0)
    assert hidden.size(-1) == 12
    assert torch.allclose(found, norm(hidden @ fusion.output.weight.t() + fusion.output.bias), atol=1e-5)


def test_attention(kept: list[Tensor]) -> None:
    """At one position: scores of its four layers, a softmax for each hop, weighted sums side by side."""
    torch.manual_seed(0)
    fusion = MLRFConfig(hops=3, hidden=5).build(CONTEXT).eval()
    assert isinstance(fusion, AttentionFusion)
    (found,) = fusion(kept, lambda x: x, Context())
    layers = torch.stack([layer[1, 2] for layer in kept])
    scores = ((layers + fusion.layer_embedding) @ fusion.input.weight.t()).tanh() @ fusion.score.weight.t()
    weights = scores.exp() / scores.exp().sum(0)
    assert weights.shape == (4, 3)
    hops = [(weights[:, hop : hop + 1] * layers).sum(0) for hop in range(3)]
    wanted = norm(torch.cat(hops) @ fusion.output.weight.t() + fusion.output.bias)
    assert torch.allclose(found[1, 2], wanted, atol=1e-5)
