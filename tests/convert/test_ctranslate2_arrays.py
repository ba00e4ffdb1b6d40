"""The arrays that CTranslate2 is given: a Transformer computed from them as CTranslate2 does it."""

from __future__ import annotations

from collections.abc import Mapping

import pytest
import torch

from deepwire.convert.ctranslate2 import arrays_of
from deepwire.errors import ModelError
from deepwire.model.build import build_model
from deepwire.model.config import ModelConfig
from deepwire.model.translation_model import TranslationModel

D, HEADS, WORDS = 16, 4, 30


def model_of(connection: Mapping[str, object], **settings: object) -> TranslationModel:
    torch.manual_seed(1)
    stacks = {side: {"layers": 2, "connection": connection} for side in ("encoder", "decoder")}
    small = {"d_model": D, "heads": HEADS, "feed_forward": 24, "norm_eps": 1e-5}
    model = build_model(ModelConfig.model_validate({**small, **stacks, **settings}), WORDS, WORDS).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    return model


def both(connection: object) -> dict[str, object]:
    """Settings with that connection on both sides."""
    return {side: {"layers": 2, "connection": connection} for side in ("encoder", "decoder")}


@pytest.mark.parametrize(
    ("named", "settings"),
    [
        ("activation=glu", {"activation": "glu"}),
        (
            "embeddings.norm=true, a second norm",
            {"embeddings": {"norm": True}, **both({"type": "post_norm", "embedding_norm": True})},
        ),
        ("embeddings.side=true", {"embeddings": {"side": True}}),
        ("decoder.mixer=average_attention", {"decoder": {"layers": 2, "mixer": "average_attention"}}),
        (
            "encoder.mixer.relative beside encoder.positions=sinusoidal",
            {"encoder": {"mixer": {"type": "self_attention", "relative": 4}}},
        ),
        ("final_norm=false", both({"type": "pre_norm", "residual": "normalised", "final_norm": False})),
        ("encoder.connection=depth_lstm", {"encoder": {"layers": 2, "connection": "depth_lstm"}}),
        ("inner_norm=true", {"inner_norm": True}),
        ("decoder.fusion=groups", {"decoder": {"layers": 2, "fusion": {"type": "groups", "size": 1}}}),
        ("different sizes", {"encoder": {"size": {"feed_forward": 8}}}),
        ("different connections", {"encoder": {"connection": "post_norm"}}),
    ],
    ids=str,
)
def test_what_ctranslate2_does_not_compute_is_refused_by_name(
    named: str, settings: dict[str, object]
) -> None:
    with pytest.raises(ModelError, match=named.replace(".", r"\.")):
        arrays_of(model_of({"type": "pre_norm"}, **settings))
