"""SentencePiece models with a separate table of ids for their pieces, as OPUS-MT has."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Self

from deepwire.data.subwords.base import SPECIAL_PIECES, UNK, Vocabulary
from deepwire.data.subwords.sentencepiece import read_processor
from deepwire.data.subwords.words import UNKNOWN, Dictionary
from deepwire.errors import UsageError

_TAG = re.compile(r"(>>[^<>\s]+<<|__[a-z]{2,3}__|[a-z]{3}_[A-Z][a-z]{3}|[a-z]{2}_[A-Z]{2})(\s+|(?<=[<_])|$)")
"""Language tags as OPUS-MT, M2M-100, NLLB and mBART write them."""


class PieceTableVocabulary(Vocabulary):
    """A SentencePiece model segments text, and a table maps pieces to ids; pieces missing there are UNK.

    Two sides may share a table and have different models. A language tag in front of a text,
    such as `>>fra<<`, is one piece if the table has it, and is left out of decoded text.

    Args:
        model: The serialised SentencePiece model; a ModelError if it is none.
        table: Ordinary pieces, with ids from 4.
        where: The name of the model in errors.
    """

    def __init__(self, model: bytes, table: Dictionary, where: str = "SentencePiece model") -> None:
        self.model, self._table = model, table
        self._processor = read_processor(model, where)

    @property
    def size(self) -> int:
        """Number of entries of the table."""
        return len(self._table)

    @classmethod
    def from_files(cls, files: Mapping[str, bytes], name: str) -> Self:
        """Loads what `files` returned."""
        return cls(files[f"{name}.model"], Dictionary.from_json(files[f"{name}.pieces.json"]))

    def files(self, name: str) -> dict[str, bytes]:
        """The model and the table."""
        return {f"{name}.model": self.model, f"{name}.pieces.json": self._table.to_json()}

    def encode(self, text: str) -> list[int]:
        """Text to piece ids."""
        pieces = []
        tag = _TAG.match(text)
        if tag is not None and self._table.id(tag[1]) != UNK:
            pieces.append(tag[1])
            text = text[tag.end() :]
        pieces += self._processor.encode(text.encode("utf-8", "replace").decode(), out_type=str)
        return [self._table.id(piece) for piece in pieces]

    def sample(self, text: str, seed: int, strength: float) -> list[int]:  # noqa: ARG002
        """The only segmentation; a UsageError if a random one is asked for."""
        if strength:
            raise UsageError(
                "a vocabulary with a table of pieces cannot be segmented at random",
                "set data.vocabulary.sampling to 0",
            )
        return self.encode(text)

    def _decode_ids(self, ids: list[int]) -> str:
        pieces = [UNKNOWN if i == UNK else self._piece(i) for i in ids]
        pieces = [piece for piece in pieces if _TAG.fullmatch(piece) is None]
        return str(self._processor.decode_pieces(pieces)).strip()

    def _piece(self, number: int) -> str:
        if number < len(SPECIAL_PIECES):
            return SPECIAL_PIECES[number]
        return self._table.piece(number)
