"""Folders of Hugging Face's transformers: Marian (OPUS-MT), Pegasus, BART, mBART, M2M-100 (NLLB).

Their parameters are called as in fairseq, from which most of them come. So a folder is brought into the order
of our channels and ids, and read as a checkpoint of fairseq. No code of transformers is run.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import get_args

import torch
from torch import Tensor

from deepwire.config.yaml_tree import PlainValue
from deepwire.convert.importers.fairseq import FairseqImporter
from deepwire.convert.importers.foreign_checkpoint import ForeignCheckpoint, read_foreign_checkpoint
from deepwire.convert.importers.importer import Architecture, Destination, Destinations
from deepwire.convert.plain_models import LEARNED, SINES_FIRST, HuggingFaceClass
from deepwire.data.subwords.base import BOS
from deepwire.data.subwords.sentencepiece import PieceTableVocabulary, read_processor
from deepwire.data.subwords.words import Dictionary
from deepwire.data.vocabulary import Vocabularies
from deepwire.errors import ModelError
from deepwire.io.regular_files import read_json, read_regular
from deepwire.model.config import ModelConfig
from deepwire.model.stack_spec import SIDES
from deepwire.model.translation_model import TranslationModel

CONFIG, GENERATION, TOKENIZER = "config.json", "generation_config.json", "tokenizer_config.json"
SPECIAL = "special_tokens_map.json"
_KINDS = get_args(HuggingFaceClass)
_ACTIVATIONS = {"relu": "relu", "gelu": "gelu", "silu": "silu", "swish": "silu"}
_WORDS, _BIAS = "encoder.embed_tokens.weight", "output_bias"
_IMPOSSIBLE = -1e4
"""Bias of the second of two equal rows, so that only one of them counts; finite in half precision."""
# What reads the stream along its columns, and what writes it along its rows or lies on it.
_READS = re.compile(r".*\b(q_proj|k_proj|v_proj|fc1|embed_tokens|output_projection)\.weight")
_WRITES = re.compile(r".*(out_proj|fc2|layer_norm|layernorm_embedding)\.(weight|bias)")
_MODELS = (("source.spm", "target.spm"), ("sentencepiece.bpe.model",) * 2)
_FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
"""The first four entries where ids are those of a SentencePiece model and one more."""
# Settings that fairseq calls the same.
_SAME = ("encoder_attention_heads", "decoder_attention_heads")


class HuggingFaceImporter(FairseqImporter):
    """transformers; names and most settings are fairseq's."""

    name = "huggingface"

    def read(self, path: Path) -> ForeignCheckpoint:
        """A folder with `config.json`, as fairseq would have stored it."""
        return _Folder.open(path).checkpoint()

    def own_vocabularies(self, foreign: ForeignCheckpoint) -> Vocabularies | None:
        """The vocabularies of the tokenizer in the folder."""
        source, target = (int(str(foreign.settings[f"{side}_entries"])) for side in SIDES)
        return _Folder.open(foreign.path.parent).vocabularies(source, target)

    def architecture(self, foreign: ForeignCheckpoint) -> Architecture:
        """As fairseq's, and settings that fairseq does not have."""
        told, folder = super().architecture(foreign), _Folder.open(foreign.path.parent)
        known = {**told.known, "model.bias.output": _BIAS in foreign.tensors}
        if folder.config["model_type"] in SINES_FIRST:
            known["model.positions"] = "sinusoidal"
        known["model.embeddings.start"] = "eos" if folder.start == folder.eos else "bos"
        known["data.source_bos"] = str(folder.tokenizer.get("tokenizer_class", "")).startswith("Bart")
        assumed = {key: value for key, value in told.assumed.items() if not key.startswith("decoding.")}
        return replace(told, known=known, assumed=assumed | _search(folder.generation, folder.unk))

    def destinations_of(
        self, name: str, model: TranslationModel, foreign: ForeignCheckpoint
    ) -> Destinations | None:
        """As in fairseq; and the bias of the output."""
        if name == _BIAS:
            return (Destination("head.bias"),)
        return super().destinations_of(name, model, foreign)

    def final_config(self, config: ModelConfig) -> ModelConfig:
        """The start symbol is told by the folder."""
        return config

    def rows(self, table: Tensor) -> Tensor:
        """Rows have our numbers already."""
        return table


@dataclass(frozen=True)
class _Folder:
    """A folder of transformers, with the settings of the model, of its search, and of its tokenizer."""

    path: Path
    config: Mapping[str, object]
    generation: Mapping[str, object]
    tokenizer: Mapping[str, object]

    @classmethod
    def open(cls, path: Path) -> _Folder:
        if not path.is_dir():
            raise ModelError(f"{path}: is no folder", f"name the folder with {CONFIG} and the weights")
        config = read_json(path / CONFIG)
        kind = config.get("model_type")
        if kind not in _KINDS:
            raise ModelError(
                f"{path / CONFIG}: a model of the type {kind!r}, which is not known here",
                f"known are {', '.join(_KINDS)}",
            )
        activation = config.get("activation_function")
        if activation not in _ACTIVATIONS:
            raise ModelError(f"{path / CONFIG}: activation_function {activation!r} is not known here")
        generation, tokenizer = (
            read_json(path / name) if (path / name).exists() else {} for name in (GENERATION, TOKENIZER)
        )
        return cls(path, config, {**config, **generation}, tokenizer)

    def checkpoint(self) -> ForeignCheckpoint:
        """Tensors by fairseq's names, in its order of channels and ours of ids."""
        file, tensors = self._tensors()
        sizes = _sizes(file, tensors)
        settings: dict[str, object] = {
            "activation_fn": _ACTIVATIONS[str(self.config["activation_function"])],
            "no_scale_embedding": self.config.get("scale_embedding") is not True,
            **{f"{side}_entries": entries for side, entries in sizes.items()},
        }
        settings |= {name: self.config[name] for name in _SAME if name in self.config}
        settings |= {
            name: str(self.tokenizer[name])
            for name in ("source_lang", "target_lang")
            if self.tokenizer.get(name)
        }
        return ForeignCheckpoint(file, self._in_our_order(file, tensors, sizes), settings)

    def _symbol(self, name: str, usual: int | None = None) -> int:
        value = self.generation.get(f"{name}_token_id")
        value = value[0] if isinstance(value, list) and value else value
        number = value if isinstance(value, int) else usual
        if number is None:
            raise ModelError(f"{self.path / CONFIG}: has no {name}_token_id")
        return number

    @property
    def pad(self) -> int:
        return self._symbol("pad")

    @property
    def eos(self) -> int:
        return self._symbol("eos")

    @property
    def unk(self) -> int:
        if (unk := self.tables[0].get("<unk>")) is None:
            raise ModelError(f"{self.path}: the vocabulary has no <unk>")
        return unk

    @property
    def start(self) -> int:
        return self._symbol("decoder_start", self.eos)

    @property
    def begin(self) -> int:
        """The stand-in for BOS: the decoder's start symbol, or where that is EOS, their own BOS."""
        bos = self._symbol("bos", self.pad)
        if self.start != self.eos:
            return self.start
        return self.pad if bos in (self.eos, self.unk) else bos

    def rows(self, size: int) -> Tensor:
        """The folder's number of each of our numbers."""
        symbols = [self.pad, self.begin, self.eos, self.unk]
        if not all(0 <= number < size for number in symbols):
            raise ModelError(f"{self.path}: symbols have the numbers {symbols}, of {size} entries")
        return torch.tensor([*symbols, *(number for number in range(size) if number not in symbols)])

    def vocabularies(self, source: int, target: int) -> Vocabularies:
        sides = [
            PieceTableVocabulary(read_regular(model), self._ordered(table, size), str(model))
            for model, table, size in zip(self.models(), self.tables, (source, target), strict=True)
        ]
        joint = self.tables[0] == self.tables[1] and source == target
        same = joint and sides[0].model == sides[1].model
        return Vocabularies(sides[0], sides[0] if same else sides[1], joint, "piece_table")

    def _ordered(self, table: Mapping[str, int], size: int) -> Dictionary:
        pieces = {number: piece for piece, number in table.items()}
        return Dictionary(
            [pieces.get(number, f"<unused {number}>") for number in self.rows(size).tolist()[4:]]
        )

    def models(self) -> tuple[Path, Path]:
        for source, target in _MODELS:
            if (self.path / source).is_file() and (self.path / target).is_file():
                return self.path / source, self.path / target
        raise ModelError(
            f"{self.path}: has no SentencePiece model ({' or '.join(names[0] for names in _MODELS)})",
            "tokenizers of other kinds are not read; save the slow tokenizer of the model into the folder",
        )

    @cached_property
    def tables(self) -> tuple[Mapping[str, int], Mapping[str, int]]:
        """The number of each piece of source and target, language tags included."""
        if (self.path / "vocab.json").exists():
            source = _numbers(self.path / "vocab.json")
        else:
            model = self.models()[0]
            processor = read_processor(read_regular(model), str(model))
            pieces = [processor.id_to_piece(number) for number in range(3, processor.vocab_size())]
            source = {piece: number for number, piece in enumerate((*_FAIRSEQ, *pieces))}
        # Tokens that the tokenizer adds behind its table, such as the tags of languages.
        decoder, taken = self.tokenizer.get("added_tokens_decoder"), set(source.values())
        if (
            decoder is None and (special := self.path / SPECIAL).exists()
        ):  # older folders give the order alone
            tags = read_json(special).get("additional_special_tokens")
            added = [str(tag) for tag in tags if str(tag) not in source] if isinstance(tags, list) else []
            decoder = dict(enumerate(added, len(source)))
        whole = dict(source)
        for number, token in decoder.items() if isinstance(decoder, dict) else ():
            text = token.get("content") if isinstance(token, dict) else token
            known = text in source or not str(number).isdecimal() or int(number) in taken
            if isinstance(text, str) and not known:
                whole[text] = int(number)
        target = self.path / "target_vocab.json"
        return whole, _numbers(target) if target.exists() else whole

    def _tensors(self) -> tuple[Path, dict[str, Tensor]]:
        files = sorted(self.path.glob("model*.safetensors")) or sorted(self.path.glob("pytorch_model*.bin"))
        if not files:
            raise ModelError(f"{self.path}: has no model.safetensors and no pytorch_model.bin")
        tensors: dict[str, Tensor] = {}
        for file in files:
            stored = read_foreign_checkpoint(file).tensors
            tensors |= {name.removeprefix("model."): value for name, value in stored.items()}
        if (shared := tensors.pop("shared.weight", None)) is not None:
            tensors.setdefault(_WORDS, shared)
        if self.config["model_type"] not in LEARNED:
            for side in SIDES:
                tensors.pop(f"{side}.embed_positions.weight", None)
                tensors.pop(f"{side}.embed_positions.weights", None)
        head = tensors.pop("lm_head.weight", None)
        if head is not None and self.config.get("tie_word_embeddings") is False:
            tensors["decoder.output_projection.weight"] = head
        if (bias := tensors.pop("final_logits_bias", None)) is not None:
            tensors[_BIAS] = bias.flatten()
        return files[0], tensors

    def _in_our_order(
        self, file: Path, tensors: dict[str, Tensor], sizes: Mapping[str, int]
    ) -> dict[str, Tensor]:
        bias = tensors.pop(_BIAS, torch.zeros(sizes["decoder"])).float()
        if bias.numel() != sizes["decoder"]:
            raise ModelError(f"{file}: final_logits_bias has {bias.numel()} numbers for the vocabulary")
        bias = bias[self.rows(sizes["decoder"])]
        if self.begin == self.pad:
            bias[BOS] = _IMPOSSIBLE
        ordered = {}
        for name, value in tensors.items():
            side = name.partition(".")[0]
            if name.endswith(("embed_tokens.weight", "output_projection.weight")):
                if value.size(0) != sizes[side]:  # of the head
                    raise ModelError(f"{file}: {name} has {value.size(0)} rows, not {sizes[side]}")
                value = value[self.rows(sizes[side])]
            ordered[name] = self._channels(name, value, tensors[_WORDS].size(1))
        return ordered | ({_BIAS: bias} if bool(bias.any()) else {})

    def _channels(self, name: str, value: Tensor, dim: int) -> Tensor:
        """Sines and cosines in turn, through the whole residual stream."""
        if self.config["model_type"] not in SINES_FIRST:
            return value
        order = torch.arange(dim).view(2, -1).t().flatten()
        if _WRITES.fullmatch(name) and value.size(0) == dim:
            return value[order]
        return value[:, order] if _READS.fullmatch(name) and value.size(-1) == dim else value


def _sizes(file: Path, tensors: Mapping[str, Tensor]) -> dict[str, int]:
    """Entries of both vocabularies: the tables tell, whatever the settings say."""
    source = tensors.get(_WORDS)
    if source is None or source.dim() < 2:
        raise ModelError(f"{file}: {_WORDS}: no table")
    return {"encoder": source.size(0), "decoder": tensors.get("decoder.embed_tokens.weight", source).size(0)}


def _search(generation: Mapping[str, object], unk: int) -> dict[str, PlainValue]:

    def number(name: str, usual: int) -> int:
        value = generation.get(name)
        return value if isinstance(value, int) else usual

    never = [
        *_list(generation.get("suppress_tokens")),
        *(word[0] for word in _list(generation.get("bad_words_ids")) if isinstance(word, list)),
    ]
    penalty, longest = generation.get("length_penalty", 1.0), number("max_length", 512)
    return {
        "decoding.beam": number("num_beams", 1),
        "decoding.length_penalty": float(penalty) if isinstance(penalty, int | float) else 1.0,
        "decoding.length_penalty_form": "average",
        "decoding.stop": "first" if generation.get("early_stopping") is True else "optimal",
        "decoding.max_length_ratio": 0.0,
        "decoding.max_length_extra": longest - 2 if longest > 2 else 510,
        "decoding.min_length": number("min_new_tokens", max(0, number("min_length", 0) - 1)),
        "decoding.no_repeat_ngram": number("no_repeat_ngram_size", 0),
        "decoding.unknown_penalty": None if unk in never else 0.0,
    }


def _list(value: object) -> Sequence[object]:
    return value if isinstance(value, list) else ()


def _numbers(path: Path) -> dict[str, int]:
    table = {piece: number for piece, number in read_json(path).items() if isinstance(number, int)}
    if len(set(table.values())) < len(table):
        raise ModelError(f"{path}: damaged: two pieces have one number")
    return table
