"""Average attention in models, its options, and the mean that it keeps."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from deepwire.model.config import ModelConfig
from deepwire.model.context import Context
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.mixers.average_attention import (
    AverageAttention,
    AverageAttentionConfig,
    running_mean,
)
from deepwire.testing import SMALL


@settings(max_examples=20, deadline=None)
@given(seed=st.integers(0, 2**31), length=st.integers(1, 40), scale=st.sampled_from([1e-3, 1.0, 1e3]))
def test_steps_add_up_to_the_cumulative_mean(seed: int, length: int, scale: float) -> None:
    """The running sum of the steps gives what the whole sequence gives, at every length and size."""
    torch.manual_seed(seed)
    # In double precision, as a gate near its middle turns a rounding of large numbers into a visible one.
    mixer = mixer_of(AverageAttentionConfig(feed_forward="none")).double()
    x = scale * torch.randn(2, length, 16, dtype=torch.float64)
    with torch.no_grad():
        whole = mixer(x, Context())
        state = mixer.init_state(2, x)
        for position in range(length):
            found, state = mixer.step(
                x[:, position : position + 1], state, Context(index=CacheIndex(len(x), position=position))
            )
            assert torch.allclose(found[:, 0], whole[:, position], atol=1e-9 * scale, rtol=1e-9)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float64])
def test_sums_are_no_narrower_than_float32(dtype: torch.dtype) -> None:
    """In bfloat16 a sum of ones alone would stop growing at 256; in float64 nothing is rounded to float32."""
    x = torch.ones(1, 600, 2, dtype=dtype) + (2**-40 if dtype == torch.float64 else 0)
    assert torch.equal(running_mean(x)[0, -1], x[0, -1])
    mixer = mixer_of(AverageAttentionConfig(feed_forward="none")).to(dtype)
    with torch.no_grad():
        state = mixer.init_state(1, x)
        step = x[:, :1, :1].expand(1, 1, 16)
        for position in range(300):
            _, state = mixer.step(step, state, Context(index=CacheIndex(1, position=position)))
    assert state[0].dtype == torch.promote_types(dtype, torch.float32)
    assert torch.allclose(state[0] / 300, step.to(state[0].dtype))


@pytest.mark.parametrize(
    ("given", "of_model", "biases"),
    [
        ({}, "first", (True, False)),
        ({}, "none", (False, False)),
        ({"feed_forward": "normalised"}, "both", (False, False)),
    ],
)
def test_biases_of_the_network(given: Mapping[str, str], of_model: str, biases: tuple[bool, bool]) -> None:
    """They follow the model unless the network has a norm; the gates always have one."""
    mixer = mixer_of(AverageAttentionConfig.model_validate(dict(given)), {"bias": {"feed_forward": of_model}})
    network = mixer.feed_forward
    assert network is not None
    assert (network.input.bias is not None, network.output.bias is not None) == biases
    assert mixer.gates.bias is not None


def mixer_of(config: AverageAttentionConfig, changes: Mapping[str, object] | None = None) -> AverageAttention:
    """One mixer of a small model."""
    model = ModelConfig.model_validate({**SMALL, **(changes or {})})
    mixer = config.build(model.specs()["decoder"])
    assert isinstance(mixer, AverageAttention)
    return mixer
