"""A plain Transformer of deepwire as the arrays that CTranslate2 loads: for the comparison of decoding speed.

Pre-norm, post-norm and Neutron's order (residuals taken from the normalised input), with any positions that
are a table; what CTranslate2 does not compute is refused. `inside/ctranslate2_run.py` makes its model of the
arrays, in its own environment.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np
import torch
from torch import Tensor, nn

from deepwire.data.vocabulary import BOS, PAD
from deepwire.model.connections.residual import PostNorm, PostNormConfig, PreNorm, PreNormConfig
from deepwire.model.embedding import Embedding
from deepwire.model.stack import Stack
from deepwire.model.translator import TranslationModel

LONGEST = 1024
# CTranslate2 may choose any word; deepwire never chooses these two.
NEVER = -1e9
ACTIVATIONS = {"relu": "RELU", "gelu": "GELU"}


class CannotExportError(Exception):
    """CTranslate2 has no such model."""


def export(model: TranslationModel, folder: Path) -> None:
    """Write `model.npz` and `settings.json` to a folder.

    Raises:
        CannotExportError: The model is not one that CTranslate2 computes.
    """
    check(model)
    config = model.config
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {
        **side_arrays("encoder", model.encoder, model.source_embedding),
        **side_arrays("decoder", model.decoder, model.target_embedding),
    }
    arrays["decoder/projection/weight"] = model.head.table.weight
    bias = (
        torch.zeros(model.target_vocabulary) if model.head.bias is None else model.head.bias.detach().clone()
    )
    bias[[PAD, BOS]] = NEVER
    arrays["decoder/projection/bias"] = bias
    np.savez(folder / "model.npz", **{name: array.detach().float().numpy() for name, array in arrays.items()})
    settings = {
        "layers": [config.encoder.layers, config.decoder.layers],
        "heads": config.heads,
        "pre_norm": keeps_stream(config.encoder.connection),
        "embedding_norm": normalises_embedding(config.encoder.connection),
        "activation": ACTIVATIONS[config.activation],
        "norm_eps": config.norm_eps,
        # By the square root of the width, on either side.
        "scale": [side.scale != 1 for side in (model.source_embedding, model.target_embedding)],
        "source_vocabulary": model.source_vocabulary,
        "target_vocabulary": model.target_vocabulary,
    }
    (folder / "settings.json").write_text(json.dumps(settings, indent=1))


def check(model: TranslationModel) -> None:
    config = model.config
    for name, stack in (("encoder", config.encoder), ("decoder", config.decoder)):
        sockets = (stack.mixer.type, stack.aggregation.type, stack.fusion.type)
        if sockets != ("self_attention", "last", "top") or getattr(stack.mixer, "relative", None) is not None:
            raise CannotExportError(f"the {name} is not one of a plain Transformer")
        if (
            not isinstance(stack.connection, PreNormConfig | PostNormConfig)
            or not stack.connection.mixer_norm
        ):
            raise CannotExportError(f"{name}.connection is not one of a plain Transformer")
        if not getattr(stack.connection, "final_norm", True):
            raise CannotExportError(f"{name}.connection has no final norm")
    if config.encoder.connection != config.decoder.connection:
        raise CannotExportError("encoder and decoder differ in their connection")
    if config.activation not in ACTIVATIONS:
        raise CannotExportError(f"activation {config.activation} is not one of {', '.join(ACTIVATIONS)}")
    if config.embeddings.norm or config.embeddings.start != "bos":
        raise CannotExportError("embeddings.norm and embeddings.start have no equivalent here")


def keeps_stream(connection: PreNormConfig | PostNormConfig) -> bool:
    """Whether it is pre-norm for CTranslate2; with normalised residuals it is post-norm and one norm more."""
    return isinstance(connection, PreNormConfig) and connection.residual == "input"


def normalises_embedding(connection: PreNormConfig | PostNormConfig) -> bool:
    if isinstance(connection, PreNormConfig):
        return connection.residual == "normalised"
    return connection.embedding_norm


def side_arrays(name: str, stack: Stack, embedding: Embedding) -> dict[str, Tensor]:
    """The arrays of one stack by CTranslate2's names."""
    weight = embedding.table.weight
    table = embedding.positions(0, LONGEST, weight)
    if table is None:
        raise CannotExportError(f"the {name} has no positions")
    first = "embeddings_0" if name == "encoder" else "embeddings"
    arrays = {f"{first}/weight": weight, "position_encodings/encodings": table}
    places, extra = norms(stack)
    arrays |= extra
    for layer in range(len(stack.mixers)):
        arrays |= prefixed(f"layer_{layer}", layer_arrays(stack, layer))
        arrays |= {
            f"layer_{layer}/{place}/layer_norm/{part}": array
            for place, norm in places[layer].items()
            for part, array in norm_arrays(norm)
        }
    return prefixed(name, arrays)


def layer_arrays(stack: Stack, layer: int) -> dict[str, Tensor]:
    mixer, feed_forward = stack.mixers[layer], stack.feed_forwards[layer]
    maps = {
        "self_attention/linear_0": mixer.query_key_value,
        "self_attention/linear_1": mixer.output,
        "ffn/linear_0": feed_forward.input,
        "ffn/linear_1": feed_forward.output,
    }
    if len(stack.crosses):
        cross = stack.crosses[layer]
        maps |= {
            "attention/linear_0": cross.query,
            "attention/linear_1": cross.key_value,
            "attention/linear_2": cross.output,
        }
    arrays = {}
    for place, linear in maps.items():
        assert isinstance(linear, nn.Linear)
        arrays[f"{place}/weight"] = linear.weight
        arrays[f"{place}/bias"] = linear.weight.new_zeros(linear.out_features)
        if linear.bias is not None:
            arrays[f"{place}/bias"] = linear.bias
    return arrays


def norms(stack: Stack) -> tuple[list[dict[str, nn.Module]], dict[str, Tensor]]:
    """The norm of each sub-layer of each layer, and those before and after all of them."""
    connection = stack.connection
    assert isinstance(connection, PreNorm | PostNorm)
    every = list(connection.norms)
    extra: dict[str, Tensor] = {}
    if isinstance(connection, PostNorm):
        if connection.embedding_norm is not None:
            extra |= dict(named("layernorm_embedding", connection.embedding_norm))
    elif connection.from_normalised:
        # x <- LN(x) + F(LN(x)) is post-norm whose first norm is that of the embedding.
        assert connection.final_norm is not None
        first, every = every[0], [*every[1:], connection.final_norm]
        extra |= dict(named("layernorm_embedding", first))
    else:
        assert connection.final_norm is not None
        extra |= dict(named("layer_norm", connection.final_norm))
    places = ["self_attention", "attention", "ffn"] if len(stack.crosses) else ["self_attention", "ffn"]
    layers = [
        dict(zip(places, every[start : start + len(places)], strict=True))
        for start in range(0, len(every), len(places))
    ]
    return layers, extra


def named(place: str, norm: nn.Module) -> Iterator[tuple[str, Tensor]]:
    return ((f"{place}/{part}", array) for part, array in norm_arrays(norm))


def norm_arrays(norm: nn.Module) -> tuple[tuple[str, Tensor], tuple[str, Tensor]]:
    assert isinstance(norm, nn.LayerNorm)
    return ("gamma", norm.weight), ("beta", norm.bias)


def prefixed(name: str, arrays: Mapping[str, Tensor]) -> dict[str, Tensor]:
    return {f"{name}/{key}": array for key, array in arrays.items()}
