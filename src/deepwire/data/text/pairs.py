"""Sentence pairs: one by one, many as bytes that are cheap to hand on, and a random sample of a stream."""

from __future__ import annotations

import math
import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray


class Pair(NamedTuple):
    """A sentence and its translation.

    Attributes:
        line: Line number in its file, from 1.
        source: The sentence.
        target: Its translation.
        corpus: Index of the corpus in `DataConfig.train`.
        fault: Why the pair cannot be used at all (`bad_utf8`, `nul`, `too_long`), or empty.
    """

    line: int
    source: str
    target: str
    corpus: int
    fault: str = ""


class Texts(NamedTuple):
    """Lines in UTF-8, one after the other without line ends, and the bytes of each, `[lines]`."""

    data: bytes
    sizes: NDArray[np.int32]

    @classmethod
    def of(cls, lines: Sequence[bytes]) -> Self:
        """These lines, joined."""
        return cls(b"".join(lines), np.fromiter(map(len, lines), np.int32, len(lines)))

    @classmethod
    def of_strings(cls, lines: Sequence[str]) -> Self:
        """These lines, which hold no `\\n`, joined; faster than encoding each."""
        data = "\n".join([*lines, ""]).encode()
        ends = np.flatnonzero(np.frombuffer(data, np.uint8) == ord("\n"))
        return cls(data.replace(b"\n", b""), (np.diff(ends, prepend=-1) - 1).astype(np.int32))

    def lines(self) -> list[bytes]:
        """Each line."""
        ends = np.cumsum(self.sizes, dtype=np.int64).tolist()
        data = self.data
        return [data[start:end] for start, end in zip([0, *ends[:-1]], ends, strict=True)] if ends else []

    def strings(self) -> list[str]:
        """Each line as text."""
        return [line.decode() for line in self.lines()]

    def take(self, chosen: NDArray[np.bool_]) -> Texts:
        """Some of the lines."""
        if chosen.all():
            return self
        letters = np.frombuffer(self.data, np.uint8)[np.repeat(chosen, self.sizes)]
        return Texts(letters.tobytes(), self.sizes[chosen])

    def hashes(self) -> NDArray[np.uint64]:
        """`[lines]`: `hashes` of the lines."""
        return hashes(self.data, np.cumsum(self.sizes, dtype=np.int64) - self.sizes, self.sizes)


def hashes(
    data: bytes, starts: NDArray[np.int64], sizes: NDArray[np.integer], key: int = 0
) -> NDArray[np.uint64]:
    """64 bits for each of some parts of UTF-8 text; only chance, or who knows the key, makes two alike."""
    # Each part is read as integers of eight bytes; hashes of these and their numbers are summed.
    counts = sizes // 8 + 1
    ends = np.cumsum(counts)
    numbers = np.arange(counts.sum()) - np.repeat(ends - counts, counts)
    read: NDArray[np.uint64] = np.ndarray((len(data) + 1,), "<u8", data + bytes(8), strides=(1,))
    read = read[np.repeat(starts, counts) + 8 * numbers]
    read[ends - 1] &= (np.uint64(1) << (sizes % 8 * 8).astype(np.uint64)) - np.uint64(1)
    read ^= (numbers.astype(np.uint64) + np.uint64(key)) * np.uint64(0x9E3779B97F4A7C15)
    sums: NDArray[np.uint64] = np.add.reduceat(_mixed(read), ends - counts)
    return _mixed(sums ^ sizes.astype(np.uint64))


def _mixed(values: NDArray[np.uint64]) -> NDArray[np.uint64]:
    """The last step of MurmurHash3 (Appleby 2011): each bit of a value changes about half of the others."""
    for multiplier in np.array([0xFF51AFD7ED558CCD, 0xC4CEB9FE1A85EC53], np.uint64):
        values = (values ^ values >> np.uint64(33)) * multiplier
    return values ^ values >> np.uint64(33)


@dataclass(frozen=True)
class PairBlock(Sequence[Pair]):
    """Pairs of one corpus with ascending line numbers `[pairs]`; each is made when it is asked for."""

    corpus: int
    numbers: NDArray[np.int64]
    source: Texts
    target: Texts

    def __len__(self) -> int:
        return len(self.numbers)

    def __getitem__(self, place: int) -> Pair:  # type: ignore[override]  # no slices
        texts = []
        for side, ends in zip((self.source, self.target), self._ends, strict=True):
            end = int(ends[place])
            texts.append(side.data[end - int(side.sizes[place]) : end].decode())
        return Pair(int(self.numbers[place]), texts[0], texts[1], self.corpus)

    def take(self, chosen: NDArray[np.bool_]) -> PairBlock:
        """Some of the pairs."""
        if chosen.all():
            return self
        sides = self.source.take(chosen), self.target.take(chosen)
        return PairBlock(self.corpus, self.numbers[chosen], *sides)

    def merged(self, other: PairBlock) -> PairBlock:
        """These and other pairs of the corpus, by their lines."""
        numbers = np.concatenate([self.numbers, other.numbers])
        order = np.argsort(numbers)
        sources = [*self.source.lines(), *other.source.lines()]
        targets = [*self.target.lines(), *other.target.lines()]
        sides = (Texts.of([lines[place] for place in order.tolist()]) for lines in (sources, targets))
        return PairBlock(self.corpus, numbers[order], *sides)

    @cached_property
    def _ends(self) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        return np.cumsum(self.source.sizes, dtype=np.int64), np.cumsum(self.target.sizes, dtype=np.int64)


def is_blank(text: str) -> bool:
    """Whether a text is empty or only spaces."""
    return not text or text.isspace()


_LINE_BREAKS = re.compile(r"\r\n|[\n\r]")


def joined(text: str) -> str:
    """`text` with a space for each line break: LF, CR, or both as one."""
    return _LINE_BREAKS.sub(" ", text)


def plain(text: str) -> str:
    """`text` with a space for each line break and each NUL, which marks a damaged line here."""
    return joined(text).replace("\0", " ")


def without_surrogates(text: str) -> str:
    """Text without halves of surrogate pairs, which UTF-8 cannot hold; they become U+FFFD."""
    return text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class Reservoir:
    """A uniform random sample of a stream, a function of the seed and the stream alone.

    Algorithm L of Li (1994), "Reservoir-sampling algorithms of time complexity O(n(1 + log(N/n)))".
    """

    def __init__(self, size: int, seed: int) -> None:
        self._size, self._random = size, random.Random(seed)
        self.pairs: list[Pair] = []
        self._weight, self._next, self._count = 1.0, 0, 0

    def extend(self, pairs: Sequence[Pair]) -> None:
        """Takes the next pairs of the stream; only those that enter the sample are decoded."""
        while self._next < self._count + len(pairs):
            pair = pairs[self._next - self._count]
            if len(self.pairs) < self._size:
                self.pairs.append(pair)
            else:
                self.pairs[self._random.randrange(self._size)] = pair
            self._next += 1 if len(self.pairs) < self._size else self._skip()
        self._count += len(pairs)

    def _skip(self) -> int:
        self._weight *= math.exp(math.log(1.0 - self._random.random()) / self._size)
        # The weight reaches 1 only by rounding, where every pair would be taken.
        unseen = math.log1p(-min(self._weight, 1 - 1e-16))
        return int(math.log(1.0 - self._random.random()) / unseen) + 1

    def shuffled(self) -> list[Pair]:
        """The sample in random order, so that its first k pairs are a sample too."""
        return random.Random(len(self.pairs)).sample(self.pairs, len(self.pairs))
