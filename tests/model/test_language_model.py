"""The language model: what a token sees, and that steps are the whole pass."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from deepwire.model.build import EOS_ID, build_model
from deepwire.model.config import ModelConfig
from deepwire.model.decoder_only import LanguageModel
from deepwire.model.translation_model import TranslationModel

VOCABULARY = 20


def built(**decoder: object) -> TranslationModel:
    config = ModelConfig.model_validate(
        {
            "architecture": "decoder_only",
            "d_model": 16,
            "heads": 2,
            "feed_forward": 32,
            "decoder": {"layers": 2, **decoder},
        }
    )
    return build_model(config, 0, VOCABULARY).eval()


def log_probs(model: TranslationModel, tokens: Tensor) -> Tensor:
    return model.log_probs(tokens.new_zeros(tokens.size(0), 0), tokens)


@pytest.mark.parametrize(
    "decoder",
    [
        {},
        {"connection": "depth_lstm", "mixer": "mamba2"},
        {"connection": "hyper", "mixer": ["self_attention", "gla"]},
    ],
)
@torch.no_grad()
def test_steps_are_the_whole_pass(decoder: dict[str, object]) -> None:
    model = built(**decoder)
    assert isinstance(model, LanguageModel)
    tokens = torch.randint(4, VOCABULARY, (3, 7))
    whole = log_probs(model, tokens)
    state = model.start(tokens.new_zeros(3, 0))
    for place in range(7):
        step, state = model.step(tokens[:, place], state)
        torch.testing.assert_close(step, whole[:, place], atol=1e-5, rtol=1e-5)
    prompted = model.start(tokens.new_zeros(3, 0), prompt=tokens[:, :6])
    torch.testing.assert_close(model.step(tokens[:, 6], prompted)[0], whole[:, 6], atol=1e-5, rtol=1e-5)


@torch.no_grad()
def test_a_token_sees_earlier_documents_of_its_block_and_no_later_token() -> None:
    model = built()
    tokens = torch.tensor([[EOS_ID, 5, 6, EOS_ID, 7, 8, EOS_ID, 9]])
    before = log_probs(model, tokens)
    for place in range(1, 8):
        changed = tokens.clone()
        changed[0, place] = 10
        difference = (log_probs(model, changed) - before).abs().amax(-1)[0]
        assert difference[:place].max() == 0
        # An end symbol is a token like others, not a wall.
        assert (difference[place:] > 0).all()
