"""What lies in the folder of a token store: its files, and the header that describes them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Literal, NamedTuple

import numpy as np

from deepwire.errors import DataError

Side = Literal["source", "target"]
Kind = np.dtype[np.integer]

HEADER, SUMS = "store.json", "store.crc32"
SIDES: tuple[Side, Side] = ("source", "target")
SIDE_FILES = ("tokens", "lengths", "offsets", "text", "text_offsets")
DIRECTIONS, LINES = "pair.directions", "pair.lines"
_FORMAT = 2
"""2: with checksums of blocks, and the line of each pair."""
_KINDS: dict[str, Kind] = {"<u2": np.dtype("<u2"), "<u4": np.dtype("<u4")}
_SUMMED = frozenset((*(f"{side}.{name}" for side in SIDES for name in SIDE_FILES), DIRECTIONS, LINES))


def has_sums(name: str) -> bool:
    """Whether the checksums of a store cover a file of this name."""
    return name in _SUMMED


class SideHeader(NamedTuple):
    """One side of a store."""

    dtype: Kind
    """Of the tokens."""
    tokens: int
    text_bytes: int
    vocabulary: int
    """Entries of the vocabulary."""
    longest: int
    """Tokens of the longest sentence."""


class StoreHeader(NamedTuple):
    """A store: how many pairs, both sides, and which files there are beside those of the sides."""

    sentences: int
    sides: dict[Side, SideHeader]
    directions: bool
    lines: bool

    @classmethod
    def read(cls, path: Path) -> StoreHeader:
        """Read what `write` wrote.

        Raises:
            DataError: the file is missing, damaged, or of another version.
            OSError: it cannot be read.
        """
        try:
            header = json.loads(path.read_bytes())
            if header["format"] != _FORMAT:
                raise DataError(f"{path}: written by another version of deepwire")
            sides = {side: _side(header[side]) for side in SIDES}
            return cls(int(header["sentences"]), sides, bool(header["directions"]), bool(header["lines"]))
        except FileNotFoundError:
            raise DataError(f"{path}: the file is missing") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise DataError(f"{path}: damaged: not the header of a token store") from None

    def write(self, path: Path) -> None:
        """Write it."""
        header: dict[str, object] = {"format": _FORMAT, "sentences": self.sentences}
        header |= {side: {**own._asdict(), "dtype": own.dtype.str} for side, own in self.sides.items()}
        header |= {"directions": self.directions, "lines": self.lines}
        path.write_text(json.dumps(header, indent=1) + "\n")

    def files(self) -> dict[str, tuple[Kind, int]]:
        """Type and number of the elements of each file, in the order of the checksums."""
        files: dict[str, tuple[Kind, int]] = {}
        places, ends = np.dtype("<i8"), self.sentences + 1
        for side, header in self.sides.items():
            described: tuple[tuple[Kind, int], ...] = (
                (header.dtype, header.tokens),
                (np.dtype("<i4"), self.sentences),
                (places, ends),
                (np.dtype("u1"), header.text_bytes),
                (places, ends),
            )
            files |= {f"{side}.{name}": each for name, each in zip(SIDE_FILES, described, strict=True)}
        if self.directions:
            files[DIRECTIONS] = (np.dtype("<u2"), self.sentences)
        if self.lines:
            files[LINES] = (places, self.sentences)
        return files


def _side(header: Mapping[str, str | int]) -> SideHeader:
    counts = (int(header[name]) for name in ("tokens", "text_bytes", "vocabulary", "longest"))
    return SideHeader(_KINDS[str(header["dtype"])], *counts)
