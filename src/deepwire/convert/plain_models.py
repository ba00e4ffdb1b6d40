"""Which models other programs can compute, as their settings tell."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import chain
from typing import Literal

from deepwire.config.section import Section
from deepwire.errors import ModelError
from deepwire.model.config import ModelConfig
from deepwire.model.connections.connection import ConnectionSection
from deepwire.model.connections.residual import PreNormConfig
from deepwire.model.embedding import PositionsConfig, SinusoidalConfig
from deepwire.model.layers import GATES
from deepwire.model.stack_spec import SIDES

Allowed = Mapping[str, tuple[object, ...] | None]
"""Settings by their path, where `stack` is either side, and the values that they may have; None: any, and
anything below them. A choice is known by its type, and its own settings are looked at in turn."""

_OF_EVERY_FORMAT: Allowed = {
    **dict.fromkeys(
        # Measures, biases and matrices, which are in the weights.
        ("d_model", "heads", "feed_forward", "max_length", "norm_eps", "embeddings.tie", "embeddings.scale")
    ),
    **dict.fromkeys(f"bias.{name}" for name in ("attention", "feed_forward", "output")),
    **dict.fromkeys(f"stack.size.{name}" for name in ("d_model", "heads", "feed_forward")),
    **dict.fromkeys(("stack.layers", "stack.scale_embedding")),
    # Of training alone.
    **dict.fromkeys(("dropout", "initialization", "source_loss")),
    # Forms of a table that `mixer.relative` makes.
    **dict.fromkeys(("stack.mixer.relative_values", "stack.mixer.relative_table")),
    # Looked at above: in the place of the model's, and stack by stack.
    **dict.fromkeys(("positions", "encoder", "decoder")),
    "stack.positions": ("sinusoidal", "learned"),
    **dict.fromkeys(f"stack.positions.{name}" for name in ("layout", "first", "base")),
}


def beyond_plain(config: ModelConfig, allowed: Allowed, *, own_sizes: bool = False) -> str | None:
    """The first setting that a plain Transformer has otherwise, as `encoder.mixer=gru`; None without.

    Args:
        config: Of the model.
        allowed: What the format has nevertheless.
        own_sizes: Whether encoder and decoder may have different heads and feed-forwards.
    """
    if config.is_decoder_only:
        return f"architecture={config.architecture}"
    allowed = {**_OF_EVERY_FORMAT, **allowed}
    for side in config.sides:
        stack = config.stack(side)
        whole = stack.model_copy(update={"positions": stack.positions or config.positions})
        for setting in _differing(whole, "stack.", allowed):
            return f"{side}{setting.removeprefix('stack')}"
    sizes = [config.size(side)[: 1 if own_sizes else None] for side in SIDES]
    connection = config.encoder.connection
    others = {
        "different connections of encoder and decoder": connection != config.decoder.connection,
        "different sizes of encoder and decoder": sizes[0] != sizes[1],
        "embeddings.norm=true, a second norm of the embedding": config.embeddings.norm
        and normalises_embedding(connection),
    }
    return next(chain(_differing(config, "", allowed), (name for name in others if others[name])), None)


def _differing(section: Section, path: str, allowed: Allowed) -> Iterator[str]:
    for name, field in type(section).model_fields.items():
        here, value = f"{path}{name}", getattr(section, name)
        if name == "type" or (here in allowed and allowed[here] is None):
            continue
        usual = field.get_default(call_default_factory=True)
        kind, plain = getattr(value, "type", value), getattr(usual, "type", usual)
        if isinstance(value, Section) and usual is not None and kind is value:
            yield from _differing(value, f"{here}.", allowed)
        elif kind not in (allowed.get(here) or (plain,)):
            said = str(kind).lower() if isinstance(kind, bool) else kind
            yield here if kind is value and isinstance(value, Section) else f"{here}={said}"
        elif isinstance(value, Section):
            yield from _differing(value, f"{here}.", allowed)


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
"""The hint at a setting that Marian does not have."""


def not_in_marian(config: ModelConfig) -> str | None:
    """The setting that Marian does not compute; None if it computes such models.

    With norms in front of sub-layers its self-attention makes keys and values of what is not normalised, so
    that pre-norm is another model there; Neutron's order of norm and residual is post-norm.
    """
    if (setting := beyond_plain(config, _IN_MARIAN)) is not None:
        return setting
    if config.encoder.mixer.type == "ssru":
        return "encoder.mixer=ssru"
    pre_norm = getattr(config.encoder.connection, "residual", "normalised") != "normalised"
    return "encoder.connection=pre_norm" if pre_norm else None


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
    normalised = getattr(connection, "residual", "input") == "normalised"
    if normalised and not getattr(connection, "final_norm", True):
        return "encoder.connection.final_norm=false with residual: normalised"
    return None


HuggingFaceClass = Literal["marian", "pegasus", "bart", "mbart", "m2m_100"]
"""A class that computes a model, by its `model_type`."""
SINES_FIRST = ("marian", "pegasus")
"""In their sinusoids, which they make themselves, all sines stand before all cosines."""
LEARNED = ("bart", "mbart")
"""Those that store positions, and normalise the embedding."""
SWAPPED = ("m2m_100",)
"""PAD is 1 and BOS 0 there, since the number of PAD says where positions begin."""
NORM_EPS = 1e-5
"""Epsilon of every layer norm of these classes."""
_IN_TRANSFORMERS: Allowed = {
    "activation": ("relu", "gelu", "silu"),
    "stack.connection": ("pre_norm", "post_norm"),
    **dict.fromkeys(("stack.connection.residual", "stack.connection.embedding_norm")),
    "embeddings.norm": None,
    "embeddings.start": ("bos", "eos"),
}


# Norms in front, embedding normalised, positions
_CLASSES: Mapping[tuple[bool, bool, str], HuggingFaceClass] = {
    (False, False, "interleaved"): "marian",
    (True, False, "interleaved"): "pegasus",
    (True, False, "halves"): "m2m_100",
    (False, True, ""): "bart",
    (True, True, ""): "mbart",
}


def huggingface_class(config: ModelConfig) -> HuggingFaceClass:
    """The class that computes what a model with these settings computes.

    Raises:
        ModelError: There is none; names the setting that none of them has.
    """
    connection, kind = config.encoder.connection, config.encoder.connection.type
    pre_norm = isinstance(connection, PreNormConfig) and connection.residual == "input"
    normed = config.embeddings.norm or normalises_embedding(connection)
    positions = {_layout(stack.positions or config.positions) for stack in (config.encoder, config.decoder)}
    chosen = _CLASSES.get((pre_norm, normed, "" if normed else "/".join(sorted(positions))))
    tie = config.embeddings.tie
    others = {
        f"positions={' and '.join(sorted(positions))} with {kind}": chosen is None,
        f"embeddings.tie={tie} with {kind}": chosen != "marian" and tie not in ("all", "inputs"),
        "bias.output=true with positions=halves": chosen == "m2m_100" and config.bias.output,
    }
    setting = beyond_plain(config, _IN_TRANSFORMERS, own_sizes=True)
    setting = setting or next((name for name in others if others[name]), None)
    if chosen is None or setting is not None:
        raise ModelError(
            f"no class of transformers computes model.{setting}",
            "--format huggingface-code exports every model, to run where deepwire is installed",
        )
    return chosen


def _layout(positions: PositionsConfig) -> str:
    """The layout of sinusoids that begin as the classes' do; else what it is."""
    if not isinstance(positions, SinusoidalConfig):
        return positions.type
    begins = {"interleaved": 0, "halves": 2}[positions.layout]
    return positions.layout if positions.first == begins else f"{positions.layout} from {positions.first}"
