"""Transparent attention: mixtures, initial weights, dropout, sizes, and whole models with it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import pytest
import torch
from torch import Tensor

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.fusions.transparent import Transparent, TransparentConfig
from deepwire.model.stack_spec import DropoutConfig
from deepwire.testing import small_model

CONTEXT = replace(ModelConfig().specs()["encoder"], layers=3, other_layers=2)
TRANSPARENT = {"fusion": "transparent"}


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


@pytest.mark.parametrize(("initial", "bound"), [("uniform", 4**-0.5), ("released", 2**-0.5)])
def test_uniform_initial_weights(initial: str, bound: float) -> None:
    """Within the bound, and filling it: of 800 numbers one comes close."""
    torch.manual_seed(0)
    weights = torch.stack([fusion(initial=initial).weights for _ in range(100)])
    assert weights.abs().max() <= bound
    assert weights.abs().max() > 0.97 * bound


def test_dropout_is_on_the_weights_before_the_softmax() -> None:
    """In training some weights count as zero and the others more, so the shares still sum to one."""
    torch.manual_seed(0)
    built = fusion(dropout=0.5)
    with torch.no_grad():
        built.weights.fill_(1.0)[0] = 3.0
    seen = {tuple(sorted(built.shares()[:, 0].tolist())) for _ in range(200)}
    assert len(seen) > 1
    assert all(abs(sum(shares) - 1) < 1e-5 for shares in seen)
    assert any(max(shares) == pytest.approx(0.25) for shares in seen)  # all dropped: equal shares
    built.eval()
    assert torch.equal(built.shares(), built.weights.softmax(0))


def test_dropout_is_that_of_sublayers_unless_set() -> None:
    """`model.dropout.sublayer`, or the fusion's own."""
    context = replace(CONTEXT, dropout=DropoutConfig.model_validate({"sublayer": 0.3}))
    for config, expected in ((TransparentConfig(), 0.3), (TransparentConfig(dropout=0.2), 0.2)):
        built = config.build(context)
        assert isinstance(built, Transparent)
        assert built.dropout.probability == expected


def test_decoder_layers_attend_to_their_own_mixture() -> None:
    """Changing one column of W changes that decoder layer's memory alone."""
    model = small_model({"encoder": TRANSPARENT})
    source = torch.tensor([[4, 9, 5, 17, 2]])

    def keys() -> Sequence[Tensor]:
        return [memory.key for memory in model.start(source).context.memory]

    with torch.no_grad():
        before = keys()
        model.get_parameter("encoder.fusion.weights")[0, 1] += 2.0
        after = keys()
    assert [torch.equal(*pair) for pair in zip(before, after, strict=True)] == [True, False, True]


def test_size_of_the_published_model() -> None:
    """Xu et al. 2024, Table 6: 16 and 6 layers, 93.87M, of which W has (16 + 1) x 6."""
    sizes = []
    for changes in (TRANSPARENT, {}):
        config = ModelConfig.model_validate(
            {
                "encoder": {
                    "layers": 16,
                    "connection": {"type": "post_norm", "embedding_norm": True},
                    **changes,
                },
                "decoder": {"layers": 6, "connection": {"type": "post_norm", "embedding_norm": True}},
            }
        )
        with torch.device("meta"):
            model = build_model(config, 35_627, 35_627)
        sizes.append(sum(parameter.numel() for parameter in model.parameters()))
    assert sizes[0] - sizes[1] == 17 * 6
    assert f"{sizes[0] / 1e6:.2f}" == "93.87"
