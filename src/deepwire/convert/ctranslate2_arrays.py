"""A plain Transformer as the arrays and settings that CTranslate2 computes with.

Pre-norm, post-norm, Peri-LN (norms on both sides of sub-layers) and Neutron's order (residuals taken from the
normalised input), with relative or rotary positions, any that are a table, or none. Factors of connections
and of a parametrisation become part of weights: exact up to rounding, and up to the epsilon of norms where
the stream has a factor.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict

import torch
from torch import Tensor

from deepwire.convert.plain import (
    SUBLAYERS,
    Place,
    output_bias,
    plain_parameters,
    sides_of,
)
from deepwire.errors import ModelError
from deepwire.export_requirements import PLAIN_ACTIVATIONS, normalises_embedding, not_in_ctranslate2
from deepwire.model.connections.admin import Admin
from deepwire.model.connections.connection import Connection
from deepwire.model.connections.pre_norm_variants import (
    LayerNormScaling,
    LayerScale,
    PeriLN,
    PeriLNConfig,
    PreNormVariantSection,
)
from deepwire.model.connections.residual import PreNormConfig
from deepwire.model.connections.scaled_post_norm import BranchNorm, ScaledPostNorm
from deepwire.model.cross_attention import CrossAttention
from deepwire.model.embedding import RotaryConfig
from deepwire.model.layers import GATES, Branch
from deepwire.model.mixers.self_attention import RelativePositions, SelfAttention
from deepwire.model.stack import Stack
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel

LONGEST = 1024
"""Positions that are written out: CTranslate2 has a table where deepwire may have a formula."""
_ACTIVATIONS = {name: name.upper() for name in PLAIN_ACTIVATIONS} | {
    "silu": "SWISH",
    "swiglu": "SWISH",
    "geglu": "GELU",
}
# What to use in place of a setting that it does not compute.
_INSTEAD = {
    ".mixer.relative": "it adds no positions to words where attention has them: use positions: none",
    ".mixer=": "use mixer: self_attention",
    ".aggregation=": "use aggregation: last",
    ".fusion=": "use fusion: top",
    ".positions=": "use sinusoidal, learned or rotary positions",
    ".connection=": "use connection: pre_norm, post_norm, peri_ln, deepnorm, admin or layer_scale",
    "activation=": "use relu, gelu, silu, swiglu or geglu",
    "different": "give both sides the same",
    "": "it computes Transformers with self-attention, pre- or post-norm",
}
# Where parts lie there; those of one place are one linear map, in this order.
_MAPS = {
    **dict.fromkeys(("self.q", "self.k", "self.v"), "self_attention/linear_0"),
    "self.o": "self_attention/linear_1",
    "cross.q": "attention/linear_0",
    **dict.fromkeys(("cross.k", "cross.v"), "attention/linear_1"),
    "cross.o": "attention/linear_2",
    "feed.gate": "ffn/linear_0",
    "feed.in": "ffn/linear_0",
    "feed.out": "ffn/linear_1",
}
_NORMS = {
    "self.norm": "self_attention/layer_norm",
    "cross.norm": "attention/layer_norm",
    "feed.norm": "ffn/layer_norm",
    "embedding.norm": "layernorm_embedding",
    "final.norm": "layer_norm",
}
# Where sub-layers have norms in front and behind.
_PERI_NORMS = _NORMS | {
    "self.norm": "input_layer_norm",
    "self.post_norm": "post_attention_layer_norm",
    "cross.norm": "external_pre_encoder_attention_layer_norm",
    "cross.post_norm": "external_post_encoder_attention_layer_norm",
    "feed.norm": "pre_feedforward_layer_norm",
    "feed.post_norm": "post_feedforward_layer_norm",
}


class TransformerSettings(TypedDict):
    """Settings that CTranslate2 needs beside the arrays; pairs are of encoder and decoder."""

    layers: tuple[int, int]
    heads: int
    pre_norm: bool
    peri_norm: bool
    """Whether the outputs of sub-layers are normalised too."""
    final_norm: bool
    """Whether stacks of pre-norm end with a norm."""
    embedding_norm: bool
    activation: str
    norm_eps: float
    scale: tuple[bool, bool]
    """Whether embeddings are multiplied by the square root of the width."""
    rms_norm: bool
    gated: bool
    """Whether the activation is that of a gate with a matrix of its own."""
    zero_start: bool
    """Whether the decoder reads the vector zero first."""
    key_heads: tuple[int, int]
    rotary: tuple[RotaryConfig | None, RotaryConfig | None]
    relative: tuple[bool, bool]
    """Whether self-attention knows relative positions."""


def settings_of(model: TranslationModel) -> TransformerSettings:
    """How the arrays of `arrays_of` are to be used."""
    config = model.config
    connection, specs = config.encoder.connection, config.specs()
    return {
        "layers": (config.encoder.layers, config.decoder.layers),
        "heads": config.heads,
        # With normalised residuals it is post-norm and one norm more.
        "pre_norm": getattr(connection, "residual", "input") == "input"
        and isinstance(connection, PreNormConfig | PreNormVariantSection),
        "peri_norm": isinstance(connection, PeriLNConfig),
        "final_norm": getattr(connection, "final_norm", True),
        "embedding_norm": config.embeddings.norm or normalises_embedding(connection),
        "activation": _ACTIVATIONS[config.activation],
        "norm_eps": config.norm_eps,
        "scale": (model.source_embedding.scale != 1, model.target_embedding.scale != 1),
        "rms_norm": config.norm == "rms",
        "gated": config.activation in GATES,
        "zero_start": config.embeddings.start == "zero",
        "key_heads": (specs["encoder"].key_heads, specs["decoder"].key_heads),
        "rotary": (specs["encoder"].rotary, specs["decoder"].rotary),
        "relative": (
            _self_attention(model.stack("encoder")).relative is not None,
            _self_attention(model.decoder).relative is not None,
        ),
    }


def require_plain(model: TranslationModel) -> None:
    """Check that the model is a Transformer that CTranslate2 computes.

    Raises:
        ModelError: It is not; names the setting.
    """
    if (setting := not_in_ctranslate2(model.config)) is not None:
        advice = next(advice for part, advice in _INSTEAD.items() if part in setting)
        raise ModelError(
            f"CTranslate2 does not compute model.{setting}", f"{advice}; --format onnx exports every model"
        )


@torch.no_grad()
def arrays_of(model: TranslationModel, first_head: tuple[int, int] | None = None) -> dict[str, Tensor]:
    """Copies of the parameters by CTranslate2's names, float32: it rounds them in place.

    Args:
        model: What is exported.
        first_head: Layer and head of a cross-attention, from 0, whose head becomes the first, by which
            CTranslate2 aligns.

    Raises:
        ModelError: The model is not one that CTranslate2 computes.
    """
    require_plain(model)
    parameters: dict[Place, Tensor] = plain_parameters(model)
    for side, (stack, embedding) in sides_of(model).items():
        table = embedding.table.weight
        if embedding.scale != 1:  # CTranslate2 multiplies by the square root of the width
            table = table * (embedding.scale / table.size(1) ** 0.5)
        parameters[Place(side, -1, "embeddings", "weight")] = table
        if (positions := _positions(model, side)) is not None:
            parameters[Place(side, -1, "position_encodings", "encodings")] = positions
        _fold(parameters, stack, side)
    if first_head is not None:
        _move_first(parameters, *first_head, *_heads(model))
    arrays = _named(parameters, peri_norm=isinstance(model.decoder.connection, PeriLN))
    for side, (stack, _) in sides_of(model).items():
        for layer, mixer in enumerate(stack.mixers):
            assert isinstance(mixer, SelfAttention)
            for name, each in (("keys", mixer.relative), ("values", mixer.relative_values)):
                if each is not None:
                    place = f"{side}/layer_{layer}/self_attention/relative_position_{name}"
                    arrays[place] = _both_ways(each)
    arrays["decoder/projection/weight"] = model.head.table.weight * model.head.scale
    arrays["decoder/projection/bias"] = output_bias(model)
    return {name: array.detach().float().clone() for name, array in arrays.items()}


def _named(parameters: Mapping[Place, Tensor], *, peri_norm: bool) -> dict[str, Tensor]:
    """The parameters by CTranslate2's names, those of one linear map in one array."""
    norms, parts = _PERI_NORMS if peri_norm else _NORMS, dict[str, list[Tensor]]()
    gated = any(place.part == "feed.gate" for place in parameters)
    maps = _MAPS | ({"feed.in": "ffn/linear_0_noact"} if gated else {})
    for (side, layer, part, leaf), value in parameters.items():
        if part in norms:
            name, leaf = norms[part], "gamma" if leaf == "weight" else "beta"
        elif (part, side) == ("embeddings", "encoder"):
            name = "embeddings_0"
        else:
            name = maps.get(part, part)
        above = side if layer < 0 else f"{side}/layer_{layer}"
        parts.setdefault(f"{above}/{name}/{leaf}", []).append(value)
    return {name: torch.cat(values) for name, values in parts.items()}


def _positions(model: TranslationModel, side: Side) -> Tensor | None:
    stack, embedding = sides_of(model)[side]
    weight, mixer = embedding.table.weight, _self_attention(stack)
    positions: Tensor | None = embedding.positions(0, LONGEST, weight)
    if positions is None and mixer.relative is None and mixer.rotary is None:
        return weight.new_zeros(1, 1).expand(LONGEST, weight.size(1))  # without any it adds sinusoids
    return positions


def _both_ways(positions: RelativePositions) -> Tensor:
    """A table of distances as far ahead as back, `[2k + 1, h]`; a decoder's may end with the next word."""
    ahead = positions.past - positions.future
    return torch.cat([positions.table, positions.table[-1:].expand(ahead, -1)])


def _self_attention(stack: Stack) -> SelfAttention:
    mixer = stack.mixers[0]
    assert isinstance(mixer, SelfAttention)  # which `require_plain` has seen
    return mixer


def _heads(model: TranslationModel) -> tuple[int, int]:
    spec = model.config.specs()["decoder"]
    return spec.heads, spec.key_heads


def _move_first(parameters: dict[Place, Tensor], layer: int, head: int, heads: int, key_heads: int) -> None:
    """Put a head of a cross-attention first; those that share keys with it move with it."""
    group = heads // key_heads
    keys, within = (
        torch.tensor([first, *(each for each in range(count) if each != first)])
        for count, first in ((key_heads, head // group), (group, head % group))
    )
    queries = (keys.unsqueeze(1) * group + within).flatten()

    def move(part: str, leaf: str, order: Tensor, dim: int = 0) -> None:
        place = Place("decoder", layer, f"cross.{part}", leaf)
        width = parameters[place].size(dim) // len(order)
        rows = order.unsqueeze(1) * width + torch.arange(width)
        parameters[place] = parameters[place].index_select(dim, rows.flatten())

    move("o", "weight", queries, 1)
    for leaf in ("weight", "bias"):
        for part, order in (("q", queries), ("k", keys), ("v", keys)):
            move(part, leaf, order)


# The maps that read the stream, and the one that writes to it.
_READERS = {"self": ("q", "k", "v"), "cross": ("q",), "feed": ("in", "gate")}
_WRITERS = {"self": "o", "cross": "o", "feed": "out"}
_LEAVES = ("weight", "bias", "encodings")


def _fold(parameters: dict[Place, Tensor], stack: Stack, side: Side) -> None:
    """Multiply the factors of a connection, and of a parametrisation, into the parameters of a stack."""
    connection = stack.connection

    def multiply(layer: int, part: str, factor: Tensor | float, leaves: Sequence[str] = _LEAVES) -> None:
        """Multiply numbers, or columns."""
        for place in (Place(side, layer, part, leaf) for leaf in leaves):
            if place in parameters:
                parameters[place] = parameters[place] * factor

    # What makes the stream of the next call.
    normed = (side, -1, "embedding.norm", "weight") in parameters
    before = [(-1, "embedding.norm")] if normed else [(-1, "embeddings"), (-1, "position_encodings")]
    for index, call in enumerate(stack.calls):
        kind = SUBLAYERS[call.kind]
        writer = "post_norm" if isinstance(connection, PeriLN) else _WRITERS[kind]
        factor = _branch_factor(connection, index)
        of_rows = factor.dim() and writer != "post_norm"
        multiply(call.layer, f"{kind}.{writer}", factor[:, None] if of_rows else factor, ["weight"])
        multiply(call.layer, f"{kind}.{writer}", factor, ["bias"])
        if isinstance(connection, LayerNormScaling):
            multiply(call.layer, f"{kind}.norm", (call.layer + 1) ** -0.5)
        if isinstance(connection, Admin):
            # LN(w x + F(x)) is LN(z + F(z / w)) with z = w x, which the norm before can make.
            for layer, part in before:
                multiply(layer, part, connection.scales[index])
            for reader in _READERS[kind]:
                multiply(call.layer, f"{kind}.{reader}", 1 / connection.scales[index], ["weight"])
            before = [(call.layer, f"{kind}.norm")]
    for kind, modules in (("self", stack.mixers), ("cross", stack.crosses)):
        for layer, module in enumerate(modules):
            if isinstance(module, SelfAttention | CrossAttention) and module.query_scale != 1:
                multiply(layer, f"{kind}.q", module.query_scale)


def _branch_factor(connection: Connection, index: int) -> Tensor:
    """Factor of the output of a call before it joins a stream with factor 1: one, or one for each channel."""
    branch = connection.dropout.factor if isinstance(connection.dropout, Branch) else 1.0
    factor = torch.tensor(branch, dtype=torch.float64)
    if isinstance(connection, ScaledPostNorm):
        factor = factor / connection.scale
    if isinstance(connection, BranchNorm):
        factor = factor * connection.factor
    if isinstance(connection, LayerScale):
        factor = factor * connection.scales[index]
    return factor
