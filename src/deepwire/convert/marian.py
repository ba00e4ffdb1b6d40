"""Marian: a C++ program that trains and translates, whose models also run in browsers (Bergamot, Firefox).

A folder holds `model.npz`, the same as `model.bin` (which is mapped into memory, and which browsers read),
`decoder.yml` for `marian-decoder -c`, and the vocabularies: `.spm` of SentencePiece, which Marian reads text
with, or `.yml` of words.
"""

from __future__ import annotations

import json
import math
import struct
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import yaml
from numpy.typing import NDArray
from torch import Tensor

from deepwire.checkpoint.store import LoadedModel
from deepwire.convert.export_format import (
    ExportedModel,
    ExportFormat,
    HostedModel,
    host_settings,
    require_letters,
)
from deepwire.convert.plain import Place, output_bias, plain_parameters, sides_of
from deepwire.convert.plain_models import IN_MARIAN, not_in_marian
from deepwire.data.subwords.sentencepiece import SentencePieceVocabulary
from deepwire.data.vocabulary import BOS, PAD, Vocabulary
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.model_loading import stored_config
from deepwire.errors import ModelError
from deepwire.io.regular_files import open_regular, read_regular
from deepwire.model.translation_model import TranslationModel

Array = NDArray[Any]
Floats = NDArray[np.float32]
Arrays = dict[str, Floats]
Tensors = dict[str, Array]
NPZ, BIN, OPTIONS, VOCABULARY = "model.npz", "model.bin", "decoder.yml", "vocabulary"
_EPSILON, _HIDDEN = 1e-6, -99999999.0
_STORED_OPTIONS = "special:model.yml"
_VERSION, _ALIGNED = 1, 256
# Marian's numbers of types: what kind, and bytes.
_FLOAT32, _FLOAT16, _INT8 = 0x0404, 0x0402, 0x0101
_OF_ACTIVATIONS = "_QuantMultA"
"""End of the names of multipliers that only integer products need."""
_NUMBERS = {_FLOAT32: "<f4", _FLOAT16: "<f2", _INT8: "i1"}
_QUANTIZED = (0x4101, 0x10101)
"""Int8 for intgemm in no processor's own layout: as Bergamot and as Marian number it."""
# Options that no model here has otherwise.
_USUAL: Mapping[str, object] = {
    "type": "transformer",
    "version": "v1.10.0",
    "enc-cell": "gru",
    "enc-cell-depth": 1,
    "enc-type": "bidirectional",
    "dec-cell-base-depth": 2,
    "dec-cell-high-depth": 1,
    "input-types": [],
    "layer-normalization": False,
    "lemma-dim-emb": 0,
    "right-left": False,
    "skip": False,
    "transformer-aan-activation": "swish",
    "transformer-aan-depth": 2,
    "transformer-aan-nogate": False,
    "transformer-depth-scaling": False,
    "transformer-ffn-depth": 2,
    "transformer-guided-alignment-layer": "last",
    "transformer-no-projection": False,
    "transformer-postprocess": "dan",
    "transformer-postprocess-top": "",
    "transformer-preprocess": "",
    "transformer-tied-layers": [],
    "transformer-train-position-embeddings": False,
    "ulr": False,
    "ulr-dim-emb": 0,
    "ulr-trainable-transformation": False,
}


class Marian(ExportFormat):
    """Marian's own format."""

    name = "marian"
    quantizations = ("float32",)
    computes_the_same = True
    never = (PAD, BOS)

    def require(self, model: LoadedModel) -> None:
        """Refuse several languages, sources with BOS, and settings that Marian does not compute."""
        super().require(model)
        require_letters(model, "Marian")
        if (setting := not_in_marian(model.model.config)) is not None:
            raise ModelError(f"Marian does not compute model.{setting}", IN_MARIAN)
        if model.metadata.get("source_bos") is True:
            raise ModelError(f"{model.folder}: its sources begin with BOS, which Marian does not write")

    def notes(self, model: LoadedModel) -> tuple[str, ...]:
        """Differences of the search, of norms and of the vocabulary."""
        config, notes = stored_config(model), []
        if config.length_penalty and config.length_penalty_form != "average":
            notes.append("the length penalty has the form average there: use decoding.length_penalty_form")
        if config.beam > 1:
            notes.append("Marian's beam gets narrower with every hypothesis that ends; ours is filled up")
        if (eps := model.model.config.norm_eps) != _EPSILON:
            notes.append(f"norms have an epsilon of {_EPSILON:g} there, and of {eps:g} here")
        if not isinstance(model.vocabularies.source, SentencePieceVocabulary):
            notes.append("Marian is given subwords, with spaces between them: its vocabulary is of words")
        return tuple(notes)

    def write(self, model: LoadedModel, folder: Path, quantization: str) -> None:
        """Write parameters in both forms, vocabularies, and options of the search."""
        arrays, options = arrays_of(model.model), yaml_text(options_of(model.model)).encode()
        # Marian's options end with a zero byte.
        items: dict[str, Any] = {**arrays, _STORED_OPTIONS: np.frombuffer(options + b"\0", np.int8)}
        np.savez(folder / NPZ, **items)
        write_bin(items, folder / BIN)
        model.vocabularies.save(folder / VOCABULARY)
        joint = model.vocabularies.source is model.vocabularies.target
        sides = model.vocabularies.sides.items()
        names = [_write_words(words, folder, "vocab" if joint else side) for side, words in sides]
        search = {
            "relative-paths": True,
            "models": [NPZ],
            "vocabs": names,
            "beam-size": stored_config(model).beam,
            "normalize": stored_config(model).length_penalty,
            "word-penalty": 0,
            "mini-batch": 32,
            "maxi-batch": 100,
            "maxi-batch-sort": "src",
            "max-length": 1000,
            "max-length-crop": True,
        }
        (folder / OPTIONS).write_text(yaml_text(search), encoding="utf-8")

    def read(self, folder: Path) -> ExportedModel:
        """The equations of Marian, computed with numpy: Marian itself comes as no Python package."""
        model = MarianModel(*read_npz(folder / NPZ))
        manifest = {
            "decoding": host_settings(DecodingConfig()),
            "source_bos": False,
            "languages": {},
            "target_pieces": model.arrays["decoder_ff_logit_out_b"].size,
        }
        return HostedModel(folder / VOCABULARY, model, manifest)

    def version(self) -> str:
        """Marian's version whose files these are."""
        return "Marian 1.10, computed with numpy"


def options_of(model: TranslationModel) -> dict[str, object]:
    """Marian's options of the model, in the order of their names."""
    ours, (source, target, output) = model.config, _ties(model)
    connection = ours.encoder.connection
    normed = getattr(connection, "embedding_norm", getattr(connection, "residual", "") == "normalised")
    recurrent = ours.decoder.mixer.type == "ssru"
    options: dict[str, object] = {
        **_USUAL,
        "dim-vocabs": [model.source_vocabulary, model.target_vocabulary],
        "dim-emb": ours.d_model,
        "dim-rnn": ours.d_model,
        "enc-depth": ours.encoder.layers,
        "dec-depth": ours.decoder.layers,
        "dec-cell": "ssru" if recurrent else "gru",
        "tied-embeddings": output,
        "tied-embeddings-all": output and source is target,
        "tied-embeddings-src": source is target and not output,
        "transformer-decoder-autoreg": "rnn" if recurrent else "self-attention",
        "transformer-dim-aan": ours.feed_forward,
        "transformer-dim-ffn": ours.size("encoder")[2],
        "transformer-ffn-activation": {"silu": "swish"}.get(ours.activation, ours.activation),
        "transformer-heads": ours.size("encoder")[1],
        "transformer-postprocess-emb": "nd" if normed or ours.embeddings.norm else "d",
    }
    return dict(sorted(options.items()))


def arrays_of(model: TranslationModel) -> Arrays:
    """Copies of the parameters by their names there, float32.

    Matrices lie `[in, out]`, biases and gains `[1, out]`. Marian multiplies embeddings by the square root of
    the width.
    """
    source, target, output = _ties(model)
    tables = {"Wemb": source} if source is target else {"encoder_Wemb": source, "decoder_Wemb": target}
    if not output:
        tables["decoder_ff_logit_out_W"] = model.head.table.weight.t()
    tables["decoder_ff_logit_out_b"] = output_bias(model)
    tables |= named(plain_parameters(model))
    return {
        name: np.ascontiguousarray(np.atleast_2d(value.detach().float().cpu().numpy()).copy())
        for name, value in tables.items()
    }


def _ties(model: TranslationModel) -> tuple[Tensor, Tensor, bool]:
    """Embeddings as Marian scales them, and whether the output projection is that of the target.

    Both are one tensor where they are one.
    """
    sides = [embedding for _, embedding in sides_of(model).values()]
    tables = ((each.table.weight, each.scale) for each in sides)
    source, target = (table if scale != 1 else table / table.size(1) ** 0.5 for table, scale in tables)
    if sides[0].table is sides[1].table and sides[0].scale == sides[1].scale:
        source = target
    return source, target, target is model.head.table.weight


# Sub-layers, and the maps of each with the letters behind W and b.
_SUBLAYERS = {"self": "self", "cross": "context", "feed": "ffn"}
_MAPS = {"q": "q", "k": "k", "v": "v", "o": "o", "in": "1", "out": "2", "update": "", "forget": "f"}
_NORMS = {"self": "self_Wo", "cross": "context_Wo", "feed": "ffn_ffn", "rnn": "rnn_ffn"}


def named(parameters: Mapping[Place, Tensor]) -> Iterator[tuple[str, Tensor]]:
    """Marian's names of the parameters, and these as views `[in, out]`."""
    recurrent = {place.side for place in parameters if place.part == "self.forget"}
    for place, value in parameters.items():
        kind, _, name = place.part.partition(".")
        of_norm = "scale" if place.leaf == "weight" else "bias"
        layer = f"{place.side}_l{place.layer + 1}"
        if place.layer < 0:
            yield f"{place.side}_emb_ln_{of_norm}_pre", value
            continue
        rnn = kind == "self" and place.side in recurrent
        if name == "norm":
            yield f"{layer}_{_NORMS['rnn' if rnn else kind]}_ln_{of_norm}", value
        else:
            letter = "W" if place.leaf == "weight" else "b"
            sublayer = "rnn" if rnn else _SUBLAYERS[kind]
            yield f"{layer}_{sublayer}_{letter}{_MAPS[name]}", value.t() if value.dim() > 1 else value


def yaml_text(options: Mapping[str, object]) -> str:
    """Options, one a line; JSON's values are YAML's too."""
    return "".join(f"{name}: {json.dumps(value, ensure_ascii=False)}\n" for name, value in options.items())


def word_list(pieces: Sequence[str]) -> str:
    """A vocabulary of words with their numbers, as YAML."""
    quoted = (json.dumps(piece, ensure_ascii=False) for piece in pieces)
    return yaml_text({piece: number for number, piece in enumerate(quoted)})


def _write_words(vocabulary: Vocabulary, folder: Path, name: str) -> str:
    """Write one vocabulary as Marian reads it, and say its file."""
    if isinstance(vocabulary, SentencePieceVocabulary):
        (folder / f"{name}.spm").write_bytes(vocabulary.model)
        return f"{name}.spm"
    (folder / f"{name}.yml").write_text(
        word_list(vocabulary.pieces(range(vocabulary.size))), encoding="utf-8"
    )
    return f"{name}.yml"


def write_bin(items: Mapping[str, NDArray[Any]], path: Path) -> None:
    """Write arrays in the form that is mapped into memory, which browsers read.

    Version, number of items, a header of each, all names, all shapes, padding, all contents.
    """
    contents = [array.tobytes() + bytes(-array.nbytes % _ALIGNED) for array in items.values()]
    headers, names, shapes = b"", b"", b""
    for (name, array), content in zip(items.items(), contents, strict=True):
        written = name.encode() + b"\0"
        kind, size = (_FLOAT32, len(content)) if array.dtype == np.float32 else (_INT8, array.nbytes)
        headers += struct.pack("<4Q", len(written), kind, array.ndim, size)
        names += written
        shapes += struct.pack(f"<{array.ndim}i", *array.shape)
    begin = struct.pack("<2Q", _VERSION, len(items)) + headers + names + shapes
    gap = -(len(begin) + 8) % _ALIGNED
    with path.open("wb") as file:
        file.write(begin + struct.pack("<Q", gap) + bytes(gap))
        for content in contents:
            file.write(content)


def read_npz(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Parameters and options of a model; nothing of the file is executed."""
    with open_regular(path) as file, np.load(file, allow_pickle=False) as stored:
        arrays = {name: stored[name] for name in stored.files if not name.endswith(_OF_ACTIVATIONS)}
    return arrays, _options(arrays.pop(_STORED_OPTIONS))


def read_bin(path: Path) -> tuple[Arrays, dict[str, Any]]:
    """Parameters and options of a model in the form that `write_bin` writes; int8 weights become float32.

    Raises:
        ValueError, KeyError: It is no such file, is damaged, or has the layout of one kind of processor.
    """
    content, place = read_regular(path), 0

    def take(kind: str, count: int) -> Array:
        nonlocal place
        begin, place = place, place + count * np.dtype(kind).itemsize
        return np.frombuffer(content, kind, count, begin)

    version, count = take("<u8", 2).tolist()
    if version != _VERSION:
        raise ValueError("it does not begin with the version of the format")
    headers = take("<u8", 4 * count).reshape(count, 4).tolist()
    names = [take("u1", length).tobytes().rstrip(b"\0").decode() for length, *_ in headers]
    shapes = [take("<i4", dimensions).tolist() for _, _, dimensions, _ in headers]
    take("u1", int(take("<u8", 1)[0]))
    arrays: Arrays = {}
    for name, shape, (_, kind, _, length) in zip(names, shapes, headers, strict=True):
        data, size = take("u1", length), math.prod(shape)
        if name.endswith(_OF_ACTIVATIONS):
            continue
        if kind in _QUANTIZED:
            # The multiplier stands behind the numbers. All but embeddings are stored the other way round.
            values = data[:size].view(np.int8) * (1 / data[size : size + 4].view("<f4"))
            arrays[name] = values.reshape(shape) if "Wemb" in name else values.reshape(shape[::-1]).T
        elif kind in _NUMBERS:
            dtype = np.dtype(_NUMBERS[kind])
            arrays[name] = data[: size * dtype.itemsize].view(dtype).reshape(shape)
        else:
            raise ValueError(f"{name} has the type {kind:#x}, which is the layout of one kind of processor")
    return arrays, _options(arrays.pop(_STORED_OPTIONS))


def _options(stored: Array) -> dict[str, Any]:
    options: dict[str, Any] = yaml.safe_load(stored.tobytes().rstrip(b"\0").decode())
    return options


class MarianModel:
    """Marian's Transformer by its own equations with numpy, for the search of exports.

    States are `[N, W, ...]`, the memory is `[N, ...]`.

    Args:
        arrays, options: As in an `.npz` file.
    """

    def __init__(self, arrays: Arrays, options: dict[str, Any]) -> None:
        self.arrays, self.options = arrays, options
        self.heads, self.dim = options["transformer-heads"], options["dim-emb"]
        self.recurrent = options["transformer-decoder-autoreg"] == "rnn"
        self.places = {
            side: [f"{side}_l{layer + 1}" for layer in range(options[f"{side[:3]}-depth"])]
            for side in ("encoder", "decoder")
        }
        shared = options["tied-embeddings-all"] or options["tied-embeddings-src"]
        self.tables = {side: arrays["Wemb" if shared else f"{side}_Wemb"] for side in self.places}
        tied = options["tied-embeddings-all"] or options["tied-embeddings"]
        self.projection = self.tables["decoder"].T if tied else arrays["decoder_ff_logit_out_W"]

    def start(self, source: Array, languages: Array | None) -> tuple[Tensors, Tensors]:
        """Memory and first state of sentences `[N, S]`, padded with PAD."""
        mask = np.where(source == PAD, _HIDDEN, 0.0)[:, None, None, None].astype(np.float32)
        x = self._embed("encoder", self.tables["encoder"][source], np.arange(source.shape[1]))[:, None]
        for place in self.places["encoder"]:
            x = self._attend(f"{place}_self", x, *self._keys(f"{place}_self", x), mask)
            x = self._feed_forward(f"{place}_ffn", x)
        memory: Tensors = {"mask": mask}
        state: Tensors = {}
        for place in self.places["decoder"]:
            memory[f"{place}_k"], memory[f"{place}_v"] = self._keys(f"{place}_context", x)
            empty = np.zeros((len(source), 1, *([] if self.recurrent else [0]), self.dim), np.float32)
            state |= {place: empty} if self.recurrent else {f"{place}_k": empty, f"{place}_v": empty}
        return memory, state

    def step(self, tokens: Array, position: int, memory: Tensors, state: Tensors) -> tuple[Floats, Tensors]:
        """Log-probabilities `[N, W, V]` of what follows the tokens `[N, W]`, and the next state."""
        words = self.tables["decoder"][tokens] if position else np.zeros((*tokens.shape, self.dim))
        x = self._embed("decoder", words, np.full(1, position))[:, :, None]
        new: Tensors = {}
        for place in self.places["decoder"]:
            if self.recurrent:
                x, new[place] = self._ssru(f"{place}_rnn", x, state[place])
            else:
                for name, each in zip("kv", self._keys(f"{place}_self", x), strict=True):
                    new[f"{place}_{name}"] = np.concatenate((state[f"{place}_{name}"], each), 2)
                x = self._attend(f"{place}_self", x, new[f"{place}_k"], new[f"{place}_v"], None)
            context = memory[f"{place}_k"], memory[f"{place}_v"]
            x = self._attend(f"{place}_context", x, *context, memory["mask"])
            x = self._feed_forward(f"{place}_ffn", x)
        logits = x[:, :, 0] @ self.projection + self.arrays["decoder_ff_logit_out_b"][0]
        logits -= logits.max(-1, keepdims=True)
        return logits - np.log(np.exp(logits).sum(-1, keepdims=True)), new

    def _embed(self, side: str, words: Array, positions: Array) -> Floats:
        """Scaled words and sinusoids, normalised where Marian's options say so."""
        half = self.dim // 2
        angles = positions[:, None] * np.exp(-np.log(10000.0) * np.arange(half) / (half - 1))
        signal = np.concatenate((np.sin(angles), np.cos(angles)), 1)
        x = (words * self.dim**0.5 + signal).astype(np.float32)
        return (
            self._norm(f"{side}_emb", x, "_pre") if "n" in self.options["transformer-postprocess-emb"] else x
        )

    def _norm(self, place: str, x: Floats, suffix: str = "") -> Floats:
        centred = x - x.mean(-1, keepdims=True)
        gain, bias = (self.arrays[f"{place}_ln_{name}{suffix}"][0] for name in ("scale", "bias"))
        normed: Floats = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + _EPSILON) * gain + bias
        return normed

    def _map(self, place: str, name: str, x: Floats) -> Floats:
        mapped: Floats = x @ self.arrays[f"{place}_W{name}"] + self.arrays[f"{place}_b{name}"][0]
        return mapped

    def _keys(self, place: str, x: Floats) -> tuple[Floats, Floats]:
        return self._map(place, "k", x), self._map(place, "v", x)

    def _attend(self, place: str, x: Floats, keys: Array, values: Array, mask: Array | None) -> Floats:
        """Attend from `[N, W, T, d]` to keys and values `[N, W or 1, S, d]`; mask `[N, 1, 1, 1, S]`."""
        query, key, value = (
            each.reshape(*each.shape[:-1], self.heads, -1).swapaxes(-2, -3)
            for each in (self._map(place, "q", x), keys, values)
        )
        scores = query @ key.swapaxes(-1, -2) / np.sqrt(np.float32(key.shape[-1]))
        scores = scores if mask is None else scores + mask
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        mixed = (weights / weights.sum(-1, keepdims=True)) @ value
        joined = mixed.swapaxes(-2, -3).reshape(x.shape)
        return self._norm(f"{place}_Wo", x + self._map(place, "o", joined))

    def _feed_forward(self, place: str, x: Floats) -> Floats:
        inner = self._map(place, "1", x)
        swish = self.options["transformer-ffn-activation"] == "swish"
        inner = inner / (1 + np.exp(-inner)) if swish else np.maximum(inner, 0)
        return self._norm(f"{place}_ffn", x + self._map(place, "2", inner))

    def _ssru(self, place: str, x: Floats, cell: Array) -> tuple[Floats, Array]:
        forget = 1 / (1 + np.exp(-self._map(place, "f", x)[:, :, 0]))
        new = forget * cell + (1 - forget) * (x[:, :, 0] @ self.arrays[f"{place}_W"])
        return self._norm(f"{place}_ffn", x + np.maximum(new, 0)[:, :, None]), new
