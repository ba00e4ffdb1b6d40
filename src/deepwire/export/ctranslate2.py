"""CTranslate2: a C++ program that translates with plain Transformers on CPUs and GPUs.

A folder holds `model.bin`, `config.json` and the vocabularies, which `ctranslate2.Translator` reads, and the
files that segment text (`vocabulary/`). It is given subwords without BOS and EOS, which it adds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from torch import Tensor

from deepwire.checkpoint.store import LoadedModel
from deepwire.data.vocabulary import Vocabulary
from deepwire.errors import ModelError, UsageError
from deepwire.export.ctranslate2_arrays import TransformerSettings, arrays_of, require_plain, settings_of
from deepwire.export.export_format import ExportedModel, ExportFormat

if TYPE_CHECKING:
    import ctranslate2
    from ctranslate2.specs.transformer_spec import (
        TransformerDecoderSpec,
        TransformerEncoderSpec,
        TransformerSpec,
    )

_BATCH = 32
StackSpec = TypeVar("StackSpec", "TransformerEncoderSpec", "TransformerDecoderSpec")


class CTranslate2(ExportFormat):
    """The format of CTranslate2 4."""

    name = "ctranslate2"
    quantizations = ("float32", "float16", "bfloat16", "int16", "int8")

    def require(self, model: LoadedModel) -> None:
        """See the base class."""
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
        for side, vocabulary in _sides(model).items():
            pieces = _pieces(vocabulary)
            if len(set(pieces)) < len(pieces):
                twice = next(piece for index, piece in enumerate(pieces) if piece in pieces[:index])
                raise ModelError(
                    f"{model.folder}: the {side} vocabulary has {twice} twice, once as a symbol: CTranslate2 "
                    "knows subwords by their letters alone"
                )

    def write(self, model: LoadedModel, folder: Path, quantization: str) -> None:
        """See the base class."""
        spec = transformer_spec(settings_of(model.model), arrays_of(model.model))
        spec.config.add_source_eos = True
        spec.config.add_source_bos = model.metadata.get("source_bos") is True
        save_spec(spec, [_pieces(vocabulary) for vocabulary in _sides(model).values()], folder, quantization)
        model.vocabularies.save(folder / "vocabulary")

    def read(self, folder: Path) -> ExportedModel:
        """See the base class."""
        import ctranslate2

        return _Read(ctranslate2.Translator(str(folder), device="cpu"))

    def version(self) -> str:
        """See the base class."""
        return f"CTranslate2 {version('ctranslate2')}"


class _Read(ExportedModel):
    def __init__(self, translator: ctranslate2.Translator) -> None:
        self._translator = translator

    def translate(
        self, sources: Sequence[Sequence[str]], longest: int, language: str = ""
    ) -> list[list[str]]:
        results = self._translator.translate_batch(
            [list(source) for source in sources],
            max_batch_size=_BATCH,
            beam_size=1,
            disable_unk=True,
            max_decoding_length=longest,
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

    rotary = settings["rotary"][index]
    spec = kind(
        settings["layers"][index],
        settings["heads"],
        pre_norm=settings["pre_norm"],
        activation=Activation[settings["activation"]],
        layernorm_embedding=settings["embedding_norm"],
        ffn_glu=settings["gated"],
        rms_norm=settings["rms_norm"],
        num_heads_kv=settings["key_heads"][index],
        # 0: all dimensions of a head.
        rotary_dim=None if rotary is None else 0,
        rotary_interleave=rotary is not None and rotary.layout == "interleaved",
        rotary_base=10000.0 if rotary is None else rotary.base,
    )
    if rotary is not None and hasattr(spec, "position_encodings"):
        del spec.position_encodings
    return spec


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


def _sides(model: LoadedModel) -> dict[str, Vocabulary]:
    return {"source": model.vocabularies.source, "target": model.vocabularies.target}


def _pieces(vocabulary: Vocabulary) -> list[str]:
    return vocabulary.pieces(range(vocabulary.size))
