"""Which class of Hugging Face's transformers computes what a model computes, as its settings say."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal

from deepwire.config.section import Section
from deepwire.model.config import ModelConfig
from deepwire.model.connections.residual import PostNormConfig, PreNormConfig
from deepwire.model.embedding import PositionsConfig, SinusoidalConfig
from deepwire.model.stack_config import StackConfig

ModelType = Literal["marian", "pegasus", "bart", "mbart", "m2m_100"]
NORM_EPS = 1e-5
"""Epsilon of every layer norm of these classes."""
_ACTIVATIONS = ("relu", "gelu", "silu")


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


def huggingface_class(config: ModelConfig, *, several: bool) -> HuggingFaceClass:
    """The class that computes what a model with these settings computes.

    Args:
        config: Of the model.
        several: Whether it has parameters of each of several target languages.

    Raises:
        ValueError: There is none; the text is the setting that none of them has.
    """
    if config.alone:
        raise ValueError(f"architecture={config.architecture}")
    for name, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        _require_plain_stack(name, stack, config)
    _require_plain_model(config, several=several)
    connection = config.encoder.connection
    inner = isinstance(connection, PreNormConfig) and connection.residual == "normalised"
    inner |= isinstance(connection, PostNormConfig) and connection.embedding_norm
    if inner and config.embeddings.norm:
        raise ValueError("embeddings.norm=true, a second norm of the embedding")
    pre_norm = isinstance(connection, PreNormConfig) and connection.residual == "input"
    normed = inner or config.embeddings.norm
    positions = {_layout(stack.positions or config.positions) for stack in (config.encoder, config.decoder)}
    found = _CLASSES.get((pre_norm, normed, "" if normed else "/".join(sorted(positions))))
    if found is None:
        raise ValueError(f"positions={' and '.join(sorted(positions))} with {connection.type}")
    if found.model_type != "marian" and config.embeddings.tie not in ("all", "inputs"):
        raise ValueError(f"embeddings.tie={config.embeddings.tie} with {connection.type}")
    if found.model_type == "m2m_100" and config.bias.output:
        raise ValueError("bias.output=true with positions=halves")
    return found


def _layout(positions: PositionsConfig) -> str:
    """The layout of sinusoids that begin as the classes' do; else what it is."""
    if not isinstance(positions, SinusoidalConfig):
        return positions.type
    begins = {"interleaved": 0, "halves": 2}[positions.layout]
    return positions.layout if positions.first == begins else f"{positions.layout} from {positions.first}"


def _require_plain_stack(name: str, stack: StackConfig, config: ModelConfig) -> None:
    sockets: dict[str, tuple[Section, tuple[str, ...]]] = {
        "mixer": (stack.mixer, ("self_attention",)),
        "aggregation": (stack.aggregation, ("last",)),
        "fusion": (stack.fusion, ("top",)),
        "connection": (stack.connection, ("pre_norm", "post_norm")),
    }
    for socket, (section, plain) in sockets.items():
        if (kind := getattr(section, "type", None)) not in plain:
            raise ValueError(f"{name}.{socket}={kind}")
    others = {
        "mixer.relative": getattr(stack.mixer, "relative", None) is not None,
        "positions=none": (stack.positions or config.positions).type == "none",
        "connection.mixer_norm=false": not getattr(stack.connection, "mixer_norm", True),
        "connection.final_norm=false": not getattr(stack.connection, "final_norm", True),
        "recurrence": stack.recurrence is not None,
        "feed_forward=false": not stack.feed_forward,
        "inner_feed_forward=true": stack.inner_feed_forward,
    }
    for setting, refused in others.items():
        if refused:
            raise ValueError(f"{name}.{setting}")


def _require_plain_model(config: ModelConfig, *, several: bool) -> None:
    others = {
        "different connections of encoder and decoder": config.encoder.connection
        != config.decoder.connection,
        "different d_model of encoder and decoder": config.size("encoder")[0] != config.size("decoder")[0],
        f"activation={config.activation}": config.activation not in _ACTIVATIONS,
        f"parametrization={getattr(config.parametrization, 'type', None)}": config.parametrization
        is not None,
        "embeddings.side=true": config.embeddings.side,
        "inner_norm=true": config.inner_norm,
        f"norm={config.norm}": config.norm != "layer",
        "qk_norm=true": config.qk_norm,
        "key_value_heads": any(
            config.key_value_heads_of(stack.size) is not None for stack in (config.encoder, config.decoder)
        ),
        "languages, parameters of each language": several,
    }
    for setting, refused in others.items():
        if refused:
            raise ValueError(setting)
