"""CTranslate2: a C++ program that translates with plain Transformers on CPUs and GPUs.

A folder holds `model.bin`, `config.json` and the vocabularies, which `ctranslate2.Translator` reads, and the
files that segment text (`vocabulary/`). It is given subwords without BOS and EOS, which it adds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from inspect import signature
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

import numpy as np
import torch
from torch import Tensor

from deepwire.checkpoint.store import LoadedModel
from deepwire.convert.ctranslate2_arrays import TransformerSettings, arrays_of, require_plain, settings_of
from deepwire.convert.export_format import ExportedModel, ExportFormat, require_distinct
from deepwire.data.vocabulary import BOS, EOS, PAD, Vocabulary
from deepwire.decoding.decoding_config import AlignmentConfig, DecodingConfig
from deepwire.decoding.model_loading import stored_config
from deepwire.decoding.shortlist import RECORD, Shortlist, ShortlistTable, shortlist_path
from deepwire.errors import ModelError, UsageError

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

    name = "ctranslate2"
    quantizations = ("float32", "float16", "bfloat16", "int16", "int8")
    never = (PAD, BOS)

    def require(self, model: LoadedModel) -> None:
        """Refuse several languages, settings that it does not compute, and words that look like symbols."""
        if find_spec("ctranslate2") is None:
            raise UsageError(
                "CTranslate2 writes its own format, and is not installed",
                "pip install 'deepwire[ctranslate2]'",
            )
        if model.languages:
            raise ModelError(
                f"{model.folder}: a model of several languages, whose tags CTranslate2 does not know",
                "models of one direction can be exported",
            )
        require_plain(model.model)
        settings = settings_of(model.model)
        _require_peri_norm(settings)
        _alignment(stored_config(model).alignment, settings)
        require_distinct(model, "CTranslate2")

    def notes(self, model: LoadedModel) -> tuple[str, ...]:
        """Whether the model's shortlist goes with it."""
        if _shortlist(model) is None:
            return ()
        if _vocabulary_map(model) is None:
            return ("the shortlist is left out: CTranslate2's cannot have subwords with spaces",)
        return (f"{VOCABULARY_MAP} is the model's shortlist, for translate_batch(..., use_vmap=True)",)

    def write(self, model: LoadedModel, folder: Path, quantization: str) -> None:
        """Write the model, its vocabularies, and its shortlist as a vocabulary map."""
        settings = settings_of(model.model)
        layer, head = _alignment(stored_config(model).alignment, settings)
        spec = transformer_spec(settings, arrays_of(model.model, None if head is None else (layer, head)))
        # The mean of the first head alone, or of all.
        spec.decoder.alignment_layer = np.int16(layer)
        spec.decoder.alignment_heads = np.int16(head is not None)
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

    def version(self) -> str:
        """The library and its version."""
        return f"CTranslate2 {version('ctranslate2')}"


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


def transformer_spec(settings: TransformerSettings, arrays: Mapping[str, Tensor]) -> TransformerSpec:
    """CTranslate2's description of a Transformer, filled with arrays by the names of its attributes."""
    from ctranslate2.specs import transformer_spec as specs

    sides = (0, specs.TransformerEncoderSpec), (1, specs.TransformerDecoderSpec)
    spec = specs.TransformerSpec(*(_stack_spec(kind, settings, index) for index, kind in sides))
    spec.encoder.scale_embeddings, spec.decoder.scale_embeddings = settings["scale"]
    for name, array in arrays.items():
        *path, last = name.split("/")
        place = spec
        for part in path:
            kind, _, index = part.rpartition("_")
            listed = index.isdigit() and not hasattr(place, part)
            place = getattr(place, kind)[int(index)] if listed else getattr(place, part)
        setattr(place, last, array.numpy())
    spec.decoder.start_from_zero_embedding = settings["zero_start"]
    spec.config.layer_norm_epsilon = settings["norm_eps"]
    return spec


def _stack_spec(kind: Callable[..., StackSpec], settings: TransformerSettings, index: int) -> StackSpec:
    """The description of encoder (0) or decoder (1), still without arrays."""
    from ctranslate2.specs.common_spec import Activation
    from ctranslate2.specs.model_spec import OPTIONAL

    rotary, relative = settings["rotary"][index], settings["relative"][index]
    of_decoder = {"external_pre_post_encoder_layers": settings["peri_norm"]} if index else {}
    spec = kind(
        settings["layers"][index],
        settings["heads"],
        pre_norm=settings["pre_norm"],
        no_final_norm=not settings["final_norm"],
        pre_post_layer_norm=settings["peri_norm"],
        relative_position=relative,
        activation=Activation[settings["activation"]],
        layernorm_embedding=settings["embedding_norm"],
        ffn_glu=settings["gated"],
        rms_norm=settings["rms_norm"],
        num_heads_kv=settings["key_heads"][index],
        # 0: all dimensions of a head.
        rotary_dim=None if rotary is None else 0,
        rotary_interleave=rotary is not None and rotary.layout == "interleaved",
        rotary_base=10000.0 if rotary is None else rotary.base,
        **of_decoder,
    )
    if relative:
        for layer in spec.layer:
            layer.self_attention.relative_position_values = OPTIONAL
    if rotary is not None and hasattr(spec, "position_encodings"):
        del spec.position_encodings
    return spec


def _require_peri_norm(settings: TransformerSettings) -> None:
    """Check that the installed CTranslate2 has norms on both sides of cross-attention, if they are needed.

    Raises:
        UsageError: It is too old.
    """
    from ctranslate2.specs.transformer_spec import TransformerDecoderSpec

    known = signature(TransformerDecoderSpec.__init__).parameters
    if settings["peri_norm"] and "external_pre_post_encoder_layers" not in known:
        raise UsageError(
            f"CTranslate2 {version('ctranslate2')} does not compute connection: peri_ln, newer ones do",
            "pip install 'ctranslate2>=4.7'",
        )


def _alignment(config: AlignmentConfig, settings: TransformerSettings) -> tuple[int, int | None]:
    """Layer and head whose attention says what a word comes from, from 0; no head: the mean of all.

    Raises:
        ModelError: The model has no such layer or head.
    """
    layers, heads = settings["layers"][1], settings["heads"]
    layer = layers // 2 + 1 if config.layer is None else config.layer
    for name, number, most in (("layer", layer, layers), ("head", config.head or 1, heads)):
        if number > most:
            raise ModelError(
                f"decoding.alignment.{name} {number}: the decoder has {most}", "choose another one"
            )
    return layer - 1, None if config.head is None else config.head - 1


def _shortlist(model: LoadedModel) -> ShortlistTable | None:
    """The shortlist that lies with the model, if there is one."""
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
