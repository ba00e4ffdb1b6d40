"""The vocabulary of a folder of transformers, in the order of our ids."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import sentencepiece
import torch
from torch import Tensor

from deepwire.data.subwords.piece_table import PieceTableVocabulary
from deepwire.data.subwords.words import Dictionary
from deepwire.data.vocabulary import Vocabularies
from deepwire.errors import ModelError
from deepwire.io.regular_files import read_json, read_regular

_MODELS = (("source.spm", "target.spm"), ("sentencepiece.bpe.model",) * 2)
_FAIRSEQ = ("<s>", "<pad>", "</s>", "<unk>")
"""The first four entries where ids are those of a SentencePiece model and one more."""


@dataclass(frozen=True)
class SymbolNumbers:
    """The numbers of the symbols in a folder.

    Attributes:
        pad, eos, unk: Of the three.
        start: What the decoder reads first.
        source_bos: Whether sources begin with BOS.
        languages: `source_lang` and `target_lang`, where the tokenizer says them.
    """

    pad: int
    eos: int
    unk: int
    start: int
    bos: int | None
    source_bos: bool
    languages: Mapping[str, str]

    @classmethod
    def of(cls, folder: Path, config: Mapping[str, object]) -> SymbolNumbers:
        """From the settings and the tokenizer of a folder.

        Raises:
            ModelError: A number is missing.
        """

        def number(name: str) -> int | None:
            value = config.get(name)
            value = value[0] if isinstance(value, list) and value else value
            return value if isinstance(value, int) else None

        pad, eos = number("pad_token_id"), number("eos_token_id")
        start, bos = number("decoder_start_token_id"), number("bos_token_id")
        if pad is None or eos is None:
            raise ModelError(f"{folder}: config.json lacks pad_token_id or eos_token_id")
        tokenizer = (
            read_json(folder / "tokenizer_config.json") if (folder / "tokenizer_config.json").exists() else {}
        )
        languages = {
            name: str(tokenizer[name]) for name in ("source_lang", "target_lang") if tokenizer.get(name)
        }
        (table, *_) = read_tables(folder)
        unk = table.get("<unk>")
        if unk is None:
            raise ModelError(f"{folder}: the vocabulary has no <unk>")
        is_bart = str(tokenizer.get("tokenizer_class", "")).startswith("Bart")
        return cls(pad, eos, unk, eos if start is None else start, bos, is_bart, languages)

    @property
    def begin(self) -> int:
        """The stand-in for BOS: the decoder's start symbol, or where that is EOS, their own BOS."""
        if self.start != self.eos:
            return self.start
        return self.pad if self.bos is None or self.bos in (self.eos, self.unk) else self.bos

    @property
    def repeated(self) -> bool:
        """Whether BOS is PAD there."""
        return self.begin == self.pad

    def rows(self, size: int) -> Tensor:
        """The folder's number of each of our numbers.

        Raises:
            ModelError: A symbol is behind the end.
        """
        symbols = [self.pad, self.begin, self.eos, self.unk]
        if not all(0 <= number < size for number in symbols):
            raise ModelError(f"symbols have the numbers {symbols}, but the vocabulary only {size} entries")
        others = [number for number in range(size) if number not in symbols]
        return torch.tensor([*symbols, *others])

    def vocabularies(self, folder: Path, source_size: int, target_size: int) -> Vocabularies:
        """Both sides, cut by the SentencePiece models of the folder.

        Raises:
            ModelError: The tokenizer is of another kind.
        """
        models = _models(folder)
        tables = read_tables(folder)
        sides = [
            PieceTableVocabulary(read_regular(model), self._ordered(table, size), str(model))
            for model, table, size in zip(models, tables, (source_size, target_size), strict=True)
        ]
        joint = tables[0] == tables[1] and source_size == target_size
        same = joint and read_regular(models[0]) == read_regular(models[1])
        return Vocabularies(sides[0], sides[0] if same else sides[1], joint, "piece_table")

    def _ordered(self, table: Mapping[str, int], size: int) -> Dictionary:
        pieces = {number: piece for piece, number in table.items()}
        numbers = self.rows(size).tolist()[4:]
        return Dictionary([pieces.get(number, f"<unused {number}>") for number in numbers])


def read_tables(folder: Path) -> tuple[dict[str, int], dict[str, int]]:
    """The number of each piece of source and target, language tags included.

    Raises:
        ModelError: The tokenizer is of another kind.
    """
    if (folder / "vocab.json").exists():
        source = _numbers(folder / "vocab.json")
    else:
        model = _models(folder)[0]
        processor = sentencepiece.SentencePieceProcessor(model_proto=read_regular(model))
        pieces = [processor.id_to_piece(number) for number in range(3, processor.vocab_size())]
        source = {piece: number for number, piece in enumerate((*_FAIRSEQ, *pieces))}
    target = _numbers(folder / "target_vocab.json") if (folder / "target_vocab.json").exists() else source
    added = _added(folder, source)
    return {**source, **added}, {**target, **added} if target is source else target


def _added(folder: Path, table: Mapping[str, int]) -> dict[str, int]:
    """Tokens that the tokenizer adds behind its table, such as the tags of languages."""
    path = folder / "tokenizer_config.json"
    decoder = read_json(path).get("added_tokens_decoder", {}) if path.exists() else {}
    added = {}
    for number, token in decoder.items() if isinstance(decoder, dict) else ():
        text = token.get("content") if isinstance(token, dict) else None
        if isinstance(text, str) and str(number).isdecimal() and text not in table:
            added[text] = int(number)
    taken = set(table.values())
    return {text: number for text, number in added.items() if number not in taken}


def _models(folder: Path) -> tuple[Path, Path]:
    for source, target in _MODELS:
        if (folder / source).is_file() and (folder / target).is_file():
            return folder / source, folder / target
    raise ModelError(
        f"{folder}: has no SentencePiece model ({' or '.join(names[0] for names in _MODELS)})",
        "tokenizers of other kinds are not read; save the slow tokenizer of the model into the folder",
    )


def _numbers(path: Path) -> dict[str, int]:
    table = {piece: number for piece, number in read_json(path).items() if isinstance(number, int)}
    if len(set(table.values())) < len(table):
        raise ModelError(f"{path}: damaged: two pieces have one number")
    return table
