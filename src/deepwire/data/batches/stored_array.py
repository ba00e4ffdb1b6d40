"""The files of a token store: its header, and memory-mapped arrays with a checksum for each block.

Reading a corpus of hundreds of gigabytes whenever it is opened would take minutes. A block is checked when
something of it is read for the first time: only what is used is read, and each block is checked once.
"""

from __future__ import annotations

import json
import mmap
import os
import zlib
from array import array
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, overload

import numpy as np
from numpy.typing import NDArray

from deepwire.errors import DataError
from deepwire.io.regular_files import open_regular, read_regular

BLOCK = 1 << 16
"""Bytes of a block. A page that is missing is read from the disk with its neighbours, about as many bytes."""
_BLOCKS_AT_ONCE = 256
"""Blocks that are checked between two times of giving pages back."""

Integers = NDArray[np.integer]
Sums = NDArray[np.uint32]


class Links(NamedTuple):
    """Which words of some pairs belong together."""

    words: Integers
    """`[2 * links]`: of each link the word of the source and that of the target, from 0."""
    sizes: Integers
    """`[pairs]`: links of each."""


class BlockSums:
    """CRC-32 of each block of a file that is written piece by piece."""

    def __init__(self, file: BinaryIO) -> None:
        self._file = file
        self._done = array("I")
        self._sum, self._filled = 0, 0

    def write(self, data: bytes) -> None:
        """Append to the file."""
        self._file.write(data)
        rest = memoryview(data)
        while rest:
            piece, rest = rest[: BLOCK - self._filled], rest[BLOCK - self._filled :]
            self._sum, self._filled = zlib.crc32(piece, self._sum), self._filled + len(piece)
            if self._filled == BLOCK:
                self._end_block()

    def finish(self) -> Sums:
        """The checksums; nothing is written afterwards."""
        if self._filled:
            self._end_block()
        return np.array(self._done, "<u4")

    def _end_block(self) -> None:
        self._done.append(self._sum)
        self._sum, self._filled = 0, 0


def blocks_of(size: int) -> int:
    """How many blocks a file of so many bytes has."""
    return -(-size // BLOCK)


class StoredArray:
    """Integers in a file. What is read is what was written, or an error.

    Args:
        path: The file.
        dtype: Of the numbers.
        count: How many there are.
        sums: `[blocks]`: what `BlockSums` found.
        on_damage: Called before an error is raised; what it returns is the hint of the error.

    Raises:
        DataError: the file is missing, or has another size.
        OSError: it cannot be opened.
    """

    def __init__(
        self, path: Path, dtype: np.dtype[np.integer], count: int, sums: Sums, on_damage: Callable[[], str]
    ) -> None:
        self.path, self.dtype, self._count = path, dtype, count
        self._sums, self._on_damage = sums, on_damage
        self._unchecked = np.ones(len(sums), bool)
        self._left = len(sums)
        self._map: mmap.mmap | None = None
        try:
            with open_regular(path) as file:
                size = os.fstat(file.fileno()).st_size
                if size != self.nbytes:
                    raise self._damage(f"{size} bytes where {self.nbytes} belong")
                if size:
                    self._map = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise self._damage("the file is missing") from None
        self._values: Integers = np.frombuffer(self._map or b"", dtype)

    def __len__(self) -> int:
        return self._count

    @property
    def nbytes(self) -> int:
        """Bytes of the file."""
        return self._count * self.dtype.itemsize

    @overload
    def __getitem__(self, index: int) -> np.integer: ...
    @overload
    def __getitem__(self, index: slice | Integers) -> Integers: ...
    def __getitem__(self, index: int | slice | Integers) -> np.integer | Integers:
        """Numbers at places from 0, as numpy has it; the result of a slice is a view of the file.

        Raises:
            DataError: the block of one of them is damaged.
        """
        if self._left:
            self._check(self._blocks_at(index))
        numbers: np.integer | Integers = self._values[index]
        return numbers

    def check(self) -> None:
        """Check all that has not been read yet.

        Raises:
            DataError: a block is damaged.
        """
        blocks = np.flatnonzero(self._unchecked)
        for first in range(0, len(blocks), _BLOCKS_AT_ONCE):
            self._check(blocks[first : first + _BLOCKS_AT_ONCE])
            self.release()

    def release(self) -> None:
        """Give back the pages that were read; they stay in the system's cache as long as it has room."""
        if self._map is not None and hasattr(mmap, "MADV_DONTNEED"):
            self._map.madvise(mmap.MADV_DONTNEED)

    def _blocks_at(self, index: int | slice | Integers) -> Integers:
        size = self.dtype.itemsize
        if isinstance(index, slice):
            start, stop, step = index.indices(self._count)
            if step != 1:
                raise IndexError("a stored array is read in steps of 1")
            return np.arange(start * size // BLOCK, blocks_of(stop * size) if stop > start else 0)
        return np.atleast_1d(np.asarray(index, np.int64)) * size // BLOCK

    def _check(self, blocks: Integers) -> None:
        for block in np.unique(blocks[self._unchecked[blocks]]).tolist():
            start, stop = block * BLOCK, min((block + 1) * BLOCK, self.nbytes)
            if self._map is None or zlib.crc32(memoryview(self._map)[start:stop]) != self._sums[block]:
                raise self._damage(f"bytes {start} to {stop - 1} are not what was written")
            self._unchecked[block] = False
            self._left -= 1

    def _damage(self, damage: str) -> DataError:
        return DataError(f"{self.path}: damaged: {damage}", self._on_damage())


def write_sums(path: Path, sums: Sequence[Sums]) -> None:
    """Write the checksums of some files, those of one after those of the other."""
    with path.open("wb") as file:
        for file_sums in sums:
            file.write(file_sums.astype("<u4", copy=False).tobytes())
        file.flush()
        os.fsync(file.fileno())


def read_sums(path: Path, sizes: Sequence[int]) -> list[Sums]:
    """The checksums of files of so many bytes, in the order in which they were written.

    Raises:
        DataError: the file does not fit the sizes.
        OSError: it cannot be read.
    """
    counts = [blocks_of(size) for size in sizes]
    content = read_regular(path)
    if len(content) != 4 * sum(counts):
        raise DataError(f"{path}: damaged: {len(content)} bytes where {4 * sum(counts)} belong")
    ends = np.cumsum(counts)
    return np.split(np.frombuffer(content, "<u4"), ends[:-1])


Side = Literal["source", "target"]
Kind = np.dtype[np.integer]

HEADER, SUMS = "store.json", "store.crc32"
SIDES: tuple[Side, Side] = ("source", "target")
SIDE_FILES = ("tokens", "lengths", "offsets", "text", "text_offsets")
DIRECTIONS, LINES, PREVIOUS = "pair.directions", "pair.lines", "pair.previous"
LINKS, LINK_OFFSETS = "pair.links", "pair.link_offsets"
_FORMAT = 2
"""2: with checksums of blocks, and the line of each pair."""
_KINDS: dict[str, Kind] = {"<u2": np.dtype("<u2"), "<u4": np.dtype("<u4")}
_SUMMED = frozenset(
    (
        *(f"{side}.{name}" for side in SIDES for name in SIDE_FILES),
        *(DIRECTIONS, LINES, PREVIOUS, LINKS, LINK_OFFSETS),
    )
)


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
    pairs: int | None = None
    """Of a store of documents: how many of the sentences are pairs; those behind them are context alone."""
    packed: bool = False
    """Whether the targets are blocks of a text of one side."""
    links: int | None = None
    """Of a store with alignments: how many links of words all pairs have."""

    @classmethod
    def read(cls, path: Path) -> StoreHeader:
        """Read what `write` wrote.

        Raises:
            DataError: the file is missing, damaged, or of another version.
            OSError: it cannot be read.
        """
        try:
            header = json.loads(read_regular(path))
            if header["format"] != _FORMAT:
                raise DataError(f"{path}: written by another version of deepwire")
            sides = {side: _side(header[side]) for side in SIDES}
            pairs = int(header["pairs"]) if "pairs" in header else None
            kept = bool(header["directions"]), bool(header["lines"])
            links = int(header["links"]) if "links" in header else None
            packed = bool(header.get("packed", False))
            return cls(int(header["sentences"]), sides, *kept, pairs, packed, links)
        except FileNotFoundError:
            raise DataError(f"{path}: the file is missing") from None
        except (ValueError, KeyError, TypeError, RecursionError):
            raise DataError(f"{path}: damaged: not the header of a token store") from None

    def write(self, path: Path) -> None:
        """Write it."""
        header: dict[str, object] = {"format": _FORMAT, "sentences": self.sentences}
        header |= {name: {**side._asdict(), "dtype": side.dtype.str} for name, side in self.sides.items()}
        header |= {"directions": self.directions, "lines": self.lines}
        header |= {} if self.pairs is None else {"pairs": self.pairs}
        header |= {"packed": True} if self.packed else {}
        header |= {} if self.links is None else {"links": self.links}
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
        if self.pairs is not None:
            files[PREVIOUS] = (places, self.sentences)
        if self.links is not None:
            files[LINKS], files[LINK_OFFSETS] = (np.dtype("<u2"), 2 * self.links), (places, ends)
        return files


def _side(header: Mapping[str, str | int]) -> SideHeader:
    counts = (int(header[name]) for name in ("tokens", "text_bytes", "vocabulary", "longest"))
    return SideHeader(_KINDS[str(header["dtype"])], *counts)
