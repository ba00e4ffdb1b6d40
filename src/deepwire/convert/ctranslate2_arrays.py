"""A plain Transformer as the arrays and settings that CTranslate2 computes with.

Pre-norm, post-norm, Peri-LN (norms on both sides of sub-layers) and Neutron's order (residuals taken from the
normalised input), with relative or rotary positions, any that are a table, or none; what CTranslate2 does not
compute is refused by name.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypedDict, TypeVar

import torch
from torch import Tensor, nn

from deepwire.convert.ctranslate2_folding import PERI_NORMS, PLACES, fold
from deepwire.convert.export_format import NEVER
from deepwire.data.vocabulary import BOS, PAD
from deepwire.errors import ModelError
from deepwire.model.connections.pre_norm_variants import PeriLN, PeriLNConfig, PreNormVariantSection
from deepwire.model.connections.residual import PostNorm, PreNorm, PreNormConfig
from deepwire.model.cross_attention import CrossAttention
from deepwire.model.embedding import Embedding, RotaryConfig
from deepwire.model.layers import GATES, FeedForward, Gated, RMSNorm
from deepwire.model.mixers.self_attention import RelativePositions, SelfAttention
from deepwire.model.portability import PLAIN_ACTIVATIONS, normalises_embedding, not_in_ctranslate2
from deepwire.model.stack import Stack
from deepwire.model.translation_model import TranslationModel

Kind = TypeVar("Kind", bound=nn.Module)

LONGEST = 1024
"""Positions that are written out: CTranslate2 has a table where deepwire may have a formula."""
_ACTIVATIONS = {name: name.upper() for name in PLAIN_ACTIVATIONS} | {
    "silu": "SWISH",
    "swiglu": "SWISH",
    "geglu": "GELU",
}


_INSTEAD = {
    ".mixer.relative": "it adds no positions to words where attention has them: use positions: none",
    ".mixer=": "use mixer: self_attention",
    ".aggregation=": "use aggregation: last",
    ".fusion=": "use fusion: top",
    ".positions=": "use sinusoidal, learned or rotary positions",
    ".connection=": "use connection: pre_norm, post_norm, peri_ln, deepnorm, admin or layer_scale",
    "activation=": "use relu, gelu, silu, swiglu or geglu",
    "different": "give both sides the same",
}


class TransformerSettings(TypedDict):
    """Settings that CTranslate2 needs beside the arrays."""

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
    """Whether embeddings are multiplied by the square root of the width, on either side."""
    rms_norm: bool
    gated: bool
    """Whether the activation is that of a gate with a matrix of its own."""
    zero_start: bool
    """Whether the decoder reads the vector zero first."""
    key_heads: tuple[int, int]
    rotary: tuple[RotaryConfig | None, RotaryConfig | None]
    relative: tuple[bool, bool]
    """Whether the self-attention of either side knows relative positions."""


@torch.no_grad()
def arrays_of(model: TranslationModel) -> dict[str, Tensor]:
    """Copies of the parameters by CTranslate2's names, float32: it rounds them in place.

    Raises:
        ModelError: The model is not one that CTranslate2 computes.
    """
    require_plain(model)
    arrays = {
        **_side("encoder", model.stack("encoder"), model.source_embedding),
        **_side("decoder", model.decoder, model.target_embedding),
    }
    arrays["decoder/projection/weight"] = model.head.table.weight * model.head.scale
    bias = torch.zeros(model.target_vocabulary)
    if model.head.bias is not None:
        bias += model.head.bias.detach()
    bias[[PAD, BOS]] = NEVER
    arrays["decoder/projection/bias"] = bias
    return {name: array.detach().float().clone() for name, array in arrays.items()}


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
        "relative": (_relative(model.stack("encoder")), _relative(model.decoder)),
    }


def with_first_head(
    arrays: Mapping[str, Tensor], place: str, head: int, settings: TransformerSettings
) -> dict[str, Tensor]:
    """The arrays of a cross-attention whose head, from 0, becomes the first, that CTranslate2 aligns by.

    The heads that share keys with it move with it, so the sub-layer computes the same.
    """
    heads, key_heads = settings["heads"], settings["key_heads"][1]
    group = heads // key_heads
    orders = []
    for count, first in ((key_heads, head // group), (group, head % group)):
        orders.append(torch.tensor([first, *(each for each in range(count) if each != first)]))
    queries = (orders[0].unsqueeze(1) * group + orders[1]).flatten()
    both = torch.cat([orders[0], orders[0] + key_heads])

    def moved(name: str, order: Tensor, count: int, dim: int = 0) -> Tensor:
        array = arrays[name]
        width = array.size(dim) // count
        rows = order.unsqueeze(1) * width + torch.arange(width)
        return array.index_select(dim, rows.flatten())

    reordered = {f"{place}/linear_2/weight": moved(f"{place}/linear_2/weight", queries, heads, 1)}
    for leaf in ("weight", "bias"):
        reordered[f"{place}/linear_0/{leaf}"] = moved(f"{place}/linear_0/{leaf}", queries, heads)
        reordered[f"{place}/linear_1/{leaf}"] = moved(f"{place}/linear_1/{leaf}", both, 2 * key_heads)
    return reordered


def require_plain(model: TranslationModel) -> None:
    """Check that the model is a Transformer that CTranslate2 computes.

    Raises:
        ModelError: It is not; names the setting.
    """
    setting = not_in_ctranslate2(model.config)
    if setting is not None:
        raise ModelError(
            f"CTranslate2 does not compute model.{setting}",
            f"{_instead(setting)}; --format onnx exports every model",
        )


def _instead(setting: str) -> str:
    """The setting to train with in place of one that it does not compute."""
    return next(
        (advice for part, advice in _INSTEAD.items() if part in setting),
        "it computes Transformers with self-attention, pre- or post-norm",
    )


def _relative(stack: Stack) -> bool:
    return _is(SelfAttention, stack.mixers[0]).relative is not None


def _side(name: str, stack: Stack, embedding: Embedding) -> dict[str, Tensor]:
    """The arrays of one stack."""
    weight = embedding.table.weight
    first = "embeddings_0" if name == "encoder" else "embeddings"
    outer, inner = _norms(stack)
    if embedding.norm is not None:
        outer |= _norm("layernorm_embedding", embedding.norm)
    arrays = {f"{first}/weight": weight, **outer}
    positions = embedding.positions(0, LONGEST, weight)
    if positions is None and not _in_attention(stack):
        positions = weight.new_zeros(1, 1).expand(LONGEST, weight.size(1))  # without any it adds sinusoids
    if positions is not None:
        arrays["position_encodings/encodings"] = positions
    for layer, norms in enumerate(inner):
        arrays |= _prefixed(f"layer_{layer}", _layer(stack, layer) | norms)
    if embedding.scale != 1:  # CTranslate2 multiplies by the square root of the width
        arrays[f"{first}/weight"] = weight * (embedding.scale / weight.size(1) ** 0.5)
    return _prefixed(name, fold(arrays, stack, first))


def _in_attention(stack: Stack) -> bool:
    """Whether self-attention knows the positions of words."""
    return _relative(stack) or _is(SelfAttention, stack.mixers[0]).rotary is not None


def _layer(stack: Stack, layer: int) -> dict[str, Tensor]:
    """The linear maps of one layer, each with a bias."""
    mixer = _is(SelfAttention, stack.mixers[layer])
    feed_forward = _is(FeedForward, stack.feed_forwards[layer])
    maps: dict[str, Sequence[nn.Module]] = {
        "self_attention/linear_0": _fused(mixer),
        "self_attention/linear_1": [mixer.output],
        "ffn/linear_1": [feed_forward.output],
    }
    if len(stack.crosses):
        cross = _is(CrossAttention, stack.crosses[layer])
        maps |= {
            "attention/linear_0": [cross.query],
            "attention/linear_1": [cross.key_value],
            "attention/linear_2": [cross.output],
        }
    arrays: dict[str, Tensor] = {}
    for place, linears in maps.items():
        arrays |= _maps(place, [_weights(_is(nn.Linear, linear)) for linear in linears])
    for name, table in (("keys", mixer.relative), ("values", mixer.relative_values)):
        if table is not None:
            arrays[f"self_attention/relative_position_{name}"] = _both_ways(table)
    return arrays | _inner(feed_forward)


def _both_ways(positions: RelativePositions) -> Tensor:
    """A table of distances as far ahead as back, `[2k + 1, h]`; a decoder's may end with the next word."""
    ahead = positions.past - positions.future
    return torch.cat([positions.table, positions.table[-1:].expand(ahead, -1)])


def _fused(mixer: SelfAttention) -> Sequence[nn.Module]:
    """The maps to queries, keys and values, which CTranslate2 has as one."""
    return [mixer.query, mixer.key_value] if mixer.key_heads < mixer.heads else [mixer.query_key_value]


def _inner(network: FeedForward) -> dict[str, Tensor]:
    """The first map of a feed-forward network, and that of what a gate lets through."""
    weight, bias = _weights(_is(nn.Linear, network.input))
    if not isinstance(network.activation, Gated):
        return _maps("ffn/linear_0", [(weight, bias)])
    gate, value = zip(weight.chunk(2), bias.chunk(2), strict=True)
    return _maps("ffn/linear_0", [gate]) | _maps("ffn/linear_0_noact", [value])


def _weights(linear: nn.Linear) -> tuple[Tensor, Tensor]:
    """Weight and bias of a map; zeros where it has no bias."""
    bias: Tensor | None = linear.bias
    return linear.weight, torch.zeros(linear.out_features) if bias is None else bias


def _maps(place: str, maps: Sequence[tuple[Tensor, Tensor]]) -> dict[str, Tensor]:
    """Maps of one vector side by side, as one."""
    weights, biases = zip(*maps, strict=True)
    return {f"{place}/weight": torch.cat(weights), f"{place}/bias": torch.cat(biases)}


def _norms(stack: Stack) -> tuple[dict[str, Tensor], list[dict[str, Tensor]]]:
    """The norms around all layers, and those of each layer."""
    connection = stack.connection
    outer: dict[str, Tensor] = {}
    if isinstance(connection, PostNorm):
        every = list(connection.norms)
        if connection.embedding_norm is not None:
            outer = _norm("layernorm_embedding", connection.embedding_norm)
    else:
        before = _is(PreNorm, connection)
        every, last = list(before.norms), before.final_norm
        if before.from_normalised:
            # x <- LN(x) + F(LN(x)) is post-norm whose first norm is that of the embedding.
            first, *every = [*every, *([] if last is None else [last])]
            outer = _norm("layernorm_embedding", first)
        elif last is not None:
            outer = _norm("layer_norm", last)
    inner: list[dict[str, Tensor]] = [{} for _ in stack.mixers]
    if isinstance(connection, PeriLN):
        if connection.embedding_norm is not None:
            outer |= _norm("layernorm_embedding", connection.embedding_norm)
        for call, *both in zip(connection.calls, every, connection.output_norms, strict=True):
            for name, norm in zip(PERI_NORMS[call.kind], both, strict=True):
                inner[call.layer] |= _norm(name, norm)
        return outer, inner
    for call, norm in zip(connection.calls, every, strict=True):
        inner[call.layer] |= _norm(f"{PLACES[call.kind][0]}/layer_norm", norm)
    return outer, inner


def _norm(place: str, norm: nn.Module) -> dict[str, Tensor]:
    if isinstance(norm, RMSNorm):
        return {f"{place}/gamma": norm.weight}
    layer_norm = _is(nn.LayerNorm, norm)
    return {f"{place}/gamma": layer_norm.weight, f"{place}/beta": layer_norm.bias}


def _prefixed(name: str, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{name}/{key}": array for key, array in arrays.items()}


def _is(kind: type[Kind], module: nn.Module | None) -> Kind:
    """The module, which `require_plain` has seen to be of that kind."""
    if not isinstance(module, kind):
        raise TypeError(f"{type(module).__name__} is not {kind.__name__}")
    return module
