"""Settings that other programs can compute."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from deepwire.config.section import Section
from deepwire.model.config import ModelConfig
from deepwire.model.connections.connection import ConnectionSection
from deepwire.model.layers import GATES
from deepwire.model.plain_settings import Allowed, beyond_plain

FormatName = Literal[
    "onnx",
    "torch_export",
    "ctranslate2",
    "huggingface",
    "huggingface-code",
    "argos",
    "marian",
]
PLAIN_ACTIVATIONS = ("relu", "gelu", "silu")
_IN_CTRANSLATE2: Allowed = {
    "activation": (*PLAIN_ACTIVATIONS, *GATES),
    **dict.fromkeys(("embeddings.start", "embeddings.norm")),
    **dict.fromkeys(("norm", "parametrization", "key_value_heads", "stack.size.key_value_heads")),
    "stack.mixer.relative": None,
    "stack.positions": ("sinusoidal", "learned", "rotary", "none"),
    # The factors of others than the first three can become part of weights.
    "stack.connection": (
        *("pre_norm", "post_norm", "peri_ln"),
        *("deepnorm", "admin", "branch_norm", "layer_scale", "layer_norm_scaling"),
    ),
    **dict.fromkeys(
        f"stack.connection.{name}"
        for name in (
            *("residual", "final_norm", "embedding_norm"),
            *("residual_scale", "updates", "initial", "output_gain"),
        )
    ),
}


class ExportConfig(Section):
    """Other programs that shall be able to run the model."""

    must_be: tuple[FormatName, ...] = Field(
        (),
        description="formats of 'deepwire export' that the model must fit: a setting that one of them does "
        "not have is refused when the run file is read, before days of training",
    )


_IN_MARIAN: Allowed = {
    "activation": ("relu", "silu"),
    "stack.connection": ("pre_norm", "post_norm"),
    **dict.fromkeys(("stack.connection.residual", "stack.connection.embedding_norm", "embeddings.norm")),
    "embeddings.start": ("zero",),
    "stack.mixer": ("self_attention", "ssru"),
    "stack.positions": ("sinusoidal",),
    "stack.positions.layout": ("halves",),
    "stack.positions.first": (0,),
}
IN_MARIAN = (
    "Marian computes post-norm Transformers, also with decoder.mixer: ssru, with embeddings: {start: zero} "
    "and positions: {type: sinusoidal, layout: halves}"
)
"""What to do with a setting that it does not have."""


def not_in_marian(config: ModelConfig) -> str | None:
    """The setting that Marian does not compute; None if it computes such models.

    With norms in front of sub-layers its self-attention makes keys and values of what is not normalised, so
    that pre-norm is another model there; Neutron's order of norm and residual is post-norm.
    """
    if (setting := beyond_plain(config, _IN_MARIAN)) is not None:
        return setting
    encoder, decoder = config.encoder, config.decoder
    connection = encoder.connection
    others = {
        "encoder.mixer=ssru": encoder.mixer.type == "ssru",
        "encoder.connection=pre_norm": getattr(connection, "residual", "normalised") != "normalised",
        "different connections of encoder and decoder": connection != decoder.connection,
        "different sizes of encoder and decoder": config.size("encoder") != config.size("decoder"),
        "embeddings.norm=true, a second norm of the embedding": config.embeddings.norm
        and getattr(connection, "embedding_norm", True),
    }
    return next((setting for setting, refused in others.items() if refused), None)


def normalises_embedding(connection: ConnectionSection) -> bool:
    """Whether the connection has a norm of the embedding."""
    normalised = getattr(connection, "residual", "input") == "normalised"
    return normalised or bool(getattr(connection, "embedding_norm", False))


def not_in_ctranslate2(config: ModelConfig) -> str | None:
    """The setting that CTranslate2 does not compute; None if it computes such models.

    Those are Transformers with norms before or after sub-layers, also with factors that can be folded into
    weights.
    """
    if (setting := beyond_plain(config, _IN_CTRANSLATE2)) is not None:
        return setting
    for side in config.sides:
        stack = config.stack(side)
        positions = (stack.positions or config.positions).type
        if getattr(stack.mixer, "relative", None) is not None and positions != "none":
            return f"{side}.mixer.relative beside {side}.positions={positions}"
    connection = config.encoder.connection
    others = {
        "encoder.connection.final_norm=false with residual: normalised": not getattr(
            connection, "final_norm", True
        )
        and getattr(connection, "residual", "input") == "normalised",
        "embeddings.norm=true, a second norm of the embedding": config.embeddings.norm
        and normalises_embedding(connection),
        "different connections of encoder and decoder": connection != config.decoder.connection,
        "different sizes of encoder and decoder": config.size("encoder") != config.size("decoder"),
    }
    return next((setting for setting, refused in others.items() if refused), None)
