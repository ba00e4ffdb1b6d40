"""Pretrained encoders of the layout of XLM-R, and their SentencePiece models with our special numbers.

A folder as Hugging Face keeps it: `config.json`, `model.safetensors` and `sentencepiece.bpe.model`. XLM-R is
a Transformer in post-norm form with learned positions and a norm of the embeddings (Conneau et al. 2020);
multilingual MiniLM with XLM-R's vocabulary is the same but for names and the first position.

A SentencePiece model is a list of fields (the wire format of protocol buffers). The pieces are those numbered
1, in the order of their ids, so other special pieces in front of the ordinary ones make another numbering;
nothing else in the file depends on it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

import torch
from torch import Tensor

from deepwire.checkpoint.importers.foreign_checkpoint import read_foreign_checkpoint
from deepwire.checkpoint.importers.importer import Numbering
from deepwire.config.yaml_tree import PlainValue
from deepwire.data.subwords.base import SPECIAL_PIECES, Vocabulary
from deepwire.data.subwords.sentencepiece import UnigramVocabulary
from deepwire.errors import ModelError
from deepwire.io.regular_files import read_json, read_regular
from deepwire.model.stack_spec import Side

_PIECE = 1  # field of a model: a piece
_TEXT, _KIND = 1, 3  # fields of a piece
_UNKNOWN, _CONTROL = 2, 3  # kinds of piece
_VARINT, _BYTES = 0, 2  # how a field is written
_FIXED = {1: 8, 5: 4}  # other ways, by their length


class _Field(NamedTuple):
    """One field of a message: its number, its value (bytes, or a whole number), and all of its bytes."""

    number: int
    value: bytes | int
    raw: bytes


def renumbered(model: bytes, where: str) -> bytes:
    """The model with PAD 0, BOS 1, EOS 2, UNK 3 and its ordinary pieces from 4, in their order.

    Raises:
        ModelError: It is no SentencePiece model.
    """
    ordinary, rest = [], []
    try:
        for field in _fields(model):
            if field.number != _PIECE or not isinstance(field.value, bytes):
                rest.append(field.raw)
            elif _kind(field.value) not in (_UNKNOWN, _CONTROL):
                ordinary.append(field.raw)
    except (IndexError, ValueError):
        raise ModelError(f"{where}: not a SentencePiece model, or damaged") from None
    special = [_piece(text, _UNKNOWN if text == SPECIAL_PIECES[-1] else _CONTROL) for text in SPECIAL_PIECES]
    return b"".join((*special, *ordinary, *rest))


def _kind(piece: bytes) -> int:
    """The kind of a piece; 1 is an ordinary one."""
    kinds = [field.value for field in _fields(piece) if field.number == _KIND]
    return kinds[-1] if kinds and isinstance(kinds[-1], int) else 1


def _piece(text: str, kind: int) -> bytes:
    content = text.encode()
    inner = bytes((_TEXT << 3 | _BYTES, len(content))) + content + bytes((_KIND << 3 | _VARINT, kind))
    return bytes((_PIECE << 3 | _BYTES, len(inner))) + inner


def _fields(message: bytes) -> Iterator[_Field]:
    place = 0
    while place < len(message):
        begin = place
        tag, place = _number(message, place)
        written = tag & 7
        if written == _VARINT:
            value, place = _number(message, place)
            yield _Field(tag >> 3, value, message[begin:place])
            continue
        if written == _BYTES:
            length, place = _number(message, place)
        elif written in _FIXED:
            length = _FIXED[written]
        else:
            raise ValueError(f"no such kind of field: {written}")
        content = message[place : place + length]
        if len(content) != length:
            raise ValueError("cut off")
        place += length
        yield _Field(tag >> 3, content, message[begin:place])


def _number(message: bytes, place: int) -> tuple[int, int]:
    """A whole number, seven bits a byte, lowest first; and the place after it."""
    value = shift = 0
    while True:
        byte = message[place]
        place += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, place
        shift += 7
        if shift > 63:
            raise ValueError("a number of more than 64 bits")


CONFIG, PIECES = "config.json", "sentencepiece.bpe.model"
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_WORDS = "embeddings.word_embeddings.weight"
_POSITIONS = "embeddings.position_embeddings.weight"
_TEXTS = "embeddings.token_type_embeddings.weight"
_NUMBERING = Numbering(pad=1, bos=0, eos=2, unk=3, starts_with_end=False)
# Where positions begin, by the kind of model.
_FIRST_POSITION = {"xlm-roberta": 2, "bert": 0}
_ACTIVATIONS = ("gelu", "relu")
# Numbers of config.json, and the settings that they are here.
_SIZES = {
    "hidden_size": "d_model",
    "num_attention_heads": "heads",
    "intermediate_size": "feed_forward",
    "num_hidden_layers": "",
    "vocab_size": "",
    "max_position_embeddings": "",
    "type_vocab_size": "",
}
_LAYER = re.compile(r"encoder\.layer\.(\d+)\..*")
_SHOWN = 4
_LARGEST_MODEL = 1 << 24
"""Bytes of a SentencePiece model: one of 250,000 pieces has 5 MB, and reading one takes 30 times its size."""


@dataclass(frozen=True)
class PretrainedEncoder:
    """An encoder that was trained elsewhere.

    Attributes:
        folder: Where it was read from.
        settings: What the settings of a stack must be, as they are in force there, by dotted key.
        layers: How many layers it has.
        vocabulary: Its pieces, with the special numbers of this project.
        tensors: Its parameters by their names, without the name of the model in front.
    """

    folder: Path
    settings: Mapping[str, PlainValue]
    layers: int
    vocabulary: Vocabulary
    tensors: Mapping[str, Tensor]

    @property
    def words(self) -> Tensor:
        """The embedding `[V, d]` in the order of `vocabulary`."""
        return self.tensors[_WORDS][_NUMBERING.rows(self.vocabulary.size)]

    @property
    def positions(self) -> Tensor:
        """The table of positions `[n, d]`; what every word of a first text receives is added to it."""
        return self.tensors[_POSITIONS] + self.tensors[_TEXTS][0]

    def values(self, side: Side, layers: Sequence[int], *, inner: bool = False) -> dict[str, Tensor]:
        """Values for a stack and its embedding, by the names of this project; without the words.

        Args:
            side: Which stack; a decoder's cross-attentions and the norms after them get no values.
            layers: For each of its layers the layer here, from 0.
            inner: Whether layers of a decoder have a feed-forward in front of the cross-attention. Each
                is then two layers here: the one below, and the one named, whose self-attention becomes the
                cross-attention.
        """
        embedding = "source_embedding" if side == "encoder" else "target_embedding"
        norms = 2 if side == "encoder" else 4 if inner else 3
        values = {f"{embedding}.positions.table": self.positions}
        for leaf in ("weight", "bias"):
            values[f"{embedding}.norm.{leaf}"] = self.tensors[f"embeddings.LayerNorm.{leaf}"]
            for number, layer in enumerate(layers):
                first = norms * number
                lower = max(layer - 1, 0) if inner else layer
                values |= self._attention(side, "mixers", number, lower, first, leaf)
                values |= self._feed_forward(side, "feed_forwards", number, layer, first + norms - 1, leaf)
                if inner:
                    values |= self._feed_forward(side, "inner_feed_forwards", number, lower, first + 1, leaf)
                    values |= self._attention(side, "crosses", number, layer, first + 2, leaf)
        return values

    def _attention(
        self, side: Side, kind: str, number: int, layer: int, norm: int, leaf: str
    ) -> dict[str, Tensor]:
        """Weights or biases of the self-attention of a layer here and of its norm, for one of a stack."""
        here, there = f"encoder.layer.{layer}.attention", f"{side}.{kind}.{number}"
        query, key, value = (self.tensors[f"{here}.self.{part}.{leaf}"] for part in ("query", "key", "value"))
        maps = {"query_key_value": torch.cat((query, key, value))}
        if kind == "crosses":
            maps = {"query": query, "key_value": torch.cat((key, value))}
        return {
            **{f"{there}.{name}.{leaf}": tensor for name, tensor in maps.items()},
            f"{there}.output.{leaf}": self.tensors[f"{here}.output.dense.{leaf}"],
            f"{side}.connection.norms.{norm}.{leaf}": self.tensors[f"{here}.output.LayerNorm.{leaf}"],
        }

    def _feed_forward(
        self, side: Side, kind: str, number: int, layer: int, norm: int, leaf: str
    ) -> dict[str, Tensor]:
        """The same of the feed-forward of a layer here and of its norm."""
        here, there = f"encoder.layer.{layer}", f"{side}.{kind}.{number}"
        return {
            f"{there}.input.{leaf}": self.tensors[f"{here}.intermediate.dense.{leaf}"],
            f"{there}.output.{leaf}": self.tensors[f"{here}.output.dense.{leaf}"],
            f"{side}.connection.norms.{norm}.{leaf}": self.tensors[f"{here}.output.LayerNorm.{leaf}"],
        }


def require_encoder(folder: Path) -> None:
    """Check that there is a folder that may hold an encoder.

    Raises:
        ModelError: There is none.
    """
    if not folder.is_dir():
        raise ModelError(
            f"{folder}: no such folder",
            f"a pretrained encoder is a folder with {CONFIG}, {_WEIGHTS[0]} and {PIECES}",
        )


def weights_file(folder: Path) -> Path:
    """The file with an encoder's parameters: the first of its usual names that is there."""
    return next((folder / name for name in _WEIGHTS if (folder / name).is_file()), folder / _WEIGHTS[0])


def read_pretrained(folder: Path) -> PretrainedEncoder:
    """Read a folder with an encoder; nothing in it is run.

    Raises:
        ModelError: A file is missing or damaged, or it is a model of another kind.
    """
    require_encoder(folder)
    record = read_json(folder / CONFIG)
    kind, activation = str(record.get("model_type")), str(record.get("hidden_act"))
    if kind not in _FIRST_POSITION or activation not in _ACTIVATIONS:
        raise ModelError(
            f"{folder / CONFIG}: model_type {kind} with hidden_act {activation} is not known",
            f"known: {' and '.join(_FIRST_POSITION)}, with {' or '.join(_ACTIVATIONS)}",
        )
    if record.get("position_embedding_type", "absolute") != "absolute":
        raise ModelError(f"{folder / CONFIG}: its positions are relative, which is not known here")
    numbers = {key: _whole(folder, record, key) for key in _SIZES}
    settings: dict[str, PlainValue] = {
        **{ours: numbers[theirs] for theirs, ours in _SIZES.items() if ours},
        "activation": activation,
        "norm_eps": _eps(folder, record),
        "bias.attention": True,
        "bias.feed_forward": "both",
        "embeddings.norm": True,
        "embeddings.scale": False,
        "mixer.type": "self_attention",
        "mixer.relative": None,
        "connection.type": "post_norm",
        "connection.embedding_norm": False,
        "connection.mixer_norm": True,
        "positions.type": "learned",
        "positions.first": _FIRST_POSITION[kind],
    }
    vocabulary = _vocabulary(folder, numbers["vocab_size"])
    layers = numbers["num_hidden_layers"]
    return PretrainedEncoder(folder, settings, layers, vocabulary, _tensors(folder, numbers))


def _vocabulary(folder: Path, rows: int) -> Vocabulary:
    """The pieces; the embedding has at least as many rows."""
    path = folder / PIECES
    try:
        if path.stat().st_size > _LARGEST_MODEL:
            raise ModelError(f"{path}: has more than {_LARGEST_MODEL >> 20} MiB, and is no usual vocabulary")
        model = read_regular(path)
    except OSError as error:
        raise ModelError(
            f"{path}: cannot read: {error.strerror}", "the vocabulary belongs to the encoder"
        ) from None
    vocabulary = UnigramVocabulary(renumbered(model, str(path)), str(path))
    if vocabulary.size > rows:
        raise ModelError(
            f"{path}: has {vocabulary.size} pieces, but the encoder knows {rows}",
            "the two files are not of one model",
        )
    return vocabulary


def _whole(folder: Path, record: Mapping[str, object], key: str) -> int:
    value = record.get(key)
    if not isinstance(value, int) or isinstance(value, bool) or value < 1:
        raise ModelError(f"{folder / CONFIG}: {key} is not a number of at least 1: {value!r}")
    return value


def _eps(folder: Path, record: Mapping[str, object]) -> float:
    value = record.get("layer_norm_eps", 1e-12)
    if not isinstance(value, float) or not 0 < value < 0.1:
        raise ModelError(f"{folder / CONFIG}: layer_norm_eps is not a small number: {value!r}")
    return value


def _tensors(folder: Path, numbers: Mapping[str, int]) -> dict[str, Tensor]:
    """The parameters of embeddings and layers, checked for names and shapes."""
    path = weights_file(folder)
    stored = read_foreign_checkpoint(path).tensors
    prefix = next((name.removesuffix(_WORDS) for name in stored if name.endswith(_WORDS)), "")
    tensors = {name.removeprefix(prefix): value for name, value in stored.items() if name.startswith(prefix)}
    if (named := numbers["num_hidden_layers"]) > len(tensors):
        raise ModelError(f"{path}: has {len(tensors)} tensors, but {CONFIG} names {named} layers")
    expected = _expected(numbers)
    wrong = [f"{name} is missing" for name in expected if name not in tensors]
    wrong += [
        f"{name} is {list(tensors[name].shape)}, not {list(shape)}"
        for name, shape in expected.items()
        if name in tensors and tensors[name].shape != shape
    ]
    layers = [int(match[1]) for match in map(_LAYER.fullmatch, tensors) if match]
    if layers and max(layers) >= numbers["num_hidden_layers"]:
        wrong.append(f"it has {max(layers) + 1} layers")
    if wrong:
        more = f"; and {len(wrong) - _SHOWN} more" if len(wrong) > _SHOWN else ""
        raise ModelError(
            f"{path}: is not the encoder that {CONFIG} describes: {'; '.join(wrong[:_SHOWN])}{more}"
        )
    return {name: tensors[name] for name in expected}


def _expected(numbers: Mapping[str, int]) -> dict[str, tuple[int, ...]]:
    """Names and shapes of what is used."""
    dim, inner = numbers["hidden_size"], numbers["intermediate_size"]
    shapes: dict[str, tuple[int, ...]] = {
        _WORDS: (numbers["vocab_size"], dim),
        _POSITIONS: (numbers["max_position_embeddings"], dim),
        _TEXTS: (numbers["type_vocab_size"], dim),
    }
    maps = {
        "attention.self.query": (dim, dim),
        "attention.self.key": (dim, dim),
        "attention.self.value": (dim, dim),
        "attention.output.dense": (dim, dim),
        "intermediate.dense": (inner, dim),
        "output.dense": (dim, inner),
    }
    norms = ["embeddings.LayerNorm"]
    for layer in range(numbers["num_hidden_layers"]):
        of = f"encoder.layer.{layer}."
        norms += [f"{of}attention.output.LayerNorm", f"{of}output.LayerNorm"]
        for name, shape in maps.items():
            shapes |= {f"{of}{name}.weight": shape, f"{of}{name}.bias": shape[:1]}
    return shapes | {f"{norm}.{leaf}": (dim,) for norm in norms for leaf in ("weight", "bias")}
