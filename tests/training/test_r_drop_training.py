from __future__ import annotations

import pytest
import torch

from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig

SHAPE = {"d_model": 8, "heads": 2, "feed_forward": 8, "encoder": {"layers": 1}, "decoder": {"layers": 2}}


@pytest.mark.parametrize("fusion", ["top", {"type": "groups", "size": 1}])
def test_without_dropout_it_is_plain_training(fusion: object) -> None:
    torch.manual_seed(1)
    decoder = {"layers": 2, "fusion": fusion}
    model = build_model(ModelConfig.model_validate({**SHAPE, "dropout": 0, "decoder": decoder}), 12, 12)
    source, target = torch.randint(3, 12, (3, 6)), torch.randint(3, 12, (3, 5))
    target[0, 3:] = 0
    gradients = []
    for r_drop in (0.0, 5.0):
        model.zero_grad()
        sums = model.loss(source, target, target, 0.1, "uniform", r_drop)
        sums.smoothed.backward()
        gradients.append({name: one.grad for name, one in model.named_parameters() if one.grad is not None})
        if r_drop:
            assert sums.divergence is not None
            assert float(sums.divergence) == pytest.approx(0, abs=1e-5)
        else:
            assert sums.divergence is None
            plain = sums
    torch.testing.assert_close(sums[:3], plain[:3])
    torch.testing.assert_close(gradients[1], gradients[0])


def test_each_row_keeps_its_language_in_both_passes() -> None:
    torch.manual_seed(1)
    own = {"norm": True, "embedding": "both", "output_bias": True}
    shape = ModelConfig.model_validate({**SHAPE, "dropout": 0, "languages": own})
    model = build_model(shape, 12, 12, languages=3)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter))
    source, target = torch.randint(3, 12, (3, 6)), torch.randint(3, 12, (3, 5))
    plain, twice = (
        model.loss(source, target, target, 0.1, "uniform", alpha, languages=torch.tensor([2, 0, 1]))
        for alpha in (0.0, 5.0)
    )
    torch.testing.assert_close(twice[:3], plain[:3])
    assert twice.divergence is not None
    assert float(twice.divergence) == pytest.approx(0, abs=1e-4)


def test_two_passes_of_one_batch_differ_by_their_dropout() -> None:
    torch.manual_seed(1)
    model = build_model(ModelConfig.model_validate({**SHAPE, "dropout": 0.3}), 12, 12).train()
    source, target = torch.randint(3, 12, (3, 6)), torch.randint(3, 12, (3, 5))
    torch.manual_seed(2)
    sums = model.loss(source, target, target, 0.1, "uniform", 4.0)
    torch.manual_seed(2)
    log_probs = model.log_probs(source.repeat(2, 1), target.repeat(2, 1)).view(2, 15, 12)
    first, second = log_probs
    divergence = 0.5 * ((first.exp() - second.exp()) * (first - second)).sum()
    at_target = log_probs.gather(2, target.flatten().expand(2, -1).unsqueeze(2)).sum()
    smoothed = -(0.9 * at_target + 0.1 / 12 * log_probs.sum())
    assert float(divergence.detach()) > 0.1
    torch.testing.assert_close(sums.divergence, divergence.detach())
    torch.testing.assert_close(sums.smoothed, (smoothed + 4.0 * divergence) / 2)
    torch.testing.assert_close(sums.nll, -at_target.detach() / 2)
