"""What a model has beyond a plain Transformer, as formats of other programs see it."""

from __future__ import annotations

from typing import Literal

import pytest

from deepwire.convert.plain_models import beyond_plain, huggingface_class, not_in_ctranslate2
from deepwire.errors import ModelError
from deepwire.model.config import ModelConfig, StackConfig
from deepwire.model.connections.residual import PreNormConfig
from deepwire.model.mixers.self_attention import SelfAttentionConfig


class LaterMixer(SelfAttentionConfig):
    sharpness: float = 1.0


class LaterConnection(PreNormConfig):
    type: Literal["pre_norm_again"] = "pre_norm_again"  # type: ignore[assignment]


class LaterStack(StackConfig):
    fold: bool = False


class LaterModel(ModelConfig):
    blur: int | None = None
    encoder: StackConfig = LaterStack()


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (LaterModel(blur=2), "blur=2"),
        (LaterModel(encoder=LaterStack(fold=True)), "encoder.fold=true"),
        (ModelConfig(decoder=StackConfig(mixer=LaterMixer(sharpness=2.0))), "decoder.mixer.sharpness=2.0"),
        (ModelConfig(encoder=StackConfig(connection=LaterConnection())), "encoder.connection=pre_norm_again"),
    ],
    ids=str,
)
def test_a_setting_that_no_format_knows_is_refused_by_all(config: ModelConfig, said: str) -> None:
    assert beyond_plain(config, {}) == said
    assert not_in_ctranslate2(config) == said
    with pytest.raises(ModelError, match=said):
        huggingface_class(config)


def test_a_plain_model_is_plain_with_settings_that_nobody_knows_yet() -> None:
    assert beyond_plain(LaterModel(), {}) is None
    assert not_in_ctranslate2(LaterModel()) is None
    assert huggingface_class(LaterModel()) == "pegasus"


FAIRSEQ = {"type": "sinusoidal", "layout": "halves", "first": 2}


def both(connection: object) -> dict[str, object]:
    return {side: {"connection": connection} for side in ("encoder", "decoder")}


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"activation": "glu"}, "activation=glu"),
        (
            {"embeddings": {"norm": True}, **both({"type": "post_norm", "embedding_norm": True})},
            "embeddings.norm=true, a second norm",
        ),
        ({"embeddings": {"side": True}}, "embeddings.side=true"),
        ({"decoder": {"mixer": "average_attention"}}, "decoder.mixer=average_attention"),
        (
            {"encoder": {"mixer": {"type": "self_attention", "relative": 4}}},
            "encoder.mixer.relative beside encoder.positions=sinusoidal",
        ),
        (both({"type": "pre_norm", "residual": "normalised", "final_norm": False}), "final_norm=false"),
        ({"encoder": {"connection": "depth_lstm"}}, "encoder.connection=depth_lstm"),
        ({"inner_norm": True}, "inner_norm=true"),
        ({"decoder": {"fusion": {"type": "groups", "size": 1}}}, "decoder.fusion=groups"),
        ({"encoder": {"size": {"feed_forward": 8}}}, "different sizes"),
        ({"encoder": {"connection": "post_norm"}}, "different connections"),
    ],
    ids=str,
)
def test_ctranslate2_refuses_by_name(settings: dict[str, object], said: str) -> None:
    assert said in (not_in_ctranslate2(ModelConfig.model_validate(settings)) or "")


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"activation": "glu"}, "activation=glu"),
        ({"decoder": {"mixer": "average_attention"}}, "decoder.mixer=average_attention"),
        ({**both("post_norm"), "positions": "learned"}, "positions=learned with post_norm"),
        ({**both("pre_norm"), "positions": {**FAIRSEQ, "first": 0}}, "positions=halves from 0 with pre_norm"),
        ({**both("pre_norm"), "positions": FAIRSEQ}, "bias.output=true"),
        ({**both("pre_norm"), "embeddings": {"tie": "none"}}, "embeddings.tie=none with pre_norm"),
        (both("deepnorm"), "encoder.connection=deepnorm"),
        ({"architecture": "decoder_only"}, "architecture=decoder_only"),
        ({"encoder": {"recurrence": {"prelude": 1, "coda": 1}, "layers": 4}}, "encoder.recurrence"),
        ({"decoder": {"connection": {"type": "pre_norm", "final_norm": False}}}, "final_norm=false"),
        ({"languages": {"norm": True}}, "languages.norm=true"),
        ({"positions": "rotary", "embeddings": {"norm": True}}, "encoder.positions=rotary"),
        ({"decoder": {"size": {"key_value_heads": 2}}}, "decoder.size.key_value_heads=2"),
        ({"norm": "rms"}, "norm=rms"),
        (
            {"parametrization": {"type": "complete_p", "base": {"d_model": 64, "heads": 8}}},
            "parametrization=complete_p",
        ),
    ],
    ids=str,
)
def test_transformers_refuses_by_name(settings: dict[str, object], said: str) -> None:
    config = ModelConfig.model_validate(settings)
    with pytest.raises(ModelError, match=said):
        huggingface_class(config)
