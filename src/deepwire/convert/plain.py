"""A plain Transformer's parameters under neutral names, which the formats of other programs rename."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from deepwire.data.vocabulary import BOS, PAD
from deepwire.model.cross_attention import CrossAttention
from deepwire.model.embedding import Embedding
from deepwire.model.layers import FeedForward, Gated
from deepwire.model.mixers.linear_rnn import SSRU
from deepwire.model.mixers.self_attention import SelfAttention
from deepwire.model.stack import Stack
from deepwire.model.stack_spec import SIDES, Side
from deepwire.model.translation_model import TranslationModel

NEVER = -1e9
"""Bias of a symbol that another program may choose and deepwire never does."""
SUBLAYERS = {"mixer": "self", "cross": "cross", "feed_forward": "feed"}


class Place(NamedTuple):
    """Where a parameter belongs.

    `part` is `self.q`, `cross.norm`, `feed.in` and the like in a layer, and `embedding.norm` or `final.norm`
    around all layers, where `layer` is -1.
    """

    side: Side
    layer: int
    part: str
    leaf: str


def sides_of(model: TranslationModel) -> Mapping[Side, tuple[Stack, Embedding]]:
    """Both stacks, each with the embedding that it reads."""
    embeddings = (model.source_embedding, model.target_embedding)
    return {side: (model.stack(side), each) for side, each in zip(SIDES, embeddings, strict=True)}


def plain_parameters(model: TranslationModel) -> dict[Place, Tensor]:
    """All parameters but the tables of words and positions, as views.

    A map has a bias even where the model has none: zeros.
    """
    return {
        Place(side, *place): value.detach()
        for side, (stack, embedding) in sides_of(model).items()
        for place, value in (*_maps_of(stack), *_norms_of(stack, embedding))
    }


def swapped(table: Tensor) -> Tensor:
    """Rows `[V, ...]` with those of PAD and BOS in each other's place, as fairseq and XLM-R number them."""
    return torch.cat((table[[BOS, PAD]], table[2:]))


def output_bias(model: TranslationModel) -> Tensor:
    """A copy of the output bias `[V]`, with which PAD and BOS are never chosen."""
    bias = torch.zeros(model.target_vocabulary)
    if model.head.bias is not None:
        bias += model.head.bias.detach()
    bias[[PAD, BOS]] = NEVER
    return bias


_Placed = Iterator[tuple[tuple[int, str, str], Tensor]]


def _maps_of(stack: Stack) -> _Placed:
    kinds = {"mixer": stack.mixers, "cross": stack.crosses, "feed_forward": stack.feed_forwards}
    for call in stack.calls:
        for part, value in _maps(kinds[call.kind][call.layer]):
            name, leaf = part.split(".")
            yield (call.layer, f"{SUBLAYERS[call.kind]}.{name}", leaf), value


def _maps(module: nn.Module) -> Iterator[tuple[str, Tensor]]:
    match module:
        case SelfAttention():
            if module.key_heads < module.heads:
                yield from _cut("q", module.query)
                yield from _cut("kv", module.key_value)
            else:
                yield from _cut("qkv", module.query_key_value)
            yield from _cut("o", module.output)
        case CrossAttention():
            yield from _cut("q", module.query)
            yield from _cut("kv", module.key_value)
            yield from _cut("o", module.output)
        case FeedForward():
            yield from _cut(("gate", "in") if isinstance(module.activation, Gated) else ("in",), module.input)
            yield from _cut(("out",), module.output)
        case SSRU():
            forget, update = module.maps.weight.chunk(2)
            yield "update.weight", update
            yield "forget.weight", forget
            yield "forget.bias", module.forget_bias
        case _:
            raise TypeError(f"{type(module).__name__} is no part of a plain Transformer")


def _cut(names: Sequence[str], linear: nn.Linear) -> Iterator[tuple[str, Tensor]]:
    """Equal parts of a map, as views of its parameters."""
    bias: Tensor | None = linear.bias
    bias = linear.weight.new_zeros(linear.out_features) if bias is None else bias
    parts = zip(names, linear.weight.chunk(len(names)), bias.chunk(len(names)), strict=True)
    for name, rows, entries in parts:
        yield f"{name}.weight", rows
        yield f"{name}.bias", entries


def _norms_of(stack: Stack, embedding: Embedding) -> _Placed:
    connection: Any = stack.connection
    inner: list[nn.Module | None] = [*connection.norms]
    final: nn.Module | None = getattr(connection, "final_norm", None)
    outer: nn.Module | None = embedding.norm or getattr(connection, "embedding_norm", None)
    if getattr(connection, "from_normalised", False) and final is not None:
        # x <- LN(x) + F(LN(x)) is post-norm whose first norm is that of the embedding.
        outer, *inner = [*inner, final]
        final = None
    norms = {(-1, "embedding.norm"): outer, (-1, "final.norm"): final}
    for kind, each in (("norm", inner), ("post_norm", [*getattr(connection, "output_norms", ())])):
        for call, norm in zip(connection.calls, each, strict=False):
            norms[call.layer, f"{SUBLAYERS[call.kind]}.{kind}"] = norm
    for (layer, part), present in norms.items():
        for leaf, value in () if present is None else present.named_parameters():
            yield (layer, part, leaf), value
