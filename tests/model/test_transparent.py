"""Transparent attention: mixtures and initial weights."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import torch
from torch import Tensor

from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.fusions.transparent import Transparent, TransparentConfig
from deepwire.testing import small_model

CONTEXT = replace(ModelConfig().specs()["encoder"], layers=3, other_layers=2)


def fusion(**settings: object) -> Transparent:
    """The fusion of 3 encoder layers for 2 decoder layers."""
    built = TransparentConfig.model_validate(settings).build(CONTEXT)
    assert isinstance(built, Transparent)
    return built


def test_each_decoder_layer_gets_its_mixture() -> None:
    """The weighted sums, written out, of what the connection's final norm makes of the layers."""
    built = fusion().eval()
    with torch.no_grad():
        built.weights.normal_()
        kept = list(torch.randn(4, 2, 5, 6).unbind(0))
        mixed = built(kept, torch.tanh, Context())
    assert built.keeps == {0, 1, 2, 3}
    assert len(mixed) == 2
    for decoder_layer, found in enumerate(mixed):
        shares = built.weights[:, decoder_layer].exp()
        shares = shares / shares.sum()
        wanted = sum(
            (share * layer.tanh() for share, layer in zip(shares, kept, strict=True)), torch.tensor(0)
        )
        assert torch.allclose(found, wanted, atol=1e-6)


def test_equal_shares_at_first() -> None:
    """Weights of zero give the mean of the layers to every decoder layer."""
    kept = list(torch.randn(4, 2, 5, 6).unbind(0))
    for found in fusion(dropout=0.0)(kept, lambda x: x, Context()):
        assert torch.allclose(found, torch.stack(kept).mean(0), atol=1e-6)


def test_decoder_layers_attend_to_their_own_mixture() -> None:
    """Changing one column of W changes that decoder layer's memory alone."""
    model = small_model({"encoder": {"fusion": "transparent"}})
    source = torch.tensor([[4, 9, 5, 17, 2]])

    def keys() -> Sequence[Tensor]:
        return [memory.key for memory in model.start(source).context.memory]

    with torch.no_grad():
        before = keys()
        model.get_parameter("encoder.fusion.weights")[0, 1] += 2.0
        after = keys()
    assert [torch.equal(*pair) for pair in zip(before, after, strict=True)] == [True, False, True]
