"""A new run that begins with a pretrained encoder of XLM-R's layout, in its own encoder and in its decoder.

As the OPUS-100 rows of Yang et al. 2022 (GTrans), after Ma et al. 2020 (XLM-T: Scaling up Multilingual
Machine Translation with Pretrained Cross-lingual Transformer Encoders).

A folder as Hugging Face keeps it: `config.json`, `model.safetensors` and `sentencepiece.bpe.model`. XLM-R is
a Transformer in post-norm form with learned positions and a norm of the embeddings (Conneau et al. 2020);
multilingual MiniLM with XLM-R's vocabulary is the same but for names and the first position.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import Tensor

from deepwire.checkpoint.model_files import digest
from deepwire.config.section import flatten
from deepwire.config.yaml_tree import PlainValue
from deepwire.convert.importers.foreign_checkpoint import read_foreign_checkpoint
from deepwire.convert.importers.importer import number_of_layers
from deepwire.convert.plain import swapped
from deepwire.data.subwords.base import Vocabulary
from deepwire.data.subwords.sentencepiece import PieceTableVocabulary, read_processor
from deepwire.data.subwords.words import Dictionary
from deepwire.data.vocabulary import Vocabularies
from deepwire.errors import ModelError, UsageError
from deepwire.io.regular_files import cannot_read, read_json, read_regular
from deepwire.model.config import ModelConfig
from deepwire.model.stack_spec import Side
from deepwire.model.translation_model import TranslationModel
from deepwire.training.config import DecoderLayers, PretrainedSection
from deepwire.training.spec import WarmStartReport
from deepwire.training.start_from import RowMap, map_rows

CONFIG, PIECES = "config.json", "sentencepiece.bpe.model"
_WEIGHTS = ("model.safetensors", "pytorch_model.bin")
_WORDS = "embeddings.word_embeddings.weight"
_POSITIONS = "embeddings.position_embeddings.weight"
_TEXTS = "embeddings.token_type_embeddings.weight"
# Where positions begin, by the kind of model.
_FIRST_POSITION = {"xlm-roberta": 2, "bert": 0}
_ACTIVATIONS = ("gelu", "relu")
_QKV = ("query", "key", "value")
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
        return swapped(self.tensors[_WORDS][: self.vocabulary.size])

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
            lower, last = max(layer - 1, 0) if inner else layer, norms - 1
            # The parts of a layer, the layer here of each, and its norm.
            parts = {"mixers": (lower, 0), "feed_forwards": (layer, last)}
            if inner:
                parts |= {"inner_feed_forwards": (lower, 1), "crosses": (layer, 2)}
            for kind, (here, norm) in parts.items():
                for name, value in self._part(kind, here).items():
                    of_norm = f"connection.norms.{norms * number + norm}."
                    place = name.replace("norm.", of_norm) if "norm." in name else f"{kind}.{number}.{name}"
                    values[f"{side}.{place}"] = value
        return values

    def _part(self, kind: str, layer: int) -> dict[str, Tensor]:
        above, values = f"encoder.layer.{layer}", dict[str, Tensor]()
        attends = kind in ("mixers", "crosses")
        output = f"{above}.attention.output" if attends else f"{above}.output"
        for leaf in ("weight", "bias"):
            maps = [self.tensors[f"{above}.attention.self.{name}.{leaf}"] for name in _QKV]
            if kind == "mixers":
                values[f"query_key_value.{leaf}"] = torch.cat(maps)
            elif kind == "crosses":
                values |= {f"query.{leaf}": maps[0], f"key_value.{leaf}": torch.cat(maps[1:])}
            else:
                values[f"input.{leaf}"] = self.tensors[f"{above}.intermediate.dense.{leaf}"]
            values[f"output.{leaf}"] = self.tensors[f"{output}.dense.{leaf}"]
            values[f"norm.{leaf}"] = self.tensors[f"{output}.LayerNorm.{leaf}"]
        return values


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


def read_pretrained(folder: Path) -> PretrainedEncoder:
    """Read a folder with an encoder; nothing in it is run.

    Raises:
        ModelError: A file is missing or damaged, or it is a model of another kind.
    """
    require_encoder(folder)
    record, where = read_json(folder / CONFIG), folder / CONFIG
    kind, activation = str(record.get("model_type")), str(record.get("hidden_act"))
    if kind not in _FIRST_POSITION or activation not in _ACTIVATIONS:
        raise ModelError(
            f"{where}: model_type {kind} with hidden_act {activation} is not known",
            f"known: {' and '.join(_FIRST_POSITION)}, with {' or '.join(_ACTIVATIONS)}",
        )
    if record.get("position_embedding_type", "absolute") != "absolute":
        raise ModelError(f"{where}: its positions are relative, which is not known here")
    heads, eps = record.get("num_attention_heads"), record.get("layer_norm_eps", 1e-12)
    if not isinstance(heads, int) or not isinstance(eps, float):
        raise ModelError(f"{where}: num_attention_heads and layer_norm_eps are no numbers")
    tensors, layers = _tensors(folder)
    settings: dict[str, PlainValue] = {
        "d_model": tensors[_WORDS].size(1),
        "heads": heads,
        "feed_forward": tensors["encoder.layer.0.intermediate.dense.weight"].size(0),
        "activation": activation,
        "norm_eps": eps,
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
    vocabulary = _vocabulary(folder / PIECES, len(tensors[_WORDS]))
    return PretrainedEncoder(folder, settings, layers, vocabulary, tensors)


def _vocabulary(path: Path, rows: int) -> Vocabulary:
    """The pieces; the embedding has at least as many rows."""
    try:
        if path.stat().st_size > _LARGEST_MODEL:
            raise ModelError(f"{path}: has more than {_LARGEST_MODEL >> 20} MiB, and is no usual vocabulary")
        model = read_regular(path)
    except OSError as error:
        raise cannot_read(path, error) from None
    processor = read_processor(model, str(path))
    ordinary = [
        processor.id_to_piece(number)
        for number in range(processor.vocab_size())
        if not processor.is_control(number) and not processor.is_unknown(number)
    ]
    vocabulary = PieceTableVocabulary(model, Dictionary(ordinary), str(path))
    if vocabulary.size > rows:
        raise ModelError(f"{path}: has {vocabulary.size} pieces, but the encoder knows {rows}")
    return vocabulary


def _weights_file(folder: Path) -> Path:
    return next((folder / name for name in _WEIGHTS if (folder / name).is_file()), folder / _WEIGHTS[0])


def _tensors(folder: Path) -> tuple[dict[str, Tensor], int]:
    """The parameters of embeddings and layers, and how many layers there are."""
    path = _weights_file(folder)
    foreign = read_foreign_checkpoint(path)
    stored = foreign.tensors
    prefix = next((name.removesuffix(_WORDS) for name in stored if name.endswith(_WORDS)), "")
    layers = number_of_layers(foreign, rf"{re.escape(prefix)}encoder\.layer\.(\d+)\.")
    maps = [f"attention.self.{name}" for name in _QKV]
    maps += ["attention.output.dense", "intermediate.dense", "output.dense"]
    maps += ["attention.output.LayerNorm", "output.LayerNorm"]
    parts = [f"encoder.layer.{layer}.{name}" for layer in range(max(1, layers)) for name in maps]
    expected = [_WORDS, _POSITIONS, _TEXTS]
    expected += [f"{part}.{leaf}" for part in ("embeddings.LayerNorm", *parts) for leaf in ("weight", "bias")]
    if missing := [name for name in expected if f"{prefix}{name}" not in stored]:
        raise ModelError(f"{path}: is no encoder of this kind: {missing[0]} is missing")
    return {name: stored[f"{prefix}{name}"] for name in expected}, layers


@dataclass(frozen=True)
class PretrainedReport(WarmStartReport):
    """The parameters that a run took over from a pretrained encoder.

    Attributes:
        folder: Where it was read from.
        digest: Stands for its parameters.
        loaded: Names of the parameters that have its values.
        untrained: Names of the others.
        layers: For each stack that was filled the layers that it took, from 1.
        vocabulary: For each side the pieces whose vectors were taken, and those that are means of others'.
    """

    folder: str
    digest: str
    loaded: list[str]
    untrained: list[str]
    layers: dict[str, list[int]]
    vocabulary: dict[str, tuple[int, int]]

    def lines(self) -> list[str]:
        """The report for people."""
        taken = ", ".join(
            f"{side} layers from {', '.join(map(str, numbers))}" for side, numbers in self.layers.items()
        )
        lines = [f"started from {self.folder}: {len(self.loaded)} tensors taken over ({taken})"]
        if self.untrained:
            shown = ", ".join(self.untrained[:_SHOWN]) + (", ..." if len(self.untrained) > _SHOWN else "")
            lines.append(f"{len(self.untrained)} begin untrained: {shown}")
        return lines + [
            f"{side} vocabulary: {same} pieces have vectors there, {new} begin as means of others"
            for side, (same, new) in self.vocabulary.items()
        ]


@torch.no_grad()
def start_pretrained(
    config: PretrainedSection, model: TranslationModel, vocabularies: Vocabularies
) -> PretrainedReport:
    """Fill an untrained model from a pretrained encoder; what finds no value stays as it is.

    Norms of which each target language has its own take the value for all of them.

    Raises:
        ModelError: The encoder is missing, damaged or of an unknown kind.
        UsageError: Settings of the run differ from those of the encoder, each named with what it must be.
    """
    encoder = read_pretrained(config.encoder)
    sides: list[Side] = ["encoder"] if config.decoder == "none" else ["encoder", "decoder"]
    _require_settings(encoder, model, sides)
    layers = {side: _layers(encoder, model, side, config.decoder) for side in sides}
    values, maps = _tables(encoder, model, vocabularies)
    for side, numbers in layers.items():
        values |= encoder.values(side, numbers, inner=model.config.stack(side).inner_feed_forward)
    parameters = dict(model.named_parameters(remove_duplicate=False))
    filled = {id(parameters[name]) for name in values}
    for name, value in values.items():
        if parameters[name].dim() > value.dim():  # of each language
            parameters[name].copy_(value.expand_as(parameters[name]))
        else:
            rows = min(parameters[name].size(0), value.size(0))
            parameters[name][:rows].copy_(value[:rows])
    names = [name for name, _ in model.named_parameters()]
    return PretrainedReport(
        str(encoder.folder),
        digest(_weights_file(encoder.folder)),
        [name for name in names if id(parameters[name]) in filled],
        [name for name in names if id(parameters[name]) not in filled],
        {side: [number + 1 for number in numbers] for side, numbers in layers.items()},
        {side: (rows.taken, rows.new) for side, rows in maps.items()},
    )


def _layers(
    encoder: PretrainedEncoder, model: TranslationModel, side: Side, decoder: DecoderLayers
) -> list[int]:
    """For each layer of a stack the pretrained one, from 0."""
    wanted = model.config.stack(side).layers
    if wanted > encoder.layers:
        raise UsageError(
            f"training.pretrained: {encoder.folder} has {encoder.layers} layers, fewer than the {wanted} of "
            f"model.{side}",
            f"set model.{side}.layers to {encoder.layers} at most",
        )
    if side == "encoder" or decoder == "bottom":
        # With a feed-forward in front of the cross-attention, a layer begins as two pretrained ones.
        two = model.config.stack(side).inner_feed_forward
        return [min(2 * number + 1, encoder.layers - 1) if two else number for number in range(wanted)]
    return [(number + 1) * encoder.layers // wanted - 1 for number in range(wanted)]


def _tables(
    encoder: PretrainedEncoder, model: TranslationModel, vocabularies: Vocabularies
) -> tuple[dict[str, Tensor], dict[str, RowMap]]:
    """The tables of words that are as wide as the encoder's, piece by piece."""
    words = encoder.words
    source = map_rows(encoder.vocabulary, vocabularies.source)
    same = vocabularies.source is vocabularies.target
    target = source if same else map_rows(encoder.vocabulary, vocabularies.target)
    places = {"source_embedding": source, "target_embedding": target, "head": target}
    parameters = dict(model.named_parameters(remove_duplicate=False))
    values = {}
    for place, rows in places.items():
        name = f"{place}.table.weight"
        if parameters[name].size(1) == words.size(1):
            values[name] = rows.rows(words)
            values[name][model.pad_id] = 0
    return values, {"joint": source} if same else {"source": source, "target": target}


def _require_settings(encoder: PretrainedEncoder, model: TranslationModel, sides: list[Side]) -> None:
    """Refuse a model that computes otherwise than the encoder where it takes its parameters."""
    wrong = []
    for side in sides:
        stored = _in_force(model.config, side)
        wrong += [
            f"{key}={_written(value)} of the {side}, not {_written(stored.get(key))}"
            for key, value in encoder.settings.items()
            if stored.get(key) != value
        ]
    rows = encoder.positions.size(0) - int(str(encoder.settings["positions.first"]))
    if model.config.max_length > rows:
        wrong.append(f"max_length at most {rows}, not {model.config.max_length}")
    if wrong:
        raise UsageError(
            f"training.pretrained: {encoder.folder} needs other settings of the model: {'; '.join(wrong)}",
            "set them so in the run file",
        )


def _in_force(config: ModelConfig, side: Side) -> Mapping[str, object]:
    """The settings of one stack by dotted key, with those of the whole model where it has none of its own."""
    stack = config.stack(side)
    scale = config.embeddings.scale if stack.scale_embedding is None else stack.scale_embedding
    dim, heads, inner = config.size(side)
    return flatten(
        {
            **config.model_dump(mode="json"),
            **stack.model_dump(mode="json"),
            "positions": (stack.positions or config.positions).model_dump(mode="json"),
            "embeddings": {"norm": config.embeddings.norm, "scale": scale},
            "d_model": dim,
            "heads": heads,
            # A stack's own setting of this name only says whether it has such sub-layers.
            "feed_forward": inner if stack.feed_forward else None,
        }
    )


def _written(value: object) -> str:
    return json.dumps(value).strip('"')
