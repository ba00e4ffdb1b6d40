"""Models of Marian: checkpoints such as those of OPUS-MT, and Bergamot's quantised students, as in Firefox.

A folder has the parameters (`.npz` or `.bin`), the vocabularies, and perhaps a lexical shortlist; the file
for `marian-decoder -c` names them.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import accumulate, chain, pairwise
from pathlib import Path
from typing import Any, Self

import numpy as np
import torch
import yaml
from torch import Tensor

from deepwire.config.yaml_tree import PlainValue
from deepwire.convert.importers.foreign_checkpoint import ForeignCheckpoint, check_archive
from deepwire.convert.importers.importer import (
    Architecture,
    Destination,
    Destinations,
    Importer,
    number_of_layers,
)
from deepwire.convert.marian import named, read_bin, read_npz
from deepwire.convert.plain import plain_parameters
from deepwire.data.subwords.base import BOS, EOS, PAD, SPECIAL_PIECES, Vocabulary
from deepwire.data.subwords.sentencepiece import (
    BpeVocabulary,
    PieceTableVocabulary,
    UnigramVocabulary,
    read_processor,
)
from deepwire.data.subwords.subword_nmt import SEPARATOR
from deepwire.data.subwords.words import FIRST, Dictionary, WordVocabulary
from deepwire.data.text.files import read_lines
from deepwire.data.vocabulary import Vocabularies
from deepwire.decoding.shortlist import ShortlistTable
from deepwire.errors import ModelError
from deepwire.io.regular_files import cannot_read, open_regular, read_regular
from deepwire.model.stack_spec import SIDES
from deepwire.model.translation_model import TranslationModel

_SHARED, _BIAS = "Wemb", "decoder_ff_logit_out_b"
_STORED_AS_HERE = ("Wemb", "_Wt")
"""Ends of the names of matrices that are stored `[out, in]`."""
_IMPOSSIBLE = -1e4
"""Bias of PAD and BOS, which Marian never writes; finite in half precision."""
_ACTIVATIONS = {"relu": "relu", "swish": "silu"}
# Options that change what is computed, and the values that are known here, the usual one first.
_KNOWN: Mapping[str, tuple[object, ...]] = {
    "type": ("transformer",),
    "transformer-preprocess": ("", "d"),
    "transformer-postprocess": ("dan", "an"),
    "transformer-postprocess-emb": ("d", "", "nd", "n"),
    "transformer-postprocess-top": ("", "d"),
    "transformer-ffn-activation": ("swish", "relu"),
    "transformer-ffn-depth": (2,),
    "transformer-decoder-ffn-depth": (0, 2),
    "transformer-decoder-autoreg": ("self-attention", "rnn"),
    **dict.fromkeys(("lemma-dim-emb", "factors-dim-emb"), (0,)),
    **dict.fromkeys(
        ("transformer-no-projection", "transformer-rnn-projection", "transformer-pool"), (False,)
    ),
    "transformer-train-position-embeddings": (False,),
    "transformer-disable-position-embeddings": (False,),
    **dict.fromkeys(("ulr", "right-left"), (False,)),
}
_NAMES_OF_SIDES = (("src", "trg"), ("source", "target"))
_SHORTLIST_MAGIC, _SHORTLIST_HEADER = 0xF11A48D5013417F5, 6
_UNIGRAM, _BPE, _CONTROL = 1, 2, 3
"""SentencePiece's numbers of two types of models, and of a type of pieces."""


class MarianImporter(Importer):
    """Marian. Its ids become ours when the files are read."""

    name = "marian"
    source_bos = False
    tables = (
        (_SHARED, "encoder_Wemb"),
        (_SHARED, "decoder_Wemb"),
        ("decoder_ff_logit_out_W", "decoder_ff_logit_out_Wt"),
    )

    def read(self, path: Path) -> ForeignCheckpoint:
        """A folder, the file for `marian-decoder -c`, or a file of parameters with vocabularies beside it."""
        folder, search = _configuration(path)
        try:
            (model,), (words, *others) = search["models"], search["vocabs"]
            (other_words,) = others or [words]
            lists = list(search.get("shortlist") or ())
        except (KeyError, TypeError, ValueError):
            raise ModelError(
                f"{path}: does not tell which files are the model and the vocabularies of source and target",
                "name them in decoder.yml: models: [FILE], vocabs: [FILE, FILE]",
            ) from None
        file = folder / str(model)
        tensors, options = _parameters(file)
        _require_known(file, options)
        layers = options.get("transformer-tied-layers")
        for layer, tied in enumerate(layers if isinstance(layers, list) else (), 1):
            shared = f"decoder_l{tied}_"
            copies = {name: value for name, value in tensors.items() if name.startswith(shared)}
            tensors |= {name.replace(shared, f"decoder_l{layer}_"): copies[name] for name in copies}
        source = _Pieces.read(folder / str(words), "source.spm")
        target = _Pieces.read(folder / str(other_words), "target.spm")
        if _SHARED in tensors and source.names != target.names:
            raise ModelError(f"{file}: has one embedding, but {source.path} and {target.path} differ")
        for name in dict.fromkeys((*chain(*self.tables), _BIAS)):
            if name in tensors:
                side = target if name.startswith("decoder") else source
                tensors[name] = side.rows(tensors[name], f"{file}: {name}")
        bias = tensors.get(_BIAS, torch.zeros(len(target.order), 1))
        tensors[_BIAS] = bias.flatten().index_fill(0, torch.tensor([PAD, BOS]), _IMPOSSIBLE)
        shortlist = _shortlist(folder / str(lists[0]), lists[1:], source, target) if lists else None
        return _Checkpoint(file, tensors, options, search, source, target, shortlist)

    def own_vocabularies(self, foreign: ForeignCheckpoint) -> Vocabularies | None:
        """The vocabularies that the files name."""
        assert isinstance(foreign, _Checkpoint)
        source, target = foreign.source, foreign.target
        if source.kind != target.kind:
            raise ModelError(f"{source.path}, {target.path}: are vocabularies of two kinds")
        joint, made = source.names == target.names, source.vocabulary()
        other = made if joint and source.model == target.model else target.vocabulary()
        return Vocabularies(made, other, joint, source.kind)

    def architecture(self, foreign: ForeignCheckpoint) -> Architecture:
        """From options, names and shapes."""
        assert isinstance(foreign, _Checkpoint)
        options: Mapping[str, Any] = foreign.settings
        tensors = foreign.tensors
        recurrent = options.get("transformer-decoder-autoreg") == "rnn"
        try:
            table = tensors[_SHARED if _SHARED in tensors else "decoder_Wemb"]
            inner = {side: tensors[f"{side}_l1_ffn_W1"].size(0) for side in SIDES}
        except LookupError as missing:
            raise ModelError(f"{foreign.path}: has no {missing}, so it is no Transformer of Marian") from None
        separate = any(name in tensors for name in self.tables[2])
        ties = ("inputs" if separate else "all") if _SHARED in tensors else ("none" if separate else "output")
        known: dict[str, PlainValue] = {
            "model.d_model": table.size(1),
            "model.heads": options.get("transformer-heads", 8),
            "model.feed_forward": inner["decoder"],
            "model.activation": _ACTIVATIONS[options.get("transformer-ffn-activation", "swish")],
            "model.decoder.mixer": "ssru" if recurrent else "self_attention",
            "model.positions": {"type": "sinusoidal", "layout": "halves"},
            "model.embeddings.tie": ties,
            "model.embeddings.start": "zero",
            "model.embeddings.norm": "encoder_emb_ln_scale_pre" in tensors,
            "model.norm_eps": 1e-6,
            "model.bias.attention": True,
            "model.bias.feed_forward": "both",
            "model.bias.output": True,
            "data.source_bos": False,
        }
        if inner["encoder"] != inner["decoder"]:
            known["model.encoder.size.feed_forward"] = inner["encoder"]
        for side in SIDES:
            layers = number_of_layers(foreign, rf"{side}_l(\d+)_") - 1
            if (told := options.get(f"{side[:3]}-depth", layers)) != layers:
                raise ModelError(
                    f"{foreign.path}: has {layers} layers in the {side}, not {told} as its options"
                )
            known[f"model.{side}.layers"] = layers
            known[f"model.{side}.connection"] = "post_norm"
        return Architecture(
            known, {"data.source": "source", "data.target": "target", **_decoding(foreign.search)}
        )

    def destinations_of(
        self, name: str, model: TranslationModel, foreign: ForeignCheckpoint
    ) -> Destinations | None:
        """The parameter, or its part, that the export calls so."""
        if name == _BIAS:
            return (Destination("head.bias"),)
        views = dict(named(plain_parameters(model)))
        if (view := views.get(name)) is None:
            return None
        size, place = view.numel(), view.untyped_storage().data_ptr()
        return tuple(
            Destination(parameter, view.storage_offset() // size, value.numel() // size)
            for parameter, value in model.named_parameters()
            if value.untyped_storage().data_ptr() == place
        )

    def shortlist(self, foreign: ForeignCheckpoint) -> ShortlistTable | None:
        """The lexical shortlist of the model."""
        assert isinstance(foreign, _Checkpoint)
        return foreign.shortlist


@dataclass(frozen=True)
class _Checkpoint(ForeignCheckpoint):
    """A checkpoint with rows in our order, and what lies beside it."""

    search: Mapping[str, Any]
    source: _Pieces
    target: _Pieces
    shortlist: ShortlistTable | None


@dataclass(frozen=True)
class _Pieces:
    """The pieces of one side in Marian's order, and the SentencePiece model that cuts text into them."""

    path: Path
    kind: str
    names: Sequence[str]
    model: bytes = b""

    @classmethod
    def read(cls, path: Path, segmenter: str) -> Self:
        """Read a SentencePiece model; or a list of pieces, and the SentencePiece model beside it."""
        try:
            content = read_regular(path)
            beside = path.parent / segmenter
            model = content if path.suffix == ".spm" else read_regular(beside) if beside.exists() else b""
        except OSError as error:
            raise cannot_read(Path(error.filename or path), error) from None
        if path.suffix != ".spm":
            return cls(path, "piece_table" if model else "words", _listed(path), model)
        processor = read_processor(content, str(path))
        names = [processor.id_to_piece(number) for number in range(processor.vocab_size())]
        if (kind := {_UNIGRAM: "unigram", _BPE: "bpe"}.get(_model_type(content))) is None:
            raise ModelError(
                f"{path}: is a SentencePiece model of words or characters, not of bpe or unigram"
            )
        return cls(path, kind, names, content)

    @cached_property
    def order(self) -> list[int]:
        """Marian's number of each of our entries; -1 where it has none for PAD or BOS."""
        numbers = {name: number for number, name in enumerate(self.names)}
        symbols = [numbers.get(piece, -1) for piece in SPECIAL_PIECES]
        if -1 in symbols[EOS:]:
            raise ModelError(f"{self.path}: has no </s> or no <unk>, so it is no vocabulary of Marian")
        return [*symbols, *(number for number in range(len(self.names)) if number not in symbols)]

    def rows(self, table: Tensor, where: str) -> Tensor:
        """The rows of a table in the order of our entries; zeros for those that Marian does not have."""
        if table.dim() != 2 or table.size(0) != len(self.names):
            raise ModelError(
                f"{where} is {list(table.shape)}, but {self.path} has {len(self.names)} entries",
                "is it the vocabulary of this model, and complete?",
            )
        return torch.cat((table, torch.zeros_like(table[:1])))[self.order]

    def vocabulary(self) -> Vocabulary:
        if self.kind in ("bpe", "unigram"):
            made = BpeVocabulary if self.kind == "bpe" else UnigramVocabulary
            return made(_reordered(self.model, self.order))
        pieces = Dictionary([self.names[number] for number in self.order[FIRST:]])
        if self.kind == "piece_table":
            return PieceTableVocabulary(self.model, pieces, str(self.path))
        return WordVocabulary(pieces, SEPARATOR if any(SEPARATOR in name for name in self.names) else "none")


def _require_known(path: Path, options: Mapping[str, Any]) -> None:
    known = dict(_KNOWN)
    if options.get("transformer-decoder-autoreg") == "rnn":
        known["dec-cell"] = ("ssru",)
    for option, values in known.items():
        if (value := options.get(option, values[0])) not in values:
            raise ModelError(f"{path}: made with {option}: {value}, which is not known here")


def _configuration(path: Path) -> tuple[Path, Mapping[str, Any]]:
    """The folder, and the options for `marian-decoder` there, or those that files of the usual names have."""
    if not path.exists():
        raise ModelError(f"{path}: no such file or folder")
    folder = path if path.is_dir() else path.parent

    def found(*patterns: str) -> list[str]:
        return next(filter(None, (sorted(each.name for each in folder.glob(one)) for one in patterns)), [])

    files = found("decoder.yml", "config*.yml") if path.is_dir() else [path.name]
    if files and Path(files[0]).suffix in (".yml", ".yaml"):
        return folder, _yaml(folder / files[0], getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    words = found("*vocab*.yml", "*.spm")
    if len(words) > 1 and not any(a in words[0] and b in words[1] for a, b in _NAMES_OF_SIDES):
        words = []  # which is which?
    return folder, {
        "models": found("*.npz", "model*.bin") if path.is_dir() else files,
        "vocabs": words,
        "shortlist": found("lex*.bin")[:1],
    }


def _yaml(path: Path, loader: Any) -> Mapping[str, Any]:
    """A mapping, by a loader that makes plain values only."""
    try:
        content = yaml.load(read_regular(path), loader)
    except OSError as error:
        raise cannot_read(path, error) from None
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        mark = getattr(error, "problem_mark", None)
        raise ModelError(f"{path}{f':{mark.line + 1}' if mark else ''}: is no YAML of plain values") from None
    if not isinstance(content, dict):
        raise ModelError(f"{path}: is no mapping of names to values")
    return content


def _listed(path: Path) -> list[str]:
    """The pieces of a YAML vocabulary in the order of their numbers; all of its values are read as text."""
    numbers = _yaml(path, getattr(yaml, "CBaseLoader", yaml.BaseLoader))
    try:
        pieces = {int(number): piece for piece, number in numbers.items()}
        return [pieces[number] for number in range(len(numbers))]
    except (KeyError, TypeError, ValueError):
        raise ModelError(f"{path}: is no vocabulary: its pieces are not numbered 0, 1, 2, ...") from None


def _parameters(path: Path) -> tuple[dict[str, Tensor], Mapping[str, Any]]:
    """Parameters, matrices as `[out, in]`, and options."""
    try:
        with open_regular(path) as file:
            is_archive = file.read(2) == b"PK"
    except OSError as error:
        raise cannot_read(path, error) from None
    if is_archive:
        check_archive(path)
    try:
        arrays, options = read_npz(path) if is_archive else read_bin(path)
        tensors = {name: torch.tensor(value) for name, value in arrays.items()}
    except Exception as error:  # a damaged file ends in whatever its reader stumbles over
        reason = f"without {error}" if isinstance(error, KeyError) else str(error).partition("\n")[0]
        raise ModelError(f"{path}: is no model of Marian, or is damaged: {reason}") from None
    return {
        name: value if name.endswith(_STORED_AS_HERE) or value.dim() != 2 else value.t()
        for name, value in tensors.items()
    }, options


def _decoding(search: Mapping[str, Any]) -> dict[str, PlainValue]:
    """The settings of the search; a beam of 1, as Bergamot has, where none is given."""
    return {
        "decoding.beam": search.get("beam-size", 1),
        "decoding.length_penalty": search.get("normalize", 1.0),
        "decoding.length_penalty_form": "average",
        "decoding.max_length_ratio": search.get("max-length-factor", 3),
        "decoding.max_length_extra": 3,  # for EOS, which Marian counts in the source
        "decoding.stop": "optimal",
        "decoding.min_length": 0,
        "decoding.unknown_penalty": 0.0 if search.get("allow-unk") is True else None,
    }


def _varint(message: bytes, place: int) -> tuple[int, int]:
    """A number of a protobuf message, and the place behind it."""
    value = shift = 0
    while True:
        byte = message[place]
        value, shift, place = value | (byte & 127) << shift, shift + 7, place + 1
        if byte < 128:
            return value, place


def _fields(message: bytes) -> Iterator[tuple[int, bytes, bytes]]:
    """The fields of a protobuf message: number, all bytes, and the bytes of the content."""
    place = 0
    while place < len(message):
        begin = place
        tag, place = _varint(message, place)
        content = place
        match tag & 7:
            case 0:
                _, place = _varint(message, place)
            case 2:
                length, content = _varint(message, place)
                place = content + length
            case kind:
                place += {1: 8, 5: 4}[kind]
        yield tag >> 3, message[begin:place], message[content:place]


def _model_type(model: bytes) -> int:
    """The type of a SentencePiece model: field 3 of its field 2."""
    trainer = next((content for number, _, content in _fields(model) if number == 2), b"")
    return next((content[0] for number, _, content in _fields(trainer) if number == 3), _UNIGRAM)


def _reordered(model: bytes, order: Sequence[int]) -> bytes:
    """A SentencePiece model with its pieces, field 1, in another order; -1: a symbol that it lacks."""
    pieces, others = list[bytes](), b""
    for number, whole, _ in _fields(model):
        if number == 1:
            pieces.append(whole)
        else:
            others += whole
    return (
        b"".join(
            pieces[number] if number >= 0 else _symbol(SPECIAL_PIECES[place])
            for place, number in enumerate(order)
        )
        + others
    )


def _symbol(name: str) -> bytes:
    piece = bytes([1 << 3 | 2, len(name)]) + name.encode() + bytes([3 << 3, _CONTROL])
    return bytes([1 << 3 | 2, len(piece)]) + piece


def _shortlist(path: Path, limits: Sequence[Any], source: _Pieces, target: _Pieces) -> ShortlistTable:
    """A lexical shortlist, binary or as text; `limits` of text: how many first pieces, and others."""
    try:
        content = read_regular(path)
        if int.from_bytes(content[:8], "little") == _SHORTLIST_MAGIC:
            first, lists = _binary_lists(content)
        else:
            first, best = (int(each) for each in (*limits, 100, 100)[:2])
            lists = _text_lists(path, best, source.names, target.names)
        ours = {theirs: number for number, theirs in enumerate(target.order)}
        rows = [
            {ours[piece] for piece in lists[theirs]} if theirs >= 0 else set[int]() for theirs in source.order
        ]
        always = {*range(FIRST), *(ours[number] for number in range(min(first, len(target.names))))}
    except OSError as error:
        raise cannot_read(path, error) from None
    except (ArithmeticError, LookupError, TypeError, ValueError) as error:
        raise ModelError(f"{path}: is no shortlist of these vocabularies, or is damaged: {error}") from None
    if source.names == target.names:  # a piece may stay as it is
        rows = [{*row, number} for number, row in enumerate(rows)]
    return ShortlistTable(
        torch.tensor(sorted(always)),
        torch.tensor([0, *accumulate(map(len, rows))]),
        torch.tensor([piece for row in rows for piece in sorted(row)], dtype=torch.int64),
        len(target.order),
    )


def _binary_lists(content: bytes) -> tuple[int, list[list[int]]]:
    """How many first pieces are always part, and the target pieces of each source piece."""
    _, _, first, _, entries, total = np.frombuffer(content, "<u8", _SHORTLIST_HEADER).tolist()
    begin = 8 * _SHORTLIST_HEADER
    offsets = np.frombuffer(content, "<u8", entries, begin).tolist()
    if offsets != sorted(offsets):
        raise ValueError("its lists overlap")
    targets = np.frombuffer(content, "<u4", total, begin + 8 * entries).tolist()
    return first, [targets[one:other] for one, other in pairwise(offsets)]


def _text_lists(path: Path, best: int, source: Sequence[str], target: Sequence[str]) -> list[list[int]]:
    """The most probable target pieces of each source piece; a line has target, source and probability."""
    numbers = [{name: number for number, name in enumerate(names)} for names in (target, source)]
    found = defaultdict[int, list[tuple[float, int]]](list)
    for line in read_lines(path):
        *pieces, probability = str(line).split(" ")
        if "NULL" not in pieces:
            to, of = (known.get(piece, known["<unk>"]) for known, piece in zip(numbers, pieces, strict=True))
            found[of].append((float(probability), to))
    return [[to for _, to in sorted(found[of], reverse=True)[:best]] for of in range(len(source))]
