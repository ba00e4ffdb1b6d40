"""Hugging Face's transformers: plain Transformers as Marian, Pegasus, BART, mBART or M2M-100 models.

A folder holds `model.safetensors`, `config.json`, `generation_config.json` and the files of a
MarianTokenizer. `AutoModelForSeq2SeqLM` and `AutoTokenizer` read it, without deepwire.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path

from deepwire.checkpoint.model_files import write_tensors
from deepwire.checkpoint.store import LoadedModel
from deepwire.convert.export_format import ExportedModel, ExportFormat
from deepwire.convert.huggingface_arrays import longest_of, tensors_of
from deepwire.convert.huggingface_reading import ReadModel, transformers_version
from deepwire.convert.huggingface_search import generation_settings, numbers_never, search_notes
from deepwire.data.languages import Languages
from deepwire.data.subwords.piece_table import PieceTableVocabulary
from deepwire.data.subwords.sentencepiece import SentencePieceVocabulary
from deepwire.data.vocabulary import BOS, EOS, PAD, UNK, Vocabulary
from deepwire.decoding.model_loading import stored_config
from deepwire.errors import ModelError, UsageError
from deepwire.io.atomic import json_text
from deepwire.model.huggingface_class import NORM_EPS, HuggingFaceClass, huggingface_class
from deepwire.model.translation_model import TranslationModel

_ARCHITECTURES = {
    "marian": "MarianMTModel",
    "pegasus": "PegasusForConditionalGeneration",
    "bart": "BartForConditionalGeneration",
    "mbart": "MBartForConditionalGeneration",
    "m2m_100": "M2M100ForConditionalGeneration",
}


class HuggingFace(ExportFormat):
    """Classes of transformers that compute plain Transformers."""

    name = "huggingface"
    quantizations = ("float32",)
    computes_the_same = True

    def require(self, model: LoadedModel) -> None:
        """See the base class."""
        require_transformers(self.name)
        class_of(model.model)
        if model.metadata.get("source_bos") is True:
            raise ModelError(
                f"{model.folder}: its sources begin with BOS, which a MarianTokenizer does not write",
                "--format huggingface-code keeps it",
            )
        for side, vocabulary in model.vocabularies.sides.items():
            if not isinstance(vocabulary, SentencePieceVocabulary | PieceTableVocabulary):
                raise ModelError(
                    f"{model.folder}: a MarianTokenizer segments with SentencePiece, and the {side} "
                    f"vocabulary is of the type {model.vocabularies.type}",
                    "--format huggingface-code keeps it",
                )

    def notes(self, model: LoadedModel) -> tuple[str, ...]:
        """Differences there."""
        notes = [*search_notes(stored_config(model))]
        if model.model.config.norm_eps != NORM_EPS:
            notes.append(
                f"norms have an epsilon of {NORM_EPS:g} there, and of {model.model.config.norm_eps:g} here"
            )
        languages = Languages.from_metadata(model.metadata)
        if languages is not None and languages.tags_target and len(languages.targets) > 1:
            notes.append("give generate(decoder_start_token_id=...) the number of a tag such as >>de<<")
        return tuple(notes)

    def write(self, model: LoadedModel, folder: Path, quantization: str) -> None:
        """See the base class."""
        kind = class_of(model.model)
        languages = Languages.from_metadata(model.metadata)
        numbers = symbol_numbers(kind)
        write_tensors(folder / "model.safetensors", tensors_of(model.model, kind), {"format": "pt"})
        _write(folder / "config.json", _config(model.model, kind, numbers, languages))
        generation = generation_settings(stored_config(model), numbers, longest_of(model.model, kind))
        generation["suppress_tokens"] = [
            *numbers_never(numbers),
            *_tags(model.vocabularies.target, languages),
        ]
        generation["decoder_start_token_id"] = _first_token(model, numbers, languages)
        _write(folder / "generation_config.json", generation)
        _write_tokenizer(model, folder, kind, languages)

    def read(self, folder: Path) -> ExportedModel:
        """See the base class."""
        return ReadModel(folder)

    def version(self) -> str:
        """See the base class."""
        return transformers_version()


def require_transformers(name: str) -> None:
    """Check that transformers is installed.

    Raises:
        UsageError: It is not.
    """
    if find_spec("transformers") is None:
        raise UsageError(
            f"--format {name} needs transformers, which is not installed", "pip install 'deepwire[hf]'"
        )


def class_of(model: TranslationModel) -> HuggingFaceClass:
    """The class that computes a model.

    Raises:
        ModelError: There is none; names the setting.
    """
    try:
        return huggingface_class(model.config)
    except ValueError as setting:
        raise ModelError(
            f"no class of transformers computes model.{setting}",
            "--format huggingface-code exports every model, to run where deepwire is installed",
        ) from None


def symbol_numbers(kind: HuggingFaceClass) -> dict[str, int]:
    """The numbers of the symbols there."""
    swap = {PAD: BOS, BOS: PAD} if kind.swaps_padding else {}
    symbols = {"pad": PAD, "bos": BOS, "eos": EOS, "unk": UNK}
    return {name: swap.get(number, number) for name, number in symbols.items()}


def _config(
    model: TranslationModel,
    kind: HuggingFaceClass,
    numbers: Mapping[str, int],
    languages: Languages | None,
) -> dict[str, object]:
    ours = model.config
    tie, dropout = ours.embeddings.tie, ours.dropout
    config: dict[str, object] = {
        "model_type": kind.model_type,
        "architectures": [_ARCHITECTURES[kind.model_type]],
        "is_encoder_decoder": True,
        "d_model": ours.d_model,
        "vocab_size": model.source_vocabulary,
        "activation_function": ours.activation,
        "scale_embedding": model.source_embedding.scale != 1,
        "tie_word_embeddings": tie in ("all", "output"),
        "max_position_embeddings": longest_of(model, kind),
        "dropout": dropout.sublayer,
        "attention_dropout": dropout.attention,
        "activation_dropout": dropout.activation,
        "encoder_layerdrop": 0.0,
        "decoder_layerdrop": 0.0,
        "decoder_start_token_id": _start(model, numbers),
        "forced_eos_token_id": None,
        "dtype": "float32",
        **{f"{name}_token_id": numbers[name] for name in ("pad", "bos", "eos")},
    }
    for side, stack in (("encoder", ours.encoder), ("decoder", ours.decoder)):
        _, heads, inner = ours.size("encoder" if side == "encoder" else "decoder")
        config |= {
            f"{side}_layers": stack.layers,
            f"{side}_attention_heads": heads,
            f"{side}_ffn_dim": inner,
        }
    if kind.model_type == "marian":
        config["share_encoder_decoder_embeddings"] = tie == "all"
        config["decoder_vocab_size"] = model.target_vocabulary
    if languages is not None:
        config["translation"] = languages.to_metadata()
    return config


def _start(model: TranslationModel, numbers: Mapping[str, int]) -> int:
    return numbers[model.config.embeddings.start]


def _first_token(model: LoadedModel, numbers: Mapping[str, int], languages: Languages | None) -> int:
    if languages is not None and languages.tags_target and len(languages.targets) == 1:
        return model.vocabularies.target.size + languages.target(languages.targets[0])
    return _start(model.model, numbers)


def _tags(vocabulary: Vocabulary, languages: Languages | None) -> list[int]:
    return [] if languages is None else list(range(vocabulary.size, vocabulary.size + languages.tags))


def _write_tokenizer(
    model: LoadedModel, folder: Path, kind: HuggingFaceClass, languages: Languages | None
) -> None:
    """The files of a MarianTokenizer; tags of languages are written `>>de<<` there."""
    swap = {PAD: BOS, BOS: PAD} if kind.swaps_padding else {}
    joint = model.vocabularies.source is model.vocabularies.target
    tagged = () if languages is None or not languages.tags else languages.names
    for side, vocabulary in model.vocabularies.sides.items():
        if not isinstance(vocabulary, SentencePieceVocabulary | PieceTableVocabulary):
            raise TypeError(type(vocabulary).__name__)
        (folder / f"{side}.spm").write_bytes(vocabulary.model)
        pieces = vocabulary.pieces(range(vocabulary.size))
        numbered = {piece: swap.get(number, number) for number, piece in enumerate(pieces)}
        numbered |= {f">>{name}<<": vocabulary.size + place for place, name in enumerate(tagged)}
        if side == "source" or not joint:
            _write(folder / ("vocab.json" if side == "source" else "target_vocab.json"), numbered)
    _write(
        folder / "tokenizer_config.json",
        {
            "tokenizer_class": "MarianTokenizer",
            "source_lang": str(model.metadata.get("source", "")) or None,
            "target_lang": str(model.metadata.get("target", "")) or None,
            "unk_token": "<unk>",
            "eos_token": "</s>",
            "pad_token": "<pad>",
            "separate_vocabs": not joint,
            "model_max_length": longest_of(model.model, kind),
            # Text that says </s> is text.
            "split_special_tokens": True,
            "additional_special_tokens": [f">>{name}<<" for name in tagged],
        },
    )


def _write(path: Path, content: Mapping[str, object]) -> None:
    path.write_text(json_text(content), encoding="utf-8")
