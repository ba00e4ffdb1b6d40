"""The pass over prompts (prefill): what mixers continue from, and the state that it leaves."""

from __future__ import annotations

import pytest
import torch
from choices import choices

from deepwire.model.context import Context
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.mixers.mixer import Mixer, one_by_one
from deepwire.testing import check_prompts, small_model

ALONE = {"architecture": "decoder_only"}


def of_decoder(name: dict[str, object]) -> dict[str, object]:
    """A model with a mixer in the decoder; its encoder too, where the mixer works in both or not at all."""
    encoder = {"luna": {"mixer": "luna"}}.get(str(name["type"]), {})
    return {"encoder": encoder, "decoder": {"mixer": name}}


@pytest.mark.parametrize("mixer", choices("mixer", "decoder"), ids=str)
def test_targets_are_prompts_of_models_with_an_encoder(mixer) -> None:
    with torch.no_grad():
        check_prompts(small_model(of_decoder(mixer)).double())


@pytest.mark.parametrize("mixer", ["gla", "mamba2", "mlstm", "gated_deltanet", "min_lstm", "gru", "mhplstm"])
def test_steps_that_are_made_at_once_give_the_state_of_single_ones(mixer: str) -> None:
    """Longer than any chunk, and from a state that has read something."""
    decoder = {"mixer": mixer, "layers": 1}
    whole = small_model({**ALONE, "d_model": 16, "decoder": decoder}).double()
    one = whole.decoder.mixers[0]
    assert isinstance(one, Mixer)
    torch.manual_seed(1)
    x = torch.randn(2, 150, 16, dtype=torch.float64)
    index = CacheIndex(2)
    with torch.no_grad():
        _, begun = one.step(x[:, :20], one.init_state(2, x), Context(index=index))
        outputs, after = one.step(x[:, 20:], begun, Context(index=index.at(20)))
        expected, state = one_by_one(one, x, one.init_state(2, x), Context(index=index))
    torch.testing.assert_close(outputs, expected[:, 20:], atol=1e-10, rtol=1e-8)
    for found, wanted in zip(after, state, strict=True):
        torch.testing.assert_close(found, wanted, atol=1e-10, rtol=1e-8)
