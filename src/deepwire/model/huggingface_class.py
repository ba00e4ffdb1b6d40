"""Which class of Hugging Face's transformers computes what a model computes, as its settings say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from deepwire.model.config import ModelConfig
from deepwire.model.connections.residual import PostNormConfig, PreNormConfig
from deepwire.model.embedding import PositionsConfig, SinusoidalConfig
from deepwire.model.plain_settings import Allowed, beyond_plain

ModelType = Literal["marian", "pegasus", "bart", "mbart", "m2m_100"]
NORM_EPS = 1e-5
"""Epsilon of every layer norm of these classes."""
_IN_TRANSFORMERS: Allowed = {
    "activation": ("relu", "gelu", "silu"),
    "stack.connection": ("pre_norm", "post_norm"),
    **dict.fromkeys(("stack.connection.residual", "stack.connection.embedding_norm")),
    "embeddings.norm": None,
    "embeddings.start": ("bos", "eos"),
}


@dataclass(frozen=True)
class HuggingFaceClass:
    """A class that computes a model.

    Attributes:
        model_type: As in `config.json`.
        pre_norm: Norms stand in front of the sub-layers and after the stacks.
        embedding_norm: The embedding is normalised.
        permuted: Its sinusoids are ours in another order of channels: all sines, then all cosines.
        stores_positions: It stores a table of positions instead of making one.
        swaps_padding: PAD is 1 and BOS 0 there, since the number of PAD says where positions begin.
    """

    model_type: ModelType
    pre_norm: bool = False
    embedding_norm: bool = False
    permuted: bool = False
    stores_positions: bool = False
    swaps_padding: bool = False


_CLASSES = {
    # Norms in front, embedding normalised, positions
    (False, False, "interleaved"): HuggingFaceClass("marian", permuted=True),
    (True, False, "interleaved"): HuggingFaceClass("pegasus", pre_norm=True, permuted=True),
    (True, False, "halves"): HuggingFaceClass("m2m_100", pre_norm=True, swaps_padding=True),
    (False, True, ""): HuggingFaceClass("bart", embedding_norm=True, stores_positions=True),
    (True, True, ""): HuggingFaceClass("mbart", pre_norm=True, embedding_norm=True, stores_positions=True),
}


def huggingface_class(config: ModelConfig) -> HuggingFaceClass:
    """The class that computes what a model with these settings computes.

    Raises:
        ValueError: There is none; the text is the setting that none of them has.
    """
    if (setting := beyond_plain(config, _IN_TRANSFORMERS)) is not None:
        raise ValueError(setting)
    if config.encoder.connection != config.decoder.connection:
        raise ValueError("different connections of encoder and decoder")
    if config.size("encoder")[0] != config.size("decoder")[0]:
        raise ValueError("different d_model of encoder and decoder")
    connection = config.encoder.connection
    inner = isinstance(connection, PreNormConfig) and connection.residual == "normalised"
    inner |= isinstance(connection, PostNormConfig) and connection.embedding_norm
    if inner and config.embeddings.norm:
        raise ValueError("embeddings.norm=true, a second norm of the embedding")
    pre_norm = isinstance(connection, PreNormConfig) and connection.residual == "input"
    normed = inner or config.embeddings.norm
    positions = {_layout(stack.positions or config.positions) for stack in (config.encoder, config.decoder)}
    chosen = _CLASSES.get((pre_norm, normed, "" if normed else "/".join(sorted(positions))))
    if chosen is None:
        raise ValueError(f"positions={' and '.join(sorted(positions))} with {connection.type}")
    if chosen.model_type != "marian" and config.embeddings.tie not in ("all", "inputs"):
        raise ValueError(f"embeddings.tie={config.embeddings.tie} with {connection.type}")
    if chosen.model_type == "m2m_100" and config.bias.output:
        raise ValueError("bias.output=true with positions=halves")
    return chosen


def _layout(positions: PositionsConfig) -> str:
    """The layout of sinusoids that begin as the classes' do; else what it is."""
    if not isinstance(positions, SinusoidalConfig):
        return positions.type
    begins = {"interleaved": 0, "halves": 2}[positions.layout]
    return positions.layout if positions.first == begins else f"{positions.layout} from {positions.first}"
