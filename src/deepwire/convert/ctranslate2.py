"""CTranslate2: a C++ program that translates with plain Transformers on CPUs and GPUs.

A folder holds `model.bin`, `config.json` and the vocabularies, which `ctranslate2.Translator` reads, and the
files that segment text (`vocabulary/`). It is given subwords without BOS and EOS, which it adds.

Norms stand as in pre-norm, post-norm, Peri-LN (on both sides of sub-layers) and Neutron's order (residuals
taken from the normalised input). Factors of connections and of a parametrisation become part of weights:
exact up to rounding, and up to the epsilon of norms where the stream has a factor.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from deepwire.checkpoint.store import LoadedModel
from deepwire.convert.export_format import ExportedModel, ExportFormat, require_letters
from deepwire.convert.plain import SUBLAYERS, Place, output_bias, plain_parameters, sides_of
from deepwire.convert.plain_models import PLAIN_ACTIVATIONS, normalises_embedding, not_in_ctranslate2
from deepwire.data.vocabulary import BOS, EOS, PAD, Vocabulary
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.model_loading import stored_config
from deepwire.decoding.shortlist import RECORD, Shortlist, ShortlistTable, shortlist_path
from deepwire.errors import ModelError
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
from deepwire.model.layers import GATES, Branch
from deepwire.model.mixers.self_attention import SelfAttention
from deepwire.model.stack import Stack
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel

if TYPE_CHECKING:
    import ctranslate2
    from ctranslate2.specs.transformer_spec import (
        TransformerDecoderSpec,
        TransformerEncoderSpec,
        TransformerSpec,
    )

VOCABULARY_MAP = "vmap.txt"
_BATCH = 32
_LONGEST = 256
StackSpec = TypeVar("StackSpec", "TransformerEncoderSpec", "TransformerDecoderSpec")


class CTranslate2(ExportFormat):
    """The format of CTranslate2 4."""

    name = extra = "ctranslate2"
    packages = ("ctranslate2",)
    quantizations = ("float32", "float16", "bfloat16", "int16", "int8")
    never = (PAD, BOS)

    def require(self, model: LoadedModel) -> None:
        """Refuse several languages, settings that it does not compute, and words that look like symbols."""
        super().require(model)
        require_letters(model, "CTranslate2")
        if (setting := not_in_ctranslate2(model.model.config)) is not None:
            raise ModelError(
                f"CTranslate2 does not compute model.{setting}",
                "it computes Transformers with self-attention; --format onnx exports every model",
            )

    def notes(self, model: LoadedModel) -> tuple[str, ...]:
        """Whether the model's shortlist goes with it, and the head that aligns."""
        notes = []
        if stored_config(model).alignment.head is not None:
            notes.append("decoding.alignment.head is left out: CTranslate2 takes the mean of all heads")
        if _shortlist(model) is not None and _vocabulary_map(model) is None:
            notes.append("the shortlist is left out: CTranslate2's cannot have subwords with spaces")
        elif _shortlist(model) is not None:
            notes.append(f"{VOCABULARY_MAP} is the model's shortlist: translate_batch(..., use_vmap=True)")
        return tuple(notes)

    def write(self, model: LoadedModel, folder: Path, quantization: str) -> None:
        """Write the model, its vocabularies, and its shortlist as a vocabulary map."""
        spec = transformer_spec(model.model)
        layers, layer = model.model.config.decoder.layers, stored_config(model).alignment.layer
        spec.decoder.alignment_layer = np.int16(layers // 2 if layer is None else min(layer, layers) - 1)
        spec.decoder.alignment_heads = np.int16(0)  # the mean of all
        target = _pieces(model.vocabularies.target)
        spec.config.decoder_start_token = target[EOS if model.model.config.embeddings.start == "eos" else BOS]
        spec.config.add_source_eos = True
        spec.config.add_source_bos = model.metadata.get("source_bos") is True
        sides = [_pieces(vocabulary) for vocabulary in model.vocabularies.sides.values()]
        save_spec(spec, sides, folder, quantization)
        model.vocabularies.save(folder / "vocabulary")
        if (vocabulary_map := _vocabulary_map(model)) is not None:
            (folder / VOCABULARY_MAP).write_text(vocabulary_map, encoding="utf-8")

    def read(self, folder: Path) -> ExportedModel:
        """The folder as CTranslate2 reads it."""
        import ctranslate2

        return _Read(ctranslate2.Translator(str(folder), device="cpu"))


class _Read(ExportedModel):
    def __init__(self, translator: ctranslate2.Translator) -> None:
        self._translator = translator

    def searchable(self, config: DecodingConfig) -> DecodingConfig:
        """Without a length penalty, as its own does not count EOS; a sentence then ends as with `optimal`."""
        both = {name: getattr(config, name) for name in ("beam", "min_length", "no_repeat_ngram")}
        return DecodingConfig(
            **both, stop="optimal", length_penalty=0, max_length_ratio=0, max_length_extra=_LONGEST
        )

    def search(
        self, sources: Sequence[Sequence[str]], config: DecodingConfig, language: str = ""
    ) -> list[list[str]]:
        results = self._translator.translate_batch(
            [list(source) for source in sources],
            max_batch_size=_BATCH,
            disable_unk=True,
            beam_size=config.beam,
            length_penalty=0,
            no_repeat_ngram_size=config.no_repeat_ngram,
            min_decoding_length=config.min_length,
            max_decoding_length=config.max_length_extra,
        )
        return [list(result.hypotheses[0]) for result in results]

    def score(
        self, sources: Sequence[Sequence[str]], targets: Sequence[Sequence[str]], language: str = ""
    ) -> list[list[float]]:
        results = self._translator.score_batch(
            [list(source) for source in sources], [list(target) for target in targets], max_batch_size=_BATCH
        )
        return [list(result.log_probs) for result in results]


def transformer_spec(model: TranslationModel) -> TransformerSpec:
    """CTranslate2's description of a Transformer, filled with arrays by the names of its attributes."""
    from ctranslate2.specs import transformer_spec as specs

    encoder = _stack_spec(specs.TransformerEncoderSpec, model, "encoder")
    spec = specs.TransformerSpec(encoder, _stack_spec(specs.TransformerDecoderSpec, model, "decoder"))
    spec.encoder.scale_embeddings = model.source_embedding.scale != 1
    spec.decoder.scale_embeddings = model.target_embedding.scale != 1
    for name, array in arrays_of(model).items():
        *path, last = name.split("/")
        place = spec
        for part in path:
            kind, _, index = part.rpartition("_")
            listed = index.isdigit() and not hasattr(place, part)
            place = getattr(place, kind)[int(index)] if listed else getattr(place, part)
        setattr(place, last, array.numpy())
    spec.decoder.start_from_zero_embedding = model.config.embeddings.start == "zero"
    spec.config.layer_norm_epsilon = model.config.norm_eps
    return spec


def _stack_spec(kind: Callable[..., StackSpec], model: TranslationModel, side: Side) -> StackSpec:
    from ctranslate2.specs.common_spec import Activation
    from ctranslate2.specs.model_spec import OPTIONAL

    config, stack = model.config, model.config.specs()[side]
    connection = config.encoder.connection
    rotary, relative = stack.rotary, _self_attention(model.stack(side)).relative is not None
    peri_norm = isinstance(connection, PeriLNConfig)
    # With normalised residuals it is post-norm and one norm more.
    pre_norm = isinstance(connection, PreNormConfig | PreNormVariantSection)
    spec = kind(
        config.stack(side).layers,
        config.heads,
        pre_norm=pre_norm and getattr(connection, "residual", "input") == "input",
        no_final_norm=not getattr(connection, "final_norm", True),
        pre_post_layer_norm=peri_norm,
        relative_position=relative,
        activation=Activation[_ACTIVATIONS[config.activation]],
        layernorm_embedding=config.embeddings.norm or normalises_embedding(connection),
        ffn_glu=config.activation in GATES,
        rms_norm=config.norm == "rms",
        num_heads_kv=stack.key_heads,
        # 0: all dimensions of a head.
        rotary_dim=None if rotary is None else 0,
        rotary_interleave=rotary is not None and rotary.layout == "interleaved",
        rotary_base=10000.0 if rotary is None else rotary.base,
        **({"external_pre_post_encoder_layers": peri_norm} if side == "decoder" else {}),
    )
    if relative:
        for layer in spec.layer:
            layer.self_attention.relative_position_values = OPTIONAL
    if rotary is not None and hasattr(spec, "position_encodings"):
        del spec.position_encodings
    return spec


def _shortlist(model: LoadedModel) -> ShortlistTable | None:
    folder = shortlist_path(model.folder)
    if not (folder / RECORD).is_file():
        return None
    return Shortlist.load(folder, model.vocabularies).table("")


def _vocabulary_map(model: LoadedModel) -> str | None:
    """The shortlist as a vocabulary map: lines of a subword, a tab, and those that it may become."""
    table = _shortlist(model)
    if table is None:
        return None
    source, target = (_pieces(vocabulary) for vocabulary in model.vocabularies.sides.values())
    if any(set(piece) & set(" \t\r\n") for piece in (*source, *target)):
        return None
    ranges = list(pairwise(table.offsets.tolist()))
    rows = {piece: table.targets[slice(*each)] for piece, each in zip(source, ranges, strict=False)}
    # Every source ends with EOS. A line without a subword is of all texts.
    rows |= {"": torch.cat([table.always, rows.pop(source[EOS], table.always)])}
    return "".join(
        f"{piece}\t{' '.join(target[number] for number in sorted({*row.tolist()}))}\n"
        for piece, row in rows.items()
        if len(row)
    )


def save_spec(
    spec: TransformerSpec, pieces: Sequence[list[str]], folder: Path, quantization: str = "float32"
) -> None:
    """Write a model into an existing folder; `pieces` are the subwords of source and target by their ids."""
    source, target = pieces
    spec.register_source_vocabulary(source)
    spec.register_target_vocabulary(target)
    spec.validate()
    spec.optimize(quantization=None if quantization == "float32" else quantization)
    spec.save(str(folder))


def _pieces(vocabulary: Vocabulary) -> list[str]:
    return vocabulary.pieces(range(vocabulary.size))


POSITIONS = 1024
"""Positions that are written out: CTranslate2 has a table where deepwire may have a formula."""
_ACTIVATIONS = {name: name.upper() for name in PLAIN_ACTIVATIONS} | {
    "silu": "SWISH",
    "swiglu": "SWISH",
    "geglu": "GELU",
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


@torch.no_grad()
def arrays_of(model: TranslationModel) -> dict[str, Tensor]:
    """Copies of the parameters by CTranslate2's names, float32: it rounds them in place."""
    parameters: dict[Place, Tensor] = plain_parameters(model)
    for side, (stack, embedding) in sides_of(model).items():
        table = embedding.table.weight
        if embedding.scale != 1:  # CTranslate2 multiplies by the square root of the width
            table = table * (embedding.scale / table.size(1) ** 0.5)
        parameters[Place(side, -1, "embeddings", "weight")] = table
        if (positions := _positions(model, side)) is not None:
            parameters[Place(side, -1, "position_encodings", "encodings")] = positions
        _fold(parameters, stack, side)
    arrays = _named(parameters, peri_norm=isinstance(model.decoder.connection, PeriLN))
    for side, (stack, _) in sides_of(model).items():
        for layer, mixer in enumerate(stack.mixers):
            assert isinstance(mixer, SelfAttention)
            for name, each in (("keys", mixer.relative), ("values", mixer.relative_values)):
                if each is not None:
                    # As far ahead as back: a decoder's table may end with the next word.
                    ahead = each.table[-1:].expand(each.past - each.future, -1)
                    place = f"{side}/layer_{layer}/self_attention/relative_position_{name}"
                    arrays[place] = torch.cat([each.table, ahead])
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
    positions: Tensor | None = embedding.positions(0, POSITIONS, weight)
    if positions is None and mixer.relative is None and mixer.rotary is None:
        return weight.new_zeros(1, 1).expand(POSITIONS, weight.size(1))  # without any it adds sinusoids
    return positions


def _self_attention(stack: Stack) -> SelfAttention:
    mixer = stack.mixers[0]
    assert isinstance(mixer, SelfAttention)  # which `require` has seen
    return mixer


# The maps that read the stream, and the one that writes to it.
_READERS = {"self": ("q", "k", "v"), "cross": ("q",), "feed": ("in", "gate")}
_WRITERS = {"self": "o", "cross": "o", "feed": "out"}
_LEAVES = ("weight", "bias", "encodings")


def _fold(parameters: dict[Place, Tensor], stack: Stack, side: Side) -> None:
    """Multiply the factors of a connection, and of a parametrisation, into the parameters of a stack."""
    connection = stack.connection

    def multiply(layer: int, part: str, factor: Tensor | float, leaves: Sequence[str] = _LEAVES) -> None:
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
