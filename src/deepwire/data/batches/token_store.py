"""Segmented sentence pairs on disk, memory-mapped: a corpus may be larger than memory."""

from __future__ import annotations

import json
import mmap
import os
import zlib
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Literal, NamedTuple, Self

import numpy as np
from numpy.typing import NDArray

from deepwire.data.batches.epoch_order import Part
from deepwire.data.subwords.base import number_type
from deepwire.errors import DataError
from deepwire.io.regular_files import open_regular, read_regular

Integers = NDArray[np.integer]
Side = Literal["source", "target"]
Kind = np.dtype[np.integer]

HEADER = "store.json"
SIDES: tuple[Side, Side] = ("source", "target")
SIDE_FILES = ("tokens", "lengths", "offsets", "text", "text_offsets")
DIRECTIONS, LINES, PREVIOUS = "pair.directions", "pair.lines", "pair.previous"
LINKS, LINK_OFFSETS = "pair.links", "pair.link_offsets"
_FORMAT, _OLD_FORMAT = 3, 2
"""3: with a checksum of each file in the header. In 2 they are in a file of their own, which is not read."""
_PLACES = np.dtype("<i8")
_KINDS: dict[str, Kind] = {"<u2": np.dtype("<u2"), "<u4": np.dtype("<u4")}
_SIDE_NUMBERS = ("vocabulary", "tokens", "text_bytes", "longest")
_AT_ONCE, _LENGTHS_AT_ONCE = 2048, 16384
"""Sentences that are copied between two times of giving pages back."""
_CHECKED_AT_ONCE = 1 << 20


class Links(NamedTuple):
    """Which words of some pairs belong together."""

    words: Integers
    """`[2 * links]`: of each link the word of the source and that of the target, from 0."""
    sizes: Integers
    """`[pairs]`: links of each."""


class TokenBlock(NamedTuple):
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
    def of(cls, ids: Sequence[Sequence[int]], texts: Sequence[str]) -> TokenBlock:
        """A block of segmented lines and the lines."""
        sentences, lines = Sentences.of(ids), [text.encode() for text in texts]
        return cls(
            sentences.tokens,
            sentences.lengths,
            b"".join(lines),
            np.fromiter(map(len, lines), np.int64, len(lines)),
        )


@dataclass
class SideHeader:
    """One side of a store."""

    dtype: Kind
    """The type of the tokens."""
    vocabulary: int
    """Entries of the vocabulary."""
    tokens: int = 0
    text_bytes: int = 0
    longest: int = 0
    """Tokens of the longest sentence."""


class StoreHeader(NamedTuple):
    """How many pairs a store has, its sides, and which files there are beside those of the sides."""

    sentences: int
    sides: Mapping[Side, SideHeader]
    directions: bool
    lines: bool
    pairs: int | None = None
    """In a store of documents: how many of the sentences are pairs; those behind them are context alone."""
    packed: bool = False
    """Whether the targets are blocks of a text of one side."""
    links: int | None = None
    """In a store with alignments: how many links of words all pairs have."""
    sums: Mapping[str, int] = {}
    """CRC-32 of each file."""

    @classmethod
    def read(cls, path: Path) -> StoreHeader:
        """Read what `write` wrote.

        Raises:
            DataError: the file is missing, damaged, or of another version.
            OSError: it cannot be read.
        """
        try:
            header = json.loads(read_regular(path))
            if header["format"] not in (_FORMAT, _OLD_FORMAT):
                raise DataError(f"{path}: written by another version of deepwire")
            sides = {
                side: SideHeader(
                    _KINDS[header[side]["dtype"]],
                    **{name: int(header[side][name]) for name in _SIDE_NUMBERS},
                )
                for side in SIDES
            }
            return cls(
                int(header["sentences"]),
                sides,
                directions=bool(header["directions"]),
                lines=bool(header["lines"]),
                pairs=int(header["pairs"]) if "pairs" in header else None,
                packed=bool(header.get("packed", False)),
                links=int(header["links"]) if "links" in header else None,
                sums={str(name): int(value) for name, value in header.get("crc32", {}).items()},
            )
        except FileNotFoundError:
            raise DataError(f"{path}: the file is missing") from None
        except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
            raise DataError(f"{path}: damaged: not the header of a token store") from None

    def write(self, path: Path) -> None:
        """Write it."""
        header: dict[str, object] = {"format": _FORMAT, "sentences": self.sentences}
        header |= {name: {**asdict(side), "dtype": side.dtype.str} for name, side in self.sides.items()}
        header |= {"directions": self.directions, "lines": self.lines, "crc32": self.sums}
        header |= {} if self.pairs is None else {"pairs": self.pairs}
        header |= {"packed": True} if self.packed else {}
        header |= {} if self.links is None else {"links": self.links}
        path.write_text(json.dumps(header, indent=1) + "\n")

    def files(self) -> dict[str, tuple[Kind, int]]:
        """Type and number of the elements of each file."""
        files: dict[str, tuple[Kind, int]] = {}
        ends = self.sentences + 1
        for side, header in self.sides.items():
            files |= {
                f"{side}.tokens": (header.dtype, header.tokens),
                f"{side}.lengths": (np.dtype("<i4"), self.sentences),
                f"{side}.offsets": (_PLACES, ends),
                f"{side}.text": (np.dtype("u1"), header.text_bytes),
                f"{side}.text_offsets": (_PLACES, ends),
            }
        if self.directions:
            files[DIRECTIONS] = (np.dtype("<u2"), self.sentences)
        if self.lines:
            files[LINES] = (_PLACES, self.sentences)
        if self.pairs is not None:
            files[PREVIOUS] = (_PLACES, self.sentences)
        if self.links is not None:
            files |= {LINKS: (np.dtype("<u2"), 2 * self.links), LINK_OFFSETS: (_PLACES, ends)}
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
        self._folder, self._packed = folder, packed
        self._sides = [SideHeader(number_type(size), size) for size in (source_size, target_size)]
        self._sentences, self._links = 0, 0
        self._files: dict[str, BinaryIO] = {}
        self._sums: dict[str, int] = {}
        names = [f"{side}.{name}" for side in SIDES for name in SIDE_FILES]
        wanted = {
            DIRECTIONS: directions,
            LINES: lines,
            PREVIOUS: documents,
            LINKS: aligned,
            LINK_OFFSETS: aligned,
        }
        try:
            for name in [*names, *(name for name, is_wanted in wanted.items() if is_wanted)]:
                self._files[name] = self._open(name)
                self._sums[name] = 0
                if name.endswith("offsets"):
                    self._write(name, np.zeros(1, _PLACES))
        except OSError:
            self.__exit__(None, None, None)
            raise

    def _open(self, name: str) -> BinaryIO:
        return (self._folder / name).open("wb", 1 << 20)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
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
        """Append sentence pairs, all of one direction; `lines` are the numbers of their lines."""
        for side, written, block in zip(SIDES, self._sides, (source, target), strict=True):
            lengths, sizes = (np.asarray(values, np.int64) for values in (block.lengths, block.text_sizes))
            self._write(f"{side}.tokens", block.tokens.astype(written.dtype, copy=False))
            self._write(f"{side}.lengths", lengths.astype("<i4"))
            self._write(f"{side}.offsets", written.tokens + np.cumsum(lengths))
            self._write(f"{side}.text", block.text)
            self._write(f"{side}.text_offsets", written.text_bytes + np.cumsum(sizes))
            written.tokens += int(lengths.sum())
            written.text_bytes += int(sizes.sum())
            written.longest = max(written.longest, int(lengths.max(initial=0)))
        self._sentences += len(source.lengths)
        if DIRECTIONS in self._files:
            self._write(DIRECTIONS, np.full(len(source.lengths), direction, "<u2"))
        if LINES in self._files and lines is not None:
            self._write(LINES, lines.astype(_PLACES, copy=False))
        if LINKS in self._files and links is not None:
            self._write(LINKS, links.words.astype("<u2"))
            self._write(LINK_OFFSETS, self._links + np.cumsum(links.sizes))
            self._links += int(links.sizes.sum())

    def _write(self, name: str, values: NDArray[np.generic] | bytes) -> None:
        data = values if isinstance(values, bytes) else values.tobytes()
        self._files[name].write(data)
        self._sums[name] = zlib.crc32(data, self._sums[name])

    def finish(self, pairs: int | None = None, previous: Integers | None = None) -> None:
        """Bring everything to the disk; the header comes last.

        Args:
            pairs: In a store of documents, how many of the sentences, the first, are pairs of their own.
            previous: Likewise `[sentences]`, the sentence in front of each in its document; -1: none.
        """
        if previous is not None:
            for start in range(0, len(previous), _LENGTHS_AT_ONCE):
                self._write(PREVIOUS, previous[start : start + _LENGTHS_AT_ONCE].astype(_PLACES, copy=False))
        for file in self._files.values():
            file.flush()
            os.fsync(file.fileno())
            file.close()
        header = StoreHeader(
            self._sentences,
            dict(zip(SIDES, self._sides, strict=True)),
            directions=DIRECTIONS in self._files,
            lines=LINES in self._files,
            pairs=pairs,
            packed=self._packed,
            links=self._links if LINKS in self._files else None,
            sums=self._sums,
        )
        header.write(self._folder / HEADER)


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
        """Lists of token numbers."""
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

    text_bytes: Integers
    text_offsets: Integers
    vocabulary: int
    """Entries of the vocabulary that the tokens are numbers of."""
    longest: int
    """Tokens of the longest sentence."""
    maps: Sequence[mmap.mmap] = field(repr=False)
    """The maps of the files of the arrays."""

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
            chunk, sizes = self.gather(lines[first : first + _AT_ONCE])
            tokens.append(chunk.astype(self.tokens.dtype))
            lengths.append(sizes.astype(self.lengths.dtype))
            self.release()
        joined = np.concatenate(lengths)
        offsets = np.cumsum(joined, dtype=np.int64) - joined
        return Sentences(np.concatenate(tokens), joined, offsets)

    def release(self) -> None:
        """Give back the pages that were read; they stay in the system's cache as long as it has room."""
        for mapped in self.maps:
            if hasattr(mmap, "MADV_DONTNEED"):
                mapped.madvise(mmap.MADV_DONTNEED)

    def text(self, line: int) -> str:
        """The raw line."""
        start, stop = self.text_offsets[line : line + 2].tolist()
        return self.text_bytes[start:stop].tobytes().decode()


class TokenStore:
    """Sentence pairs of a folder that `StoreWriter` wrote.

    Args:
        folder: The folder.
        parts: The corpora of the store and how often an epoch reads them; default: all of it, once.

    Raises:
        DataError: a file is missing, or its size is not what the header says.
        OSError: a file cannot be opened.
    """

    def __init__(self, folder: Path, parts: Sequence[Part] = ()) -> None:
        self.folder = folder
        header = StoreHeader.read(folder / HEADER)
        self._pairs = header.sentences if header.pairs is None else header.pairs
        self._sums = header.sums
        self._maps: dict[str, mmap.mmap] = {}
        self._arrays = {name: self._opened(name, *described) for name, described in header.files().items()}
        self.source_side, self.target_side = (self._side(side, header.sides[side]) for side in SIDES)
        self.directions = self._arrays.get(DIRECTIONS)
        """`[sentences]`: the direction of each, a place in `Languages.directions`; None with one."""
        self.lines = self._arrays.get(LINES)
        """`[sentences]`: the line of each in its corpus, from 1; None where it was not kept."""
        self.previous = self._arrays.get(PREVIOUS)
        """`[sentences]`: the sentence in front of each in its document, or -1; None without documents. Behind
        the pairs there are sentences that are context alone."""
        self.packed = header.packed
        """Whether the targets are blocks of a text of one side, each behind the token before it."""
        self.parts = tuple(parts) or (Part(0, self._pairs),)

    def _opened(self, name: str, dtype: Kind, count: int) -> Integers:
        path = self.folder / name
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

    def _side(self, side: Side, header: SideHeader) -> StoreSide:
        names = [f"{side}.{name}" for name in SIDE_FILES]
        tokens, lengths, offsets, text, text_offsets = (self._arrays[name] for name in names)
        maps = [self._maps[name] for name in names if name in self._maps]
        return StoreSide(
            tokens, lengths, offsets, text, text_offsets, header.vocabulary, header.longest, maps
        )

    @property
    def nbytes(self) -> int:
        """Bytes of the files."""
        return sum(array.nbytes for array in self._arrays.values())

    def check(self) -> None:
        """Compare all files with their checksums.

        Raises:
            DataError: a file is damaged.
        """
        for name, mapped in self._maps.items():
            found = 0
            for start in range(0, len(mapped), _CHECKED_AT_ONCE):
                found = zlib.crc32(mapped[start : start + _CHECKED_AT_ONCE], found)
            if found != self._sums.get(name, found):
                raise DataError(f"{self.folder / name}: damaged: it is not what was written")
            if hasattr(mmap, "MADV_DONTNEED"):
                mapped.madvise(mmap.MADV_DONTNEED)

    def __len__(self) -> int:
        return self._pairs

    @property
    def tokens(self) -> tuple[int, int]:
        """Tokens of the sources and of the targets of all pairs, special ones not counted."""
        source, target = (int(side.offsets[self._pairs]) for side in (self.source_side, self.target_side))
        return source, target

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

    def word_links(self, line: int) -> NDArray[np.int64]:
        """Words of source and target that belong together, `[links, 2]`, from 0; sorted."""
        start, stop = (2 * self._arrays[LINK_OFFSETS][line : line + 2]).tolist()
        return self._arrays[LINKS][start:stop].astype(np.int64).reshape(-1, 2)

    def source_text(self, line: int) -> str:
        """The raw source line of a pair."""
        return self.source_side.text(line)

    def target_text(self, line: int) -> str:
        """The raw target line of a pair."""
        return self.target_side.text(line)
