"""Segmented sentence pairs on disk, memory-mapped: a corpus may be larger than memory."""

from __future__ import annotations

import json
import mmap
import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from deepwire.data.batches.order import Part
from deepwire.data.subwords.base import number_type
from deepwire.errors import DataError

Integers = NDArray[np.integer]
Side = Literal["source", "target"]
Number = TypeVar("Number", bound=np.integer)

HEADER = "store.json"
_FORMAT = 1
_SIDES: tuple[Side, Side] = ("source", "target")
_FILES = ("tokens", "lengths", "offsets", "text", "text_offsets")
DIRECTIONS = ("pair", "directions")
_AT_ONCE, _LENGTHS_AT_ONCE = 2048, 16384
"""Sentences that are copied between two times of giving pages back."""
_REBUILD = "delete the folder: the next run prepares it again"


class Block(NamedTuple):
    """One side of some sentences, the sentences one after the other."""

    tokens: Integers
    """`[total tokens]`."""
    lengths: Integers
    """`[sentences]`: tokens of each."""
    text: bytes
    """The lines in UTF-8, without line ends."""
    text_sizes: Integers
    """`[sentences]`: bytes of each."""

    @classmethod
    def of(cls, ids: Sequence[Sequence[int]], texts: Sequence[str]) -> Block:
        """A block of segmented lines and the lines."""
        sentences, lines = Sentences.of(ids), [text.encode() for text in texts]
        return cls(
            sentences.tokens,
            sentences.lengths,
            b"".join(lines),
            np.fromiter(map(len, lines), np.int64, len(lines)),
        )


class _SideWriter:
    def __init__(self, files: Mapping[str, BinaryIO], vocabulary: int) -> None:
        self._files, self._vocabulary = files, vocabulary
        self._dtype = number_type(vocabulary)
        self.sentences, self._tokens, self._bytes, self._longest = 0, 0, 0, 0
        for name in ("offsets", "text_offsets"):
            self._write(name, np.zeros(1, "<i8"))

    def add(self, block: Block) -> None:
        lengths, sizes = (np.asarray(values, np.int64) for values in (block.lengths, block.text_sizes))
        self._write("tokens", block.tokens.astype(self._dtype, copy=False))
        self._write("lengths", lengths.astype("<i4"))
        self._write("offsets", (self._tokens + np.cumsum(lengths)).astype("<i8", copy=False))
        self._files["text"].write(block.text)
        self._write("text_offsets", (self._bytes + np.cumsum(sizes)).astype("<i8", copy=False))
        self.sentences += len(lengths)
        self._tokens += int(lengths.sum())
        self._bytes += int(sizes.sum())
        self._longest = max(self._longest, int(lengths.max(initial=0)))

    def _write(self, name: str, values: NDArray[np.generic]) -> None:
        self._files[name].write(values.tobytes())

    def header(self) -> dict[str, object]:
        return {
            "vocabulary": self._vocabulary,
            "dtype": self._dtype.str,
            "tokens": self._tokens,
            "text_bytes": self._bytes,
            "longest": self._longest,
        }


class StoreWriter:
    """Writes a store into an empty folder, block by block; it can be read only after `finish`.

    Args:
        folder: Made here.
        source_size: Entries of the source vocabulary.
        target_size: Entries of the target vocabulary.
        directions: Whether each pair comes with the number of its direction.
    """

    def __init__(self, folder: Path, source_size: int, target_size: int, *, directions: bool = False) -> None:
        folder.mkdir(parents=True)
        self._folder = folder
        self._directions: BinaryIO | None = None
        self._files: list[BinaryIO] = []
        self._sides: list[_SideWriter] = []
        try:
            for side, size in zip(_SIDES, (source_size, target_size), strict=True):
                files = {name: self._open(side, name) for name in _FILES}
                self._sides.append(_SideWriter(files, size))
            if directions:
                self._directions = self._open(*DIRECTIONS)
        except OSError:
            self.__exit__(None, None, None)
            raise

    def _open(self, side: str, name: str) -> BinaryIO:
        file = (self._folder / f"{side}.{name}").open("wb", 1 << 20)
        self._files.append(file)
        return file

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for file in self._files:
            # Closing writes what is left in memory: on a full disk that fails once more and says nothing new.
            with suppress(OSError):
                file.close()

    def add(self, source: Block, target: Block, direction: int = 0) -> None:
        """Append sentence pairs, all of one direction."""
        for writer, block in zip(self._sides, (source, target), strict=True):
            writer.add(block)
        if self._directions is not None:
            self._directions.write(np.full(len(source.lengths), direction, "<u2").tobytes())

    def finish(self) -> None:
        """Bring everything to the disk; the header comes last."""
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
            file.close()
        header: dict[str, object] = {
            "format": _FORMAT,
            "sentences": self._sides[0].sentences,
            "source": self._sides[0].header(),
            "target": self._sides[1].header(),
        }
        if self._directions is not None:
            header["directions"] = True
        (self._folder / HEADER).write_text(json.dumps(header, indent=1) + "\n")


@dataclass(frozen=True)
class Sentences:
    """Sentences as token numbers, one after the other."""

    tokens: Integers
    """`[all tokens]`, no special ones."""
    lengths: Integers
    """`[sentences]`: tokens of each, special ones not counted."""
    offsets: Integers
    """`[sentences]` or one more: where each begins in `tokens`."""

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Sentences:
        """Lists of token numbers, in memory."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return cls(np.fromiter(chain.from_iterable(rows), np.int64, int(offsets[-1])), lengths, offsets)

    def sentence(self, line: int) -> NDArray[np.int64]:
        """The tokens of one sentence."""
        start = int(self.offsets[line])
        return self.tokens[start : start + int(self.lengths[line])].astype(np.int64)

    def gather(self, lines: Integers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tokens of some sentences, one after the other, and the length of each."""
        lengths = self.lengths[lines].astype(np.int64)
        ends = np.cumsum(lengths)
        places = np.arange(ends[-1] if len(ends) else 0)
        places += np.repeat(self.offsets[lines] - (ends - lengths), lengths)
        return self.tokens[places].astype(np.int64), lengths


@dataclass(frozen=True)
class StoreSide(Sentences):
    """One side of a store; the arrays are memory-mapped."""

    text_bytes: NDArray[np.uint8]
    text_offsets: Integers
    vocabulary: int
    """Entries of the vocabulary that the tokens are numbers of."""
    longest: int
    """Tokens of the longest sentence."""

    def take_lengths(self, lines: Integers) -> Integers:
        """Copy the lengths of some sentences; see `take`."""
        lengths = np.empty(len(lines), self.lengths.dtype)
        for first in range(0, len(lines), _LENGTHS_AT_ONCE):
            stretch = slice(first, first + _LENGTHS_AT_ONCE)
            lengths[stretch] = self.lengths[lines[stretch]]
            self.release()
        return lengths

    def take(self, lines: Integers) -> Sentences:
        """Copy some sentences into memory: number i of the result is sentence `lines[i]`.

        What was mapped of the files is given back on the way, so what is resident does not grow with the
        store. Ascending lines are read fastest: the files are gone through once.
        """
        tokens, lengths = [self.tokens[:0]], [self.lengths[:0]]
        for first in range(0, len(lines), _AT_ONCE):
            found, sizes = self.gather(lines[first : first + _AT_ONCE])
            tokens.append(found.astype(self.tokens.dtype))
            lengths.append(sizes.astype(self.lengths.dtype))
            self.release()
        joined = np.concatenate(lengths)
        offsets = np.cumsum(joined, dtype=np.int64) - joined
        return Sentences(np.concatenate(tokens), joined, offsets)

    def release(self) -> None:
        """Give back the pages that were read; they stay in the system's cache as long as it has room."""
        for array in (self.tokens, self.lengths, self.offsets, self.text_bytes, self.text_offsets):
            if isinstance(array.base, mmap.mmap) and hasattr(mmap, "MADV_DONTNEED"):
                array.base.madvise(mmap.MADV_DONTNEED)

    def text(self, line: int) -> str:
        """The raw line."""
        return self.text_bytes[self.text_offsets[line] : self.text_offsets[line + 1]].tobytes().decode()


class TokenStore:
    """Sentence pairs of a folder that `StoreWriter` wrote.

    Args:
        folder: The folder.
        parts: The corpora of the store and how often an epoch reads them; default: all of it, once.

    Raises:
        DataError: a file is missing, or its size is not what the header says.
    """

    def __init__(self, folder: Path, parts: Sequence[Part] = ()) -> None:
        self.folder = folder
        self._sentences, headers, directions = _read_header(folder / HEADER)
        self.source_side, self.target_side = (
            _open_side(folder, side, headers[side], self._sentences) for side in _SIDES
        )
        self.directions: Integers | None = (
            _map(folder / ".".join(DIRECTIONS), np.uint16, self._sentences) if directions else None
        )
        """`[sentences]`: the direction of each, a place in `Languages.directions`; None with one."""
        self.parts = tuple(parts) or (Part(0, self._sentences),)

    def __len__(self) -> int:
        return self._sentences

    def source(self, line: int) -> NDArray[np.int64]:
        """Source tokens of a pair, no special ones."""
        return self.source_side.sentence(line)

    def target(self, line: int) -> NDArray[np.int64]:
        """Target tokens of a pair, no special ones."""
        return self.target_side.sentence(line)

    @property
    def source_lengths(self) -> Integers:
        """`[sentences]`: source tokens of each, special ones not counted."""
        return self.source_side.lengths

    @property
    def target_lengths(self) -> Integers:
        """`[sentences]`: target tokens of each, special ones not counted."""
        return self.target_side.lengths

    def source_text(self, line: int) -> str:
        """The raw source line of a pair."""
        return self.source_side.text(line)

    def target_text(self, line: int) -> str:
        """The raw target line of a pair."""
        return self.target_side.text(line)


def _read_header(path: Path) -> tuple[int, dict[str, dict[str, str | int]], bool]:
    """Number of sentences, the description of each side, whether pairs have directions."""
    try:
        header = json.loads(path.read_bytes())
        if header["format"] != _FORMAT:
            raise DataError(f"{path}: written by another version of deepwire", _REBUILD)
        sentences, sides = int(header["sentences"]), {side: dict(header[side]) for side in _SIDES}
    except OSError as fault:
        raise DataError(f"{path}: cannot read: {fault.strerror}", _REBUILD) from None
    except (ValueError, KeyError, TypeError, RecursionError):
        raise DataError(f"{path}: damaged: not the header of a token store", _REBUILD) from None
    described = {str(side): described for side, described in sides.items()}
    return sentences, described, header.get("directions") is True


def _open_side(folder: Path, side: Side, header: dict[str, str | int], sentences: int) -> StoreSide:
    try:
        kinds: dict[str, type[np.integer]] = {"<u2": np.uint16, "<u4": np.uint32}
        kind = kinds[str(header["dtype"])]
        tokens, text_bytes = int(header["tokens"]), int(header["text_bytes"])
        vocabulary, longest = int(header["vocabulary"]), int(header["longest"])
    except (KeyError, ValueError):
        raise DataError(f"{folder / HEADER}: damaged: no description of the {side} side", _REBUILD) from None
    offsets = _map(folder / f"{side}.offsets", np.int64, sentences + 1)
    text_offsets = _map(folder / f"{side}.text_offsets", np.int64, sentences + 1)
    for name, values, end in (("offsets", offsets, tokens), ("text_offsets", text_offsets, text_bytes)):
        if values[0] != 0 or values[-1] != end:
            raise DataError(f"{folder / f'{side}.{name}'}: damaged: does not cover its data", _REBUILD)
    return StoreSide(
        tokens=_map(folder / f"{side}.tokens", kind, tokens),
        lengths=_map(folder / f"{side}.lengths", np.int32, sentences),
        offsets=offsets,
        text_bytes=_map(folder / f"{side}.text", np.uint8, text_bytes),
        text_offsets=text_offsets,
        vocabulary=vocabulary,
        longest=longest,
    )


def _map(path: Path, kind: type[Number], count: int) -> NDArray[Number]:
    dtype = np.dtype(kind).newbyteorder("<")
    try:
        size = path.stat().st_size
        if size != count * dtype.itemsize:
            raise DataError(f"{path}: damaged: {size} bytes where {count * dtype.itemsize} belong", _REBUILD)
        return np.memmap(path, dtype, "r", shape=(count,)) if count else np.zeros(0, dtype)
    except OSError as fault:
        raise DataError(f"{path}: cannot read: {fault.strerror}", _REBUILD) from None
