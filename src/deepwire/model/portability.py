"""What other programs can compute of a model, as its settings say."""

from __future__ import annotations

from typing import Literal

from pydantic import Field

from deepwire.config.section import Section
from deepwire.model.config import ModelConfig
from deepwire.model.connections.admin import AdminConfig
from deepwire.model.connections.pre_norm_variants import LayerNormScalingConfig, LayerScaleConfig
from deepwire.model.connections.residual import PostNormConfig, PreNormConfig
from deepwire.model.connections.scaled_post_norm import BranchNormConfig, DeepNormConfig
from deepwire.model.layers import GATES

FormatName = Literal["onnx", "ctranslate2", "huggingface", "huggingface-code", "argos"]
PLAIN_ACTIVATIONS = ("relu", "gelu")
# Their factors can become part of weights.
_Foldable = DeepNormConfig | AdminConfig | BranchNormConfig | LayerScaleConfig | LayerNormScalingConfig


class ExportConfig(Section):
    """Other programs that shall be able to run the model."""

    must_be: tuple[FormatName, ...] = Field(
        (),
        description="formats of 'deepwire export' that the model must fit: a setting that one of them does "
        "not have is refused when the run file is read, before days of training",
    )


def not_in_ctranslate2(config: ModelConfig, *, several: bool) -> str | None:
    """The setting that CTranslate2 does not compute; None if it computes such models.

    Those are Transformers with norms before or after sub-layers, also with factors that can be folded into
    weights.

    Args:
        config: Of the model.
        several: Whether it has parameters of each of several target languages.
    """
    if config.alone:
        return f"architecture={config.architecture}"
    for name, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        sockets = {"mixer": "self_attention", "aggregation": "last", "fusion": "top"}
        for socket, plain in sockets.items():
            if (kind := getattr(stack, socket).type) != plain:
                return f"{name}.{socket}={kind}"
        if getattr(stack.mixer, "relative", None) is not None:
            return f"{name}.mixer.relative"
        if (stack.positions or config.positions).type == "none":
            return f"{name}.positions=none"
        connection = stack.connection
        if not isinstance(connection, PreNormConfig | PostNormConfig | _Foldable):
            return f"{name}.connection={connection.type}"
        if not getattr(connection, "mixer_norm", True):
            return f"{name}.connection.mixer_norm=false"
        if not getattr(connection, "final_norm", True):
            return f"{name}.connection.final_norm=false"
        if not stack.feed_forward:
            return f"{name}.feed_forward=false"
        if stack.recurrence is not None:
            return f"{name}.recurrence"
        if stack.inner_feed_forward:
            return f"{name}.inner_feed_forward=true"
    embeddings = config.embeddings
    others = {
        "different connections of encoder and decoder": config.encoder.connection
        != config.decoder.connection,
        "different sizes of encoder and decoder": config.size("encoder") != config.size("decoder"),
        f"activation={config.activation}": config.activation not in (*PLAIN_ACTIVATIONS, *GATES),
        "embeddings.norm=true": embeddings.norm,
        "embeddings.side=true": embeddings.side,
        "inner_norm=true": config.inner_norm,
        # CTranslate2 normalises queries and keys of all heads as one vector.
        "qk_norm=true": config.qk_norm,
        f"embeddings.start={embeddings.start}": embeddings.start != "bos",
        "languages, parameters of each language": several,
    }
    return next((setting for setting, refused in others.items() if refused), None)
