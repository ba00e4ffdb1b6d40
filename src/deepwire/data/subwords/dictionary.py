"""A list of pieces and their numbers, kept as a JSON file; and counting pieces to make one."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import ItemsView, Iterable, Sequence
from pathlib import Path

from deepwire.data.subwords.base import SPECIAL_PIECES, UNK
from deepwire.errors import ModelError

FIRST = len(SPECIAL_PIECES)
"""The number of the first ordinary piece."""
MOST_COUNTED = 8_000_000
"""With more distinct pieces than this the rarest are forgotten, so that counting keeps its memory."""


class Dictionary:
    """Ordinary pieces, numbered from 4 in the order given."""

    def __init__(self, pieces: Sequence[str]) -> None:
        self._pieces = list(pieces)
        self._numbers = {piece: number for number, piece in enumerate(self._pieces, FIRST)}

    def __len__(self) -> int:
        return FIRST + len(self._pieces)

    def number(self, piece: str) -> int:
        """The number of a piece; UNK when it has none."""
        return self._numbers.get(piece, UNK)

    def piece(self, number: int) -> str:
        """The piece of an ordinary number."""
        return self._pieces[number - FIRST]

    @classmethod
    def load(cls, path: Path) -> Dictionary:
        """Read a JSON list of texts.

        Raises:
            ModelError: the file is missing or is no such list.
        """
        try:
            pieces = json.loads(path.read_bytes())
        except OSError as fault:
            raise ModelError(f"{path}: cannot read: {fault.strerror}") from None
        except (ValueError, RecursionError):
            raise ModelError(f"{path}: damaged: not JSON") from None
        if (
            not isinstance(pieces, list)
            or not all(isinstance(piece, str) for piece in pieces)
            or len(set(pieces)) != len(pieces)
        ):
            raise ModelError(f"{path}: damaged: not a list of different pieces")
        return cls(pieces)

    def to_json(self) -> bytes:
        """The pieces as a JSON list, one a line."""
        return as_json(self._pieces)


def as_json(value: object) -> bytes:
    """A value as the bytes of a JSON file that people can read."""
    return (json.dumps(value, ensure_ascii=False, indent=0) + "\n").encode()


class PieceCounter:
    """How often each piece was seen."""

    def __init__(self) -> None:
        self._counts: Counter[str] = Counter()
        self._floor = 0

    def add(self, pieces: Iterable[str], times: int = 1) -> None:
        """Count pieces, each `times` times."""
        if times == 1:
            self._counts.update(pieces)
        else:
            for piece in pieces:
                self._counts[piece] += times
        while len(self._counts) > MOST_COUNTED:
            self._floor += 1
            self._counts = Counter({p: count for p, count in self._counts.items() if count > self._floor})

    def items(self) -> ItemsView[str, int]:
        """The pieces with their counts."""
        return self._counts.items()

    def dictionary(self, min_count: int = 1, max_size: int | None = None) -> Dictionary:
        """The pieces from the most frequent to the rarest, equal ones in alphabetical order."""
        ranked = sorted(self._counts.items(), key=lambda item: (-item[1], item[0]))
        kept = [piece for piece, count in ranked if count >= min_count]
        return Dictionary(kept if max_size is None else kept[: max_size - FIRST])
