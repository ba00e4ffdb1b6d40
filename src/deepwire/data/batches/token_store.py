"""Segmented sentence pairs on disk, memory-mapped: a corpus may be larger than memory."""

from __future__ import annotations

import mmap
import os
import zlib
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import BinaryIO, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, NonNegativeInt, ValidationError

from deepwire.data.batches.epoch_order import Part
from deepwire.data.subwords.base import Segmentation, id_dtype
from deepwire.data.text.pairs import Texts
from deepwire.errors import DataError
from deepwire.io.regular_files import open_regular, read_regular

Integers = NDArray[np.integer]

HEADER = "store.json"
_SIDE_FILES = ("tokens", "lengths", "offsets", "text", "text_offsets")
_DIRECTIONS, _LINES, _PREVIOUS = "pair.directions", "pair.lines", "pair.previous"
_LINKS, _LINK_OFFSETS = "pair.links", "pair.link_offsets"
_AT_ONCE = 2048
"""Sentences gathered at a time: the indices of their tokens take several times the memory of the tokens."""


Links = tuple[Integers, Integers]
"""Which words of some pairs belong together.

`[2 * links]`: of each link the word of the source and that of the target, from 0; `[pairs]`: links of each.
"""


class TokenBlock(NamedTuple):
    """One side of some sentences: their tokens, and the lines."""

    pieces: Segmentation
    texts: Texts

    @classmethod
    def of(cls, ids: Sequence[Sequence[int]], texts: Sequence[str]) -> TokenBlock:
        """A block of segmented lines and the lines."""
        return cls(Segmentation.of(ids, 1 << 31), Texts.of_strings(texts))


class _SideHeader(BaseModel):
    dtype: Literal["<u2", "<u4"]
    vocabulary: NonNegativeInt
    tokens: NonNegativeInt = 0
    text_bytes: NonNegativeInt = 0
    longest: NonNegativeInt = 0


class _StoreHeader(BaseModel):
    """The file `store.json`. Format 2 has its checksums in another file, which is not read.

    Attributes:
        format: Its version.
        sentences: How many there are.
        source: The source side.
        target: The target side.
        directions: Whether there is a file of directions.
        lines: Whether there is a file of line numbers.
        crc32: The checksum of each file.
        pairs: In a store of documents: how many sentences are pairs; those after them are context alone.
        packed: Whether the targets are blocks of a text of one side.
        links: In a store with alignments: how many links of words all pairs have.
    """

    format: Literal[2, 3] = 3
    sentences: NonNegativeInt = 0
    source: _SideHeader
    target: _SideHeader
    directions: bool
    lines: bool
    crc32: dict[str, int] = {}
    pairs: NonNegativeInt | None = None
    packed: bool = False
    links: NonNegativeInt | None = None

    def files(self) -> dict[str, tuple[str, int]]:
        """Type and number of the elements of each file."""
        files: dict[str, tuple[str, int]] = {}
        count, ends = self.sentences, self.sentences + 1
        for name, side in (("source", self.source), ("target", self.target)):
            files |= {
                f"{name}.tokens": (side.dtype, side.tokens),
                f"{name}.lengths": ("<i4", count),
                f"{name}.offsets": ("<i8", ends),
                f"{name}.text": ("u1", side.text_bytes),
                f"{name}.text_offsets": ("<i8", ends),
            }
        if self.directions:
            files[_DIRECTIONS] = ("<u2", count)
        if self.lines:
            files[_LINES] = ("<i8", count)
        if self.pairs is not None:
            files[_PREVIOUS] = ("<i8", count)
        if self.links is not None:
            files |= {_LINKS: ("<u2", 2 * self.links), _LINK_OFFSETS: ("<i8", ends)}
        return files


class StoreWriter:
    """Writes a store into an empty folder, block by block; it can be read only after `finish`.

    Args:
        folder: Made here.
        source_size: Entries of the source vocabulary.
        target_size: Entries of the target vocabulary.
        directions: Whether each pair comes with the number of its direction.
        lines: Whether each pair comes with the number of its line in its corpus.
        documents: Whether `finish` is told which sentence stands in front of each in its document.
        packed: Whether targets are blocks of a text of one side (`deepwire.data.prepare.packing`).
        aligned: Whether each pair comes with links of words.
    """

    def __init__(
        self,
        folder: Path,
        source_size: int,
        target_size: int,
        *,
        directions: bool = False,
        lines: bool = False,
        documents: bool = False,
        packed: bool = False,
        aligned: bool = False,
    ) -> None:
        folder.mkdir(parents=True)
        self._folder, self._files = folder, dict[str, BinaryIO]()
        source, target = (
            _SideHeader(dtype="<u2" if id_dtype(size).itemsize == 2 else "<u4", vocabulary=size)
            for size in (source_size, target_size)
        )
        self._header = _StoreHeader(
            source=source,
            target=target,
            directions=directions,
            lines=lines,
            pairs=0 if documents else None,
            packed=packed,
            links=0 if aligned else None,
        )
        try:
            for name in self._header.files():
                self._files[name] = (folder / name).open("wb", 1 << 20)
                self._write(name, np.zeros(int(name.endswith("offsets")), "<i8"))
        except OSError:
            self.__exit__()
            raise

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_fault: object) -> None:
        for file in self._files.values():
            # Closing writes what is left in memory: on a full disk that fails once more and says nothing new.
            with suppress(OSError):
                file.close()

    def add(
        self,
        source: TokenBlock,
        target: TokenBlock,
        direction: int = 0,
        lines: Integers | None = None,
        links: Links | None = None,
    ) -> None:
        """Appends sentence pairs, all of one direction; `lines` are the numbers of their lines."""
        header, count = self._header, len(source.texts.sizes)
        for name, side, block in (("source", header.source, source), ("target", header.target, target)):
            (pieces, lengths), (text, sizes) = block
            self._write(f"{name}.tokens", pieces.astype(side.dtype, copy=False))
            self._write(f"{name}.lengths", lengths.astype("<i4"))
            self._write(f"{name}.offsets", side.tokens + np.cumsum(lengths, dtype=np.int64))
            self._write(f"{name}.text", text)
            self._write(f"{name}.text_offsets", side.text_bytes + np.cumsum(sizes, dtype=np.int64))
            side.tokens += int(lengths.sum())
            side.text_bytes += int(sizes.sum())
            side.longest = max(side.longest, int(lengths.max(initial=0)))
        header.sentences += count
        if header.directions:
            self._write(_DIRECTIONS, np.full(count, direction, "<u2"))
        if header.lines and lines is not None:
            self._write(_LINES, lines.astype("<i8", copy=False))
        if header.links is not None and links is not None:
            words, counts = links
            self._write(_LINKS, words.astype("<u2"))
            self._write(_LINK_OFFSETS, header.links + np.cumsum(counts))
            header.links += int(counts.sum())

    def _write(self, name: str, values: NDArray[np.generic] | bytes) -> None:
        data = values if isinstance(values, bytes) else np.ascontiguousarray(values).data
        self._files[name].write(data)
        self._header.crc32[name] = zlib.crc32(data, self._header.crc32.get(name, 0))

    def finish(self, pairs: int | None = None, previous: Integers | None = None) -> None:
        """Brings everything to the disk; the header comes last.

        Args:
            pairs: In a store of documents, how many of the sentences, the first, are pairs of their own.
            previous: Likewise `[sentences]`, the sentence in front of each in its document; -1: none.
        """
        if previous is not None:
            self._write(_PREVIOUS, previous.astype("<i8", copy=False))
            self._header.pairs = pairs
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
            file.close()
        header = self._header.model_dump_json(indent=1, exclude_none=True)
        (self._folder / HEADER).write_text(header + "\n")


@dataclass(frozen=True)
class Sentences:
    """Sentences as token numbers, one after the other.

    Attributes:
        tokens: `[all tokens]`, no special ones.
        lengths: `[sentences]`: tokens of each, special ones not counted.
        offsets: `[sentences]` or one more: where each begins in `tokens`.
    """

    tokens: Integers
    lengths: Integers
    offsets: Integers

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Sentences:
        """The sentences of lists of token numbers."""
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
    """One side of a store; the arrays are memory-mapped.

    Attributes:
        text_bytes: `[all bytes]` of the lines.
        text_offsets: `[sentences + 1]`: where each begins in them.
        vocabulary: Entries of the vocabulary that the tokens are numbers of.
        longest: Tokens of the longest sentence.
    """

    text_bytes: Integers
    text_offsets: Integers
    vocabulary: int
    longest: int

    def take_lengths(self, lines: Integers) -> Integers:
        """The lengths of some sentences, in memory."""
        return self.lengths[lines]

    def take(self, lines: Integers) -> Sentences:
        """Copies some sentences into memory: number i of the result is sentence `lines[i]`.

        Ascending lines are read fastest: the files are gone through once.
        """
        tokens, lengths = [self.tokens[:0]], [self.lengths[:0]]
        for first in range(0, len(lines), _AT_ONCE):
            chunk, sizes = self.gather(lines[first : first + _AT_ONCE])
            tokens.append(chunk.astype(self.tokens.dtype))
            lengths.append(sizes.astype(self.lengths.dtype))
        joined = np.concatenate(lengths)
        offsets = np.cumsum(joined, dtype=np.int64) - joined
        return Sentences(np.concatenate(tokens), joined, offsets)

    def text(self, line: int) -> str:
        """The raw line."""
        start, stop = self.text_offsets[line : line + 2].tolist()
        return self.text_bytes[start:stop].tobytes().decode()


class TokenStore:
    """Sentence pairs of a folder that `StoreWriter` wrote.

    Args:
        folder: The folder.
        parts: The corpora of the store and how often an epoch reads them; default: all of it, once.

    Attributes:
        source_side: The sources.
        target_side: The targets.
        directions: `[sentences]`: the direction of each, a place in `Languages.directions`; None with one.
        lines: `[sentences]`: the line of each in its corpus, from 1; None where it was not kept.
        previous: `[sentences]`: the sentence in front of each in its document, or -1; None without documents.
            Behind the pairs there are sentences that are context alone.
        packed: Whether the targets are blocks of a text of one side, each behind the token before it.

    Raises:
        DataError: a file is missing, or its size is not what the header says.
        OSError: a file cannot be opened.
    """

    def __init__(self, folder: Path, parts: Sequence[Part] = ()) -> None:
        self.folder = folder
        header = _read_header(folder / HEADER)
        self._pairs = header.sentences if header.pairs is None else header.pairs
        self._sums = header.crc32
        self._maps: dict[str, mmap.mmap] = {}
        self._arrays = {name: self._opened(name, *described) for name, described in header.files().items()}
        self.source_side = self._side("source", header.source)
        self.target_side = self._side("target", header.target)
        self.directions = self._arrays.get(_DIRECTIONS)
        self.lines = self._arrays.get(_LINES)
        self.previous = self._arrays.get(_PREVIOUS)
        self.packed = header.packed
        self.parts = tuple(parts) or (Part(0, self._pairs),)

    def _opened(self, name: str, kind: str, count: int) -> Integers:
        path, dtype = self.folder / name, np.dtype(kind)
        try:
            with open_regular(path) as file:
                size = os.fstat(file.fileno()).st_size
                if size != count * dtype.itemsize:
                    raise DataError(f"{path}: damaged: {size} bytes where {count * dtype.itemsize} belong")
                if size:
                    self._maps[name] = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        except FileNotFoundError:
            raise DataError(f"{path}: the file is missing") from None
        return np.frombuffer(self._maps.get(name, b""), dtype)

    def _side(self, side: str, header: _SideHeader) -> StoreSide:
        names = [f"{side}.{name}" for name in _SIDE_FILES]
        tokens, lengths, offsets, text, text_offsets = (self._arrays[name] for name in names)
        return StoreSide(tokens, lengths, offsets, text, text_offsets, header.vocabulary, header.longest)

    @property
    def nbytes(self) -> int:
        """Bytes of the files."""
        return sum(array.nbytes for array in self._arrays.values())

    def check(self) -> None:
        """Compares all files with their checksums; a DataError where one is damaged."""
        for name, mapped in self._maps.items():
            found = zlib.crc32(mapped)
            if found != self._sums.get(name, found):
                raise DataError(f"{self.folder / name}: damaged: it is not what was written")

    def __len__(self) -> int:
        return self._pairs

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens of the sources and of the targets of all pairs, special ones not counted."""
        source, target = (int(side.offsets[self._pairs]) for side in (self.source_side, self.target_side))
        return source, target

    def word_links(self, line: int) -> NDArray[np.int64]:
        """Words of source and target that belong together, `[links, 2]`, from 0; sorted."""
        start, stop = (2 * self._arrays[_LINK_OFFSETS][line : line + 2]).tolist()
        return self._arrays[_LINKS][start:stop].astype(np.int64).reshape(-1, 2)

    def source_text(self, line: int) -> str:
        """The raw source line of a pair."""
        return self.source_side.text(line)

    def target_text(self, line: int) -> str:
        """The raw target line of a pair."""
        return self.target_side.text(line)


def _read_header(path: Path) -> _StoreHeader:
    try:
        return _StoreHeader.model_validate_json(read_regular(path))
    except FileNotFoundError:
        raise DataError(f"{path}: the file is missing") from None
    except ValidationError:
        raise DataError(f"{path}: damaged, or written by another version of deepwire") from None
