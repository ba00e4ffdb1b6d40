"""A mixer for each layer: which layer has which, what they keep, and what is refused."""

from __future__ import annotations

import pytest

from deepwire.config.settings_reader import from_mapping
from deepwire.errors import UsageError
from deepwire.model.config import ModelConfig
from deepwire.model.kv_cache import KeyValueCache
from deepwire.model.mixers.gla import GLA
from deepwire.model.mixers.linear_rnn import SSRU
from deepwire.model.mixers.self_attention import SelfAttention
from deepwire.testing import batch, check_model, small_model

HYBRID: list[object] = ["self_attention", {"type": "gla", "heads": 2}]


def test_layers_take_the_mixers_in_turn() -> None:
    """From the first again where the list ends, each with its own settings."""
    model = small_model({"decoder": {"layers": 5, "mixer": HYBRID}, "encoder": {"mixer": ["ssru"]}})
    kinds = [type(mixer) for mixer in model.decoder.mixers]
    assert kinds == [SelfAttention, GLA, SelfAttention, GLA, SelfAttention]
    assert model.decoder.mixers[1].heads == 2
    assert all(isinstance(mixer.ahead, SSRU) for mixer in model.encoder.mixers)


def test_layers_keep_what_their_mixers_keep() -> None:
    """Keys and values beside matrices."""
    model = small_model({"decoder": {"mixer": HYBRID}})
    source, target, _ = batch()
    _, state = model.step(target[:, 0], model.start(source))
    assert [isinstance(each, KeyValueCache) for each in state.states] == [True, False, True]


@pytest.mark.parametrize("architecture", ["encoder_decoder", "decoder_only"])
def test_rotary_positions_are_those_of_attention_and_the_others_have_none(architecture: str) -> None:
    """As in hybrids of the field; a stack in which nothing would be turned is refused."""
    settings = {"architecture": architecture, "positions": "rotary", "decoder": {"mixer": HYBRID}}
    if architecture == "encoder_decoder":
        settings["encoder"] = {"mixer": ["mamba2", "self_attention"]}
    check_model(settings)
    turned = [getattr(mixer, "rotary", None) is not None for mixer in small_model(settings).decoder.mixers]
    assert turned == [True, False, True]
    with pytest.raises(
        UsageError, match=r"decoder\.positions: rotary positions turn .* decoder\.mixer is gla"
    ):
        small_model({**settings, "decoder": {"mixer": ["gla", "ssru"]}})


def test_a_record_says_the_list() -> None:
    """And the list in a run file is the record."""
    one = ModelConfig.model_validate({"decoder": {"mixer": HYBRID}})
    other = ModelConfig.model_validate({"decoder": {"mixer": {"type": "per_layer", "mixers": HYBRID}}})
    assert one == other
    assert ModelConfig.model_validate(one.model_dump(mode="json")) == one


@pytest.mark.parametrize(
    ("mixers", "message"),
    [
        (["gla", "glaa"], r"^model: decoder.mixer.1: must be .* \(did you mean gla\?\)$"),
        (["gla", {"type": "gla", "headz": 2}], "decoder.mixer.1.headz: unknown key"),
        (["gla", {"type": "gla", "heads": "x"}], "decoder.mixer.1.heads: must be a whole number, not 'x'"),
    ],
    ids=str,
)
def test_a_mistake_in_the_list_is_told_in_its_place(mixers: list[object], message: str) -> None:
    """One line."""
    with pytest.raises(UsageError, match=message):
        from_mapping(ModelConfig, {"decoder": {"mixer": mixers}}, "model")
