"""Connections with factors as plain ones: the factors become part of weights that CTranslate2 reads.

All of it is exact up to rounding, and up to the epsilon of norms where the stream has a factor.
"""

from __future__ import annotations

from collections.abc import Mapping

import torch
from torch import Tensor

from deepwire.model.connections.admin import Admin
from deepwire.model.connections.connection import Connection
from deepwire.model.connections.pre_norm_variants import LayerNormScaling, LayerScale, PeriLN
from deepwire.model.connections.scaled_post_norm import BranchNorm, ScaledPostNorm
from deepwire.model.cross_attention import CrossAttention
from deepwire.model.layers import Branch
from deepwire.model.mixers.self_attention import SelfAttention
from deepwire.model.stack import Stack
from deepwire.model.stack_spec import Sublayer

# By sub-layer: its name in CTranslate2, the maps that read the stream, and the one that writes to it.
PLACES: Mapping[Sublayer, tuple[str, tuple[str, ...], str]] = {
    "mixer": ("self_attention", ("linear_0",), "linear_1"),
    "cross": ("attention", ("linear_0",), "linear_2"),
    "feed_forward": ("ffn", ("linear_0", "linear_0_noact"), "linear_1"),
}
# By sub-layer: the norms in front of and behind it where it has both.
PERI_NORMS: Mapping[Sublayer, tuple[str, str]] = {
    "mixer": ("input_layer_norm", "post_attention_layer_norm"),
    "cross": ("external_pre_encoder_attention_layer_norm", "external_post_encoder_attention_layer_norm"),
    "feed_forward": ("pre_feedforward_layer_norm", "post_feedforward_layer_norm"),
}


@torch.no_grad()
def fold(arrays: Mapping[str, Tensor], stack: Stack, first: str) -> dict[str, Tensor]:
    """The arrays of one stack with the factors of its connection and of its parametrisation in them.

    Args:
        arrays: As if there were none.
        stack: With them.
        first: Name of the embedding.
    """
    folded, connection = dict(arrays), stack.connection

    def multiply(name: str, factor: Tensor | float, *, columns: bool = False) -> None:
        array = folded[name]
        rows = isinstance(factor, Tensor) and factor.dim() and array.dim() == 2 and not columns
        folded[name] = array * (factor.unsqueeze(1) if isinstance(factor, Tensor) and rows else factor)

    # What makes the stream of the next call.
    before = [f"layernorm_embedding/{leaf}" for leaf in ("gamma", "beta")]
    if before[0] not in folded:
        before = [f"{first}/weight", "position_encodings/encodings"]
    for index, call in enumerate(stack.calls):
        name, readers, writer = PLACES[call.kind]
        place = f"layer_{call.layer}/{name}"
        last, leaves = f"{place}/{writer}", ("weight", "bias")
        if isinstance(connection, PeriLN):
            last, leaves = f"layer_{call.layer}/{PERI_NORMS[call.kind][1]}", ("gamma", "beta")
        for leaf in leaves:
            if f"{last}/{leaf}" in folded:
                multiply(f"{last}/{leaf}", _of_branch(connection, index))
        if isinstance(connection, LayerNormScaling):
            for leaf in ("gamma", "beta"):
                if f"{place}/layer_norm/{leaf}" in folded:
                    multiply(f"{place}/layer_norm/{leaf}", (call.layer + 1) ** -0.5)
        if isinstance(connection, Admin):
            # LN(w x + F(x)) is LN(z + F(z / w)) with z = w x, which the norm before can make.
            weight = connection.scales[index]
            for each in before:
                if each in folded:
                    multiply(each, weight, columns=True)
            for reader in readers:
                if f"{place}/{reader}/weight" in folded:
                    multiply(f"{place}/{reader}/weight", 1 / weight, columns=True)
            before = [f"{place}/layer_norm/{leaf}" for leaf in ("gamma", "beta")]
    _scale_queries(folded, stack)
    return folded


def _of_branch(connection: Connection, index: int) -> Tensor | float:
    """Factor of the output of a call before it joins a stream with factor 1."""
    factor: float = connection.dropout.factor if isinstance(connection.dropout, Branch) else 1.0
    if isinstance(connection, ScaledPostNorm):
        return factor / connection.scale
    if isinstance(connection, BranchNorm):
        return factor * connection.factor
    if isinstance(connection, LayerScale):
        scaled: Tensor = factor * connection.scales[index]
        return scaled
    return factor


def _scale_queries(arrays: dict[str, Tensor], stack: Stack) -> None:
    for kind, modules in (("self_attention", stack.mixers), ("attention", stack.crosses)):
        for layer, module in enumerate(modules):
            if not isinstance(module, SelfAttention | CrossAttention) or module.query_scale == 1:
                continue
            for leaf in ("weight", "bias"):
                name = f"layer_{layer}/{kind}/linear_0/{leaf}"
                arrays[name] = arrays[name].clone()
                arrays[name][: stack.dim] *= module.query_scale
