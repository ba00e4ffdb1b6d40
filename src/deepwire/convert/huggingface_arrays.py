"""A plain Transformer as the parameters of a class of transformers: Marian, Pegasus, BART, mBART or M2M-100.

All five have the same names of parameters. Marian and Pegasus make their sinusoids themselves, all sines
before all cosines. Where ours stand in turn, the channels of the residual stream are put into their order:
columns of embeddings and of every matrix that reads the stream, rows of every matrix that writes it, and the
norms on it. That changes nothing that is computed.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import torch
from torch import Tensor, nn

from deepwire.data.vocabulary import BOS, PAD
from deepwire.model.connections.residual import PostNorm, PreNorm
from deepwire.model.cross_attention import CrossAttention
from deepwire.model.embedding import Embedding, LearnedPositions
from deepwire.model.huggingface_class import HuggingFaceClass
from deepwire.model.layers import FeedForward
from deepwire.model.mixers.self_attention import SelfAttention
from deepwire.model.stack import Stack
from deepwire.model.translation_model import TranslationModel

LONGEST = 1024
"""Positions where they are not the rows of a learned table."""
_UNUSED_ROWS = 2
"""Rows in front of the stored positions of BART and mBART."""
_NORMS: Mapping[int, tuple[str, ...]] = {
    2: ("self_attn_layer_norm", "final_layer_norm"),
    3: ("self_attn_layer_norm", "encoder_attn_layer_norm", "final_layer_norm"),
}
"""Of the layers of an encoder and of a decoder, in the order of their sub-layers."""


def longest_of(model: TranslationModel, kind: HuggingFaceClass) -> int:
    """How many positions there are."""
    sides = (model.source_embedding.positions, model.target_embedding.positions)
    rows = [each.table.size(0) - each.first for each in sides if isinstance(each, LearnedPositions)]
    return min(rows) if rows and kind.stores_positions else LONGEST


def tensors_of(model: TranslationModel, kind: HuggingFaceClass) -> dict[str, Tensor]:
    """Copies of the parameters by their names there, float32, each once."""
    stream = Channels.of(model.config.d_model, permuted=kind.permuted)
    tensors: dict[str, Tensor] = {}
    sides = {"encoder": (model.stack("encoder"), model.source_embedding)}
    sides["decoder"] = (model.decoder, model.target_embedding)
    for side, (stack, embedding) in sides.items():
        named = dict(_stack(stack, embedding, stream))
        if kind.stores_positions:
            named["embed_positions.weight"] = _positions(embedding, longest_of(model, kind))
        tensors |= {f"model.{side}.{name}": value for name, value in named.items()}
    tensors |= {name: stream.read(table) for name, table in _tables(model, kind).items()}
    if kind.swaps_padding:
        for name in _tables(model, kind):
            tensors[name] = swapped(tensors[name])
    else:
        bias = torch.zeros(model.target_vocabulary) if model.head.bias is None else model.head.bias.detach()
        tensors["final_logits_bias"] = bias.unsqueeze(0)
    return {
        name: value.detach().to("cpu", torch.float32).contiguous().clone() for name, value in tensors.items()
    }


def swapped(table: Tensor) -> Tensor:
    """Rows `[V, ...]` with those of PAD and BOS in each other's place."""
    order = torch.arange(table.size(0))
    order[[PAD, BOS]] = torch.tensor([BOS, PAD])
    return table[order]


@dataclass(frozen=True)
class Channels:
    """The order of the channels of the residual stream; channel i there is `order[i]` here."""

    order: Tensor

    @classmethod
    def of(cls, dim: int, *, permuted: bool) -> Channels:
        """All even channels before all odd ones, or as they are."""
        order = torch.arange(dim)
        return cls(torch.cat((order[0::2], order[1::2])) if permuted else order)

    def read(self, weight: Tensor) -> Tensor:
        """Reorder a matrix `[k, d]` that reads the stream, or an embedding."""
        return weight[:, self.order]

    def write(self, weight: Tensor) -> Tensor:
        """Reorder a matrix `[d, k]` that writes the stream, or a vector `[d]` on it."""
        return weight[self.order]


def _tables(model: TranslationModel, kind: HuggingFaceClass) -> dict[str, Tensor]:
    """Embeddings and output projection, each matrix once where it can be."""
    tie = model.config.embeddings.tie
    source, target = model.source_embedding.table.weight, model.target_embedding.table.weight
    tables: dict[str, Tensor] = {"model.shared.weight": source}
    if tie != "all":
        # Where not all are tied, newer versions of transformers tie none, and older ones both embeddings.
        tables |= {"model.encoder.embed_tokens.weight": source, "model.decoder.embed_tokens.weight": target}
    if tie not in ("all", "output"):
        tables["lm_head.weight"] = model.head.table.weight
    if kind.model_type == "marian" and tie != "all":
        del tables["model.shared.weight"]
    return tables


def _positions(embedding: Embedding, count: int) -> Tensor:
    vectors = embedding.vectors(0, count)
    if vectors is None:
        raise TypeError("a plain Transformer without positions")
    return torch.cat((vectors.new_zeros(_UNUSED_ROWS, vectors.size(1)), vectors))


def _stack(stack: Stack, embedding: Embedding, stream: Channels) -> Iterator[tuple[str, Tensor]]:
    for layer in range(len(stack.mixers)):
        for name, value in _layer(stack, layer, stream):
            yield f"layers.{layer}.{name}", value
    connection = stack.connection
    if not isinstance(connection, PostNorm | PreNorm):
        raise TypeError(type(connection).__name__)
    norms, outer = list(connection.norms), dict[str, nn.Module | None]()
    outer["layernorm_embedding"] = embedding.norm
    if isinstance(connection, PostNorm):
        outer["layernorm_embedding"] = embedding.norm or connection.embedding_norm
    elif connection.from_normalised and connection.final_norm is not None:
        # x <- LN(x) + F(LN(x)) is post-norm whose first norm is that of the embedding.
        outer["layernorm_embedding"], *norms = [*norms, connection.final_norm]
    else:
        outer["layer_norm"] = connection.final_norm
    calls = 3 if len(stack.crosses) else 2
    for index, norm in enumerate(norms):
        layer, place = divmod(index, calls)
        yield from _norm(f"layers.{layer}.{_NORMS[calls][place]}", norm, stream)
    for name, outside in outer.items():
        if outside is not None:
            yield from _norm(name, outside, stream)


def _norm(name: str, norm: nn.Module, stream: Channels) -> Iterator[tuple[str, Tensor]]:
    if not isinstance(norm, nn.LayerNorm):
        raise TypeError(type(norm).__name__)
    yield f"{name}.weight", stream.write(norm.weight)
    yield f"{name}.bias", stream.write(norm.bias)


def _layer(stack: Stack, layer: int, stream: Channels) -> Iterator[tuple[str, Tensor]]:
    mixer, feed_forward = stack.mixers[layer], stack.feed_forwards[layer]
    if not isinstance(mixer, SelfAttention) or not isinstance(feed_forward, FeedForward):
        raise TypeError(f"{type(mixer).__name__}, {type(feed_forward).__name__}")
    reading = _parts("self_attn", ("q_proj", "k_proj", "v_proj"), mixer.query_key_value)
    writing = {"self_attn.out_proj": mixer.output, "fc2": feed_forward.output}
    reading |= _parts("", ("fc1",), feed_forward.input)
    if len(stack.crosses):
        cross = stack.crosses[layer]
        if not isinstance(cross, CrossAttention):
            raise TypeError(type(cross).__name__)
        reading |= _parts("encoder_attn", ("q_proj",), cross.query)
        reading |= _parts("encoder_attn", ("k_proj", "v_proj"), cross.key_value)
        writing["encoder_attn.out_proj"] = cross.output
    for name, (weight, bias) in reading.items():
        yield f"{name}.weight", stream.read(weight)
        yield f"{name}.bias", bias
    for name, linear in writing.items():
        weight, bias = _whole(linear)
        yield f"{name}.weight", stream.write(weight)
        yield f"{name}.bias", stream.write(bias)


def _whole(linear: nn.Linear) -> tuple[Tensor, Tensor]:
    bias: Tensor | None = linear.bias
    return linear.weight, linear.weight.new_zeros(linear.out_features) if bias is None else bias


def _parts(of: str, names: tuple[str, ...], linear: nn.Linear) -> dict[str, tuple[Tensor, Tensor]]:
    """The maps that lie side by side in one."""
    weights, biases = (each.chunk(len(names)) for each in _whole(linear))
    return {
        f"{of}.{name}".lstrip("."): (weight, bias)
        for name, weight, bias in zip(names, weights, biases, strict=True)
    }
