"""SentencePiece models of other programs with the special numbers of this one.

A model file is a list of fields (the wire format of protocol buffers). The pieces are those numbered 1, in
the order of their ids, so other special pieces in front of the ordinary ones make another numbering; nothing
else in the file depends on it.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from deepwire.data.subwords.base import SPECIAL_PIECES
from deepwire.errors import ModelError

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
    """What kind of piece it is; 1 is an ordinary one."""
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
