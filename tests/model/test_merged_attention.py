"""Merged attention in models, its options, and what it is made of."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from torch import Tensor

from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.mixers.average_attention import running_mean
from deepwire.model.mixers.merged_attention import MergedAttention, MergedAttentionConfig
from deepwire.testing import SMALL


@pytest.mark.parametrize("value", ["shared", "own"])
def test_it_is_attention_plus_average(value: str) -> None:
    """Head by head from the definition, with the encoder's padding hidden."""
    mixer = mixer_of(value).double()
    x, encoded, bias = torch.randn(2, 5, 16).double(), torch.randn(2, 4, 16).double(), padding_bias()
    query, key, values = mixer.query(x), mixer.key(encoded), mixer.value(encoded)
    heads = []
    for head in range(4):
        part = slice(4 * head, 4 * head + 4)
        scores = query[..., part] @ key[..., part].transpose(1, 2) / 4**0.5 + bias[:, 0]
        heads.append(scores.softmax(-1) @ values[..., part])
    averaged = (mixer.average_value or mixer.value)(x)
    expected = mixer.output(torch.cat(heads, -1) + running_mean(averaged))
    found = mixer(x, Context(memory=(mixer.project(encoded, Context(padding=bias)),)))
    assert torch.allclose(found, expected, atol=1e-9)


def padding_bias() -> Tensor:
    """Hides the last position of the second of two sentences of four positions."""
    bias = torch.zeros(2, 1, 1, 4, dtype=torch.float64)
    bias[1, ..., 3] = float("-inf")
    return bias


def mixer_of(value: str, changes: Mapping[str, object] | None = None) -> MergedAttention:
    """One mixer of a small model."""
    torch.manual_seed(0)
    model = ModelConfig.model_validate({**SMALL, **(changes or {})})
    mixer = MergedAttentionConfig.model_validate({"average_value": value}).build(model.specs()["decoder"])
    assert isinstance(mixer, MergedAttention)
    return mixer
