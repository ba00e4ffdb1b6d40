"""A Transformer with norms behind its sub-layers as the parameters and settings of Marian.

Matrices lie `[in, out]` there, biases and gains `[1, out]`. Marian multiplies embeddings by the square root
of the width, and its first target word has the vector zero.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from deepwire.convert.export_format import NEVER
from deepwire.data.vocabulary import BOS, PAD
from deepwire.model.connections.residual import PostNorm, PreNorm
from deepwire.model.cross_attention import CrossAttention
from deepwire.model.embedding import Embedding
from deepwire.model.layers import FeedForward
from deepwire.model.mixers.linear_rnn import SSRU
from deepwire.model.mixers.self_attention import SelfAttention
from deepwire.model.stack import Stack
from deepwire.model.translation_model import TranslationModel

Arrays = dict[str, NDArray[np.float32]]
_Named = Iterator[tuple[str, Tensor]]


def settings_of(model: TranslationModel) -> dict[str, object]:
    """Marian's options of the model, in the order of their names."""
    ours, (source, target, output) = model.config, _ties(model)
    connection = ours.encoder.connection
    inner = getattr(connection, "embedding_norm", getattr(connection, "residual", "") == "normalised")
    normed = inner or ours.embeddings.norm
    recurrent = ours.decoder.mixer.type == "ssru"
    settings: dict[str, object] = {
        "type": "transformer",
        "version": "v1.10.0",
        "dim-vocabs": [model.source_vocabulary, model.target_vocabulary],
        "dim-emb": ours.d_model,
        "dim-rnn": ours.d_model,
        "enc-depth": ours.encoder.layers,
        "dec-depth": ours.decoder.layers,
        "enc-cell": "gru",
        "enc-cell-depth": 1,
        "enc-type": "bidirectional",
        "dec-cell": "ssru" if recurrent else "gru",
        "dec-cell-base-depth": 2,
        "dec-cell-high-depth": 1,
        "input-types": [],
        "layer-normalization": False,
        "lemma-dim-emb": 0,
        "right-left": False,
        "skip": False,
        "tied-embeddings": output,
        "tied-embeddings-all": output and source is target,
        "tied-embeddings-src": source is target and not output,
        "transformer-aan-activation": "swish",
        "transformer-aan-depth": 2,
        "transformer-aan-nogate": False,
        "transformer-decoder-autoreg": "rnn" if recurrent else "self-attention",
        "transformer-depth-scaling": False,
        "transformer-dim-aan": ours.feed_forward,
        "transformer-dim-ffn": ours.size("encoder")[2],
        "transformer-ffn-activation": {"silu": "swish"}.get(ours.activation, ours.activation),
        "transformer-ffn-depth": 2,
        "transformer-guided-alignment-layer": "last",
        "transformer-heads": ours.size("encoder")[1],
        "transformer-no-projection": False,
        "transformer-postprocess": "dan",
        "transformer-postprocess-emb": "nd" if normed else "d",
        "transformer-postprocess-top": "",
        "transformer-preprocess": "",
        "transformer-tied-layers": [],
        "transformer-train-position-embeddings": False,
        "ulr": False,
        "ulr-dim-emb": 0,
        "ulr-trainable-transformation": False,
    }
    return dict(sorted(settings.items()))


@torch.no_grad()
def arrays_of(model: TranslationModel) -> Arrays:
    """Copies of the parameters by their names there, float32."""
    source, target, output = _ties(model)
    tables = {"Wemb": source} if source is target else {"encoder_Wemb": source, "decoder_Wemb": target}
    if not output:
        tables["decoder_ff_logit_out_W"] = model.head.table.weight.t()
    bias = torch.zeros(model.target_vocabulary)
    if model.head.bias is not None:
        bias += model.head.bias.detach()
    bias[[PAD, BOS]] = NEVER
    tables["decoder_ff_logit_out_b"] = bias
    sides = {
        "encoder": (model.stack("encoder"), model.source_embedding),
        "decoder": (model.decoder, model.target_embedding),
    }
    for side, (stack, embedding) in sides.items():
        tables |= {f"{side}_{name}": value for name, value in _stack(stack, embedding)}
    return {
        name: np.ascontiguousarray(np.atleast_2d(value.detach().float().cpu().numpy()).copy())
        for name, value in tables.items()
    }


def _ties(model: TranslationModel) -> tuple[Tensor, Tensor, bool]:
    """Embeddings as Marian scales them, and whether the output projection is that of the target.

    Both are one tensor where they are one.
    """
    sides = (model.source_embedding, model.target_embedding)
    source, target = (each.table.weight if each.scale != 1 else _divided(each) for each in sides)
    if sides[0].table is sides[1].table and sides[0].scale == sides[1].scale:
        source = target
    return source, target, target is model.head.table.weight


def _divided(embedding: Embedding) -> Tensor:
    divided: Tensor = embedding.table.weight / embedding.table.weight.size(1) ** 0.5
    return divided


def _stack(stack: Stack, embedding: Embedding) -> _Named:
    """The parameters of one stack, without its side."""
    connection = stack.connection
    if not isinstance(connection, PostNorm | PreNorm):
        raise TypeError(type(connection).__name__)
    norms, outer = list(connection.norms), embedding.norm
    if isinstance(connection, PostNorm):
        outer = outer or connection.embedding_norm
    elif connection.final_norm is not None:
        # x <- LN(x) + F(LN(x)) is post-norm whose first norm is that of the embedding.
        outer, *norms = [*norms, connection.final_norm]
    if outer is not None:
        yield from _norm("emb", outer, "_pre")
    for call, norm in zip(stack.calls, norms, strict=True):
        place = f"l{call.layer + 1}"
        if call.kind == "cross":
            yield from _attention(f"{place}_context", stack.crosses[call.layer])
            yield from _norm(f"{place}_context_Wo", norm)
        elif call.kind == "feed_forward":
            yield from _feed_forward(f"{place}_ffn", stack.feed_forwards[call.layer])
            yield from _norm(f"{place}_ffn_ffn", norm)
        elif isinstance(mixer := stack.mixers[call.layer], SSRU):
            yield from _recurrent(f"{place}_rnn", mixer)
            yield from _norm(f"{place}_rnn_ffn", norm)
        else:
            yield from _attention(f"{place}_self", mixer)
            yield from _norm(f"{place}_self_Wo", norm)


def _attention(place: str, module: nn.Module) -> _Named:
    if isinstance(module, SelfAttention):
        yield from _maps(place, "qkv", module.query_key_value)
    elif isinstance(module, CrossAttention):
        yield from _maps(place, "q", module.query)
        yield from _maps(place, "kv", module.key_value)
    else:
        raise TypeError(type(module).__name__)
    yield from _maps(place, "o", module.output)


def _feed_forward(place: str, module: nn.Module) -> _Named:
    if not isinstance(module, FeedForward):
        raise TypeError(type(module).__name__)
    yield from _maps(place, "1", module.input)
    yield from _maps(place, "2", module.output)


def _recurrent(place: str, module: SSRU) -> _Named:
    forget, update = module.maps.weight.chunk(2)
    yield f"{place}_W", update.t()
    yield f"{place}_Wf", forget.t()
    yield f"{place}_bf", module.forget_bias


def _maps(place: str, names: str, linear: nn.Module) -> _Named:
    """The maps that lie side by side in one, each with a bias."""
    if not isinstance(linear, nn.Linear):
        raise TypeError(type(linear).__name__)
    bias: Tensor | None = linear.bias
    whole = linear.weight.new_zeros(linear.out_features) if bias is None else bias
    parts = zip(names, linear.weight.chunk(len(names)), whole.chunk(len(names)), strict=True)
    for name, weight, each in parts:
        yield f"{place}_W{name}", weight.t()
        yield f"{place}_b{name}", each


def _norm(place: str, norm: nn.Module, suffix: str = "") -> _Named:
    if not isinstance(norm, nn.LayerNorm):
        raise TypeError(type(norm).__name__)
    yield f"{place}_ln_scale{suffix}", norm.weight
    yield f"{place}_ln_bias{suffix}", norm.bias
