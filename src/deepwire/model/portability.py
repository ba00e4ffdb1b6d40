"""What other programs can compute of a model, as its settings say."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from deepwire.config.section import Section
from deepwire.model.config import ModelConfig
from deepwire.model.layers import GATES
from deepwire.model.plain_settings import Allowed, beyond_plain

FormatName = Literal["onnx", "ctranslate2", "huggingface", "huggingface-code", "argos"]
PLAIN_ACTIVATIONS = ("relu", "gelu")
_IN_CTRANSLATE2: Allowed = {
    "activation": (*PLAIN_ACTIVATIONS, *GATES),
    **dict.fromkeys(("norm", "parametrization", "key_value_heads", "stack.size.key_value_heads")),
    "stack.positions": ("sinusoidal", "learned", "rotary"),
    # The factors of others than the first two can become part of weights.
    "stack.connection": (
        *("pre_norm", "post_norm"),
        *("deepnorm", "admin", "branch_norm", "layer_scale", "layer_norm_scaling"),
    ),
    **dict.fromkeys(
        f"stack.connection.{name}"
        for name in ("residual", "embedding_norm", "residual_scale", "updates", "initial")
    ),
}


class ExportConfig(Section):
    """Other programs that shall be able to run the model."""

    must_be: tuple[FormatName, ...] = Field(
        (),
        description="formats of 'deepwire export' that the model must fit: a setting that one of them does "
        "not have is refused when the run file is read, before days of training",
    )


def not_in_ctranslate2(config: ModelConfig) -> str | None:
    """The setting that CTranslate2 does not compute; None if it computes such models.

    Those are Transformers with norms before or after sub-layers, also with factors that can be folded into
    weights.
    """
    if (setting := beyond_plain(config, _IN_CTRANSLATE2)) is not None:
        return setting
    others = {
        "different connections of encoder and decoder": config.encoder.connection
        != config.decoder.connection,
        "different sizes of encoder and decoder": config.size("encoder") != config.size("decoder"),
    }
    return next((setting for setting, refused in others.items() if refused), None)
