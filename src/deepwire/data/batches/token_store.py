"""Segmented sentence pairs on disk, memory-mapped: a corpus may be larger than memory."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from types import TracebackType
from typing import BinaryIO, Generic, NamedTuple, Self, TypeVar

import numpy as np
from numpy.typing import NDArray

from deepwire.data.batches.epoch_order import Part
from deepwire.data.batches.stored_array import (
    DIRECTIONS,
    HEADER,
    LINES,
    LINK_OFFSETS,
    LINKS,
    PREVIOUS,
    SIDE_FILES,
    SIDES,
    SUMS,
    BlockSums,
    Integers,
    Links,
    Side,
    SideHeader,
    StoredArray,
    StoreHeader,
    read_sums,
    write_sums,
)
from deepwire.data.subwords.base import number_type

Numbers = TypeVar("Numbers", Integers, StoredArray)

_AT_ONCE, _LENGTHS_AT_ONCE = 2048, 16384
"""Sentences that are copied between two times of giving pages back."""


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


class _SideWriter:
    def __init__(self, files: Mapping[str, BlockSums], vocabulary: int) -> None:
        self._files, self._vocabulary = files, vocabulary
        self._dtype = number_type(vocabulary)
        self.sentences, self._tokens, self._bytes, self._longest = 0, 0, 0, 0
        for name in ("offsets", "text_offsets"):
            self._write(name, np.zeros(1, "<i8"))

    def add(self, block: TokenBlock) -> None:
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

    def header(self) -> SideHeader:
        return SideHeader(self._dtype, self._tokens, self._bytes, self._vocabulary, self._longest)


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
        self._folder = folder
        self._files: list[BinaryIO] = []
        self._sums: list[BlockSums] = []
        self._sides: list[_SideWriter] = []
        self._directions, self._lines, self._previous = None, None, None
        self._packed, self._links = packed, 0
        self._link_files: tuple[BlockSums, ...] = ()
        try:
            for side, size in zip(SIDES, (source_size, target_size), strict=True):
                files = {name: self._summed(f"{side}.{name}") for name in SIDE_FILES}
                self._sides.append(_SideWriter(files, size))
            self._directions = self._summed(DIRECTIONS) if directions else None
            self._lines = self._summed(LINES) if lines else None
            self._previous = self._summed(PREVIOUS) if documents else None
            if aligned:
                self._link_files = self._summed(LINKS), self._summed(LINK_OFFSETS)
                self._link_files[1].write(np.zeros(1, "<i8").tobytes())
        except OSError:
            self.__exit__(None, None, None)
            raise

    def _summed(self, name: str) -> BlockSums:
        self._files.append(self._open(name))
        self._sums.append(BlockSums(self._files[-1]))
        return self._sums[-1]

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
        for file in self._files:
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
        for writer, block in zip(self._sides, (source, target), strict=True):
            writer.add(block)
        if self._directions is not None:
            self._directions.write(np.full(len(source.lengths), direction, "<u2").tobytes())
        if self._lines is not None and lines is not None:
            self._lines.write(lines.astype("<i8", copy=False).tobytes())
        if self._link_files and links is not None:
            ends = self._links + np.cumsum(links.sizes)
            self._links += int(links.sizes.sum())
            for file, values in zip(self._link_files, (links.words.astype("<u2"), ends), strict=True):
                file.write(values.tobytes())

    def finish(self, pairs: int | None = None, previous: Integers | None = None) -> None:
        """Bring everything to the disk; the header comes last.

        Args:
            pairs: In a store of documents, how many of the sentences, the first, are pairs of their own.
            previous: Likewise `[sentences]`, the sentence in front of each in its document; -1: none.
        """
        if self._previous is not None and previous is not None:
            for start in range(0, len(previous), _LENGTHS_AT_ONCE):
                part = previous[start : start + _LENGTHS_AT_ONCE]
                self._previous.write(part.astype("<i8", copy=False).tobytes())
        for file in self._files:
            file.flush()
            os.fsync(file.fileno())
            file.close()
        write_sums(self._folder / SUMS, [file.finish() for file in self._sums])
        header = StoreHeader(
            self._sides[0].sentences,
            {side: writer.header() for side, writer in zip(SIDES, self._sides, strict=True)},
            directions=self._directions is not None,
            lines=self._lines is not None,
            pairs=pairs,
            packed=self._packed,
            links=self._links if self._link_files else None,
        )
        header.write(self._folder / HEADER)


@dataclass(frozen=True)
class _Rows(Generic[Numbers]):
    tokens: Numbers
    """`[all tokens]`, no special ones."""
    lengths: Numbers
    """`[sentences]`: tokens of each, special ones not counted."""
    offsets: Numbers
    """`[sentences]` or one more: where each begins in `tokens`."""

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
class Sentences(_Rows[Integers]):
    """Sentences as token numbers, one after the other, in memory."""

    @classmethod
    def of(cls, rows: Sequence[Sequence[int]]) -> Sentences:
        """Lists of token numbers."""
        lengths = np.fromiter(map(len, rows), np.int64, len(rows))
        offsets = np.concatenate([[0], np.cumsum(lengths)])
        return cls(np.fromiter(chain.from_iterable(rows), np.int64, int(offsets[-1])), lengths, offsets)


@dataclass(frozen=True)
class StoreSide(_Rows[StoredArray]):
    """One side of a store; the arrays are memory-mapped, and checked as they are read."""

    text_bytes: StoredArray
    text_offsets: StoredArray
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
            chunk, sizes = self.gather(lines[first : first + _AT_ONCE])
            tokens.append(chunk.astype(self.tokens.dtype))
            lengths.append(sizes.astype(self.lengths.dtype))
            self.release()
        joined = np.concatenate(lengths)
        offsets = np.cumsum(joined, dtype=np.int64) - joined
        return Sentences(np.concatenate(tokens), joined, offsets)

    def release(self) -> None:
        """Give back the pages that were read; they stay in the system's cache as long as it has room."""
        for array in (self.tokens, self.lengths, self.offsets, self.text_bytes, self.text_offsets):
            array.release()

    def text(self, line: int) -> str:
        """The raw line."""
        start, stop = self.text_offsets[line : line + 2].tolist()
        return self.text_bytes[start:stop].tobytes().decode()


class TokenStore:
    """Sentence pairs of a folder that `StoreWriter` wrote.

    A block of a file that is damaged is an error when something of it is read. The store is then useless: the
    text has to be prepared again.

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
        described = header.files()
        sums = read_sums(folder / SUMS, [count * dtype.itemsize for dtype, count in described.values()])
        self._arrays = {
            name: StoredArray(folder / name, dtype, count, block_sums, self._give_up)
            for (name, (dtype, count)), block_sums in zip(described.items(), sums, strict=True)
        }
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

    def _side(self, side: Side, header: SideHeader) -> StoreSide:
        tokens, lengths, offsets, text, text_offsets = (self._arrays[f"{side}.{name}"] for name in SIDE_FILES)
        return StoreSide(tokens, lengths, offsets, text, text_offsets, header.vocabulary, header.longest)

    @property
    def nbytes(self) -> int:
        """Bytes of the files."""
        return sum(array.nbytes for array in self._arrays.values())

    def check(self) -> None:
        """Check all of it now.

        Raises:
            DataError: a file is damaged.
        """
        for array in self._arrays.values():
            array.check()

    def _give_up(self) -> str:
        """See that nobody takes the store for usable; returns what the user can do."""
        try:
            (self.folder / HEADER).unlink(missing_ok=True)
        except OSError:
            return f"delete the folder {self.folder.parent}: the next run prepares it again"
        return "run the same command again: it prepares the text again"

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
    def source_lengths(self) -> StoredArray:
        """`[sentences]`: source tokens of each, special ones not counted."""
        return self.source_side.lengths

    @property
    def target_lengths(self) -> StoredArray:
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
