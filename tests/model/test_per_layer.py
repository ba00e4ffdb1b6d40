"""A mixer for each layer: which layer has which, what they keep, and what is refused."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
from pydantic import ValidationError

from deepwire.config.settings_reader import from_mapping
from deepwire.config.unused_settings import canonical_settings
from deepwire.errors import UsageError
from deepwire.model.config import ModelConfig
from deepwire.model.kv_cache import KeyValueCache
from deepwire.model.mixers.gla import GLA
from deepwire.model.mixers.linear_rnn import SSRU
from deepwire.model.mixers.self_attention import SelfAttention
from deepwire.testing import batch, check_mixer, check_model, small_model

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


@pytest.mark.parametrize(
    "mixers", [HYBRID, ["mamba2", "gated_deltanet", "mlstm"], ["atr", "self_attention"]], ids=str
)
def test_in_models(mixers: list[object]) -> None:
    """Gradients, padding, causality, steps, beams and records, on either side."""
    check_mixer({"type": "per_layer", "mixers": mixers})
    check_model(
        {
            "encoder": {"mixer": mixers, "connection": "post_norm", "fusion": "groups"},
            "decoder": {"mixer": mixers, "connection": "depth_lstm", "aggregation": "dlcl"},
        }
    )


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
    ("wanted", "message"),
    [
        ({"mixer": []}, "must name one mixer at least"),
        ({"mixer": ["gla", "luna"]}, "luna works in all layers of a stack or in none"),
        ({"mixer": ["lime"]}, "lime works in all layers of a stack or in none"),
        (
            {"mixer": ["merged_attention", "gla"]},
            "merged_attention works in all layers of a stack or in none",
        ),
        ({"mixer": [["gla"]]}, "valid dictionary"),
        ({"mixer": [{"type": "per_layer"}]}, "made of mixers, not of lists"),
        (
            {"mixer": ["gla", {"type": "mhplstm", "heads": 17, "hidden": "one_layer"}]},
            "too small for 17 heads",
        ),
        (
            {"mixer": ["gla", "self_attention"], "connection": "rnmt"},
            "reads vectors of width",
        ),
        (
            {"mixer": ["gla", "self_attention"], "aggregation": {"type": "mudd", "ways": 4}},
            "decoder.mixer does not take them",
        ),
        ({"mixer": ["gla", "ssru", "mlstm"], "layers": 2}, "decoder.mixer: 3 mixers for 2 layers"),
    ],
    ids=str,
)
def test_what_does_not_fit_is_refused(wanted: Mapping[str, object], message: str) -> None:
    """With the settings, before anything is built."""
    settings = {"d_model": 16, "heads": 4, "embeddings": {"tie": "none"}, "decoder": wanted}
    with pytest.raises(ValidationError, match=message):
        ModelConfig.model_validate(settings)


@pytest.mark.parametrize(
    ("mixers", "message"),
    [
        (["gla", "glaa"], r"^model: decoder.mixer.1: must be .* \(did you mean gla\?\)$"),
        (["gla", {"type": "gla", "headz": 2}], "decoder.mixer.1.headz: unknown key"),
        (["gla", {"type": "gla", "heads": "x"}], "decoder.mixer.1.heads: must be a whole number, not 'x'"),
        (["gla", {"type": "self_attention", "relative_values": True}], "relative_values: true has no effect"),
    ],
    ids=str,
)
def test_a_mistake_in_the_list_is_told_in_its_place(mixers: list[object], message: str) -> None:
    """One line."""
    with pytest.raises(UsageError, match=message):
        from_mapping(ModelConfig, {"decoder": {"mixer": mixers}}, "model")


def test_what_a_mixer_of_the_list_does_not_use_makes_no_other_model() -> None:
    """Settings that mean the same are the same."""
    plain, other = (
        ModelConfig.model_validate({"decoder": {"mixer": ["gla", {"type": "self_attention", **more}]}})
        for more in ({}, {"relative_values": True})
    )
    assert canonical_settings(plain) == canonical_settings(other)
