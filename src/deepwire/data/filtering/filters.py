"""Which pairs are dropped and why, decided block by block in any process; digests find duplicates later."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain, compress

import numpy as np
from numpy.typing import NDArray

from deepwire.data.data_config import FilterConfig, TextConfig
from deepwire.data.parallel_map import ordered_map
from deepwire.data.text.files import Raw, ReadNotes
from deepwire.data.text.pairs import Pair, PairBlock, Texts, is_blank
from deepwire.data.text.reader import Lines, RawBlock, Reader

Digests = NDArray[np.uint64]
Reasons = NDArray[np.uint8]
"""`[lines]`: why each is dropped, a place in `NAMES`; 0 keeps it."""


class DigestSet:
    """Remembers texts by 64-bit digests: 8 bytes for each, 24 while it grows.

    Two different texts are taken for equal with a chance of n / 2^64 each: among a hundred million pairs, one
    pair is lost with a chance of 0.03 %. The digests do not depend on the process, so results repeat.
    """

    def __init__(self) -> None:
        # Ascending runs, each more than twice as long as the next one: few to search, and merged seldom.
        self._runs: list[Digests] = []

    def __len__(self) -> int:
        return sum(map(len, self._runs))

    def contains(self, digests: Digests) -> NDArray[np.bool_]:
        """`[digests]`: whether each was added before."""
        known = np.zeros(len(digests), np.bool_)
        for run in self._runs:
            places = np.searchsorted(run, digests)
            known |= run[np.minimum(places, len(run) - 1)] == digests
        return known

    def add(self, digests: Digests) -> NDArray[np.bool_]:
        """Remembers digests; returns which of them are new, of equal ones the first only."""
        distinct, firsts = np.unique(digests, return_index=True)
        absent = ~self.contains(distinct)
        new = np.zeros(len(digests), np.bool_)
        new[firsts[absent]] = True
        run = distinct[absent]
        while self._runs and len(self._runs[-1]) <= 2 * len(run):
            run = np.sort(np.concatenate([self._runs.pop(), run]), kind="stable")
        if len(run):
            self._runs.append(run)
        return new


def digests_of(texts: Iterable[bytes]) -> Digests:
    """`[texts]`: 64 bits of BLAKE2b of each."""
    return np.frombuffer(b"".join([hashlib.blake2b(text, digest_size=8).digest() for text in texts]), "<u8")


REASONS = {
    "one_side_empty": "one side is empty or only spaces, the other is not",
    "both_empty": "both sides are empty or only spaces",
    "too_short": "a side has fewer than min_characters characters",
    "too_long": "a side is longer than max_characters or max_length",
    "ratio": "one side is more than max_ratio times as long as the other",
    "nul": "a side holds a NUL character",
    "bad_utf8": "a side is not UTF-8",
    "copy": "both sides are the same",
    "duplicate": "the same pair came before",
    "empty": "the line is empty or only spaces",
}
"""Every reason a pair can be dropped for, with what it means."""
NAMES = ("", *REASONS)
"""The reasons by their numbers; 0 keeps a pair."""
NUMBERS = {name: number for number, name in enumerate(NAMES)}
_ENDING_DOCUMENTS = [NUMBERS[name] for name in ("bad_utf8", "both_empty", "nul", "too_long")]
"""Lines dropped for another reason are still context of the lines behind them, if they have a source."""

RATIO_FREE_CHARACTERS = 20
"""Pairs with no longer side pass the ratio: "Ja." for "Yes, of course." is a translation."""
_WIDE_LETTERS = 3
_WIDE = re.compile("[\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]")
"""Ideographs, kana, hangul: letters that stand for about three of an alphabet."""
BLOCKS_ALONE = 96
"""About 200,000 pairs: with fewer, starting processes costs more than they save."""


def pair_reasons(lines: Lines, filters: FilterConfig) -> Reasons:
    """Decides about each pair by itself: everything but duplicates.

    Lengths are counted in characters, so that scripts without spaces are treated like others.
    """
    sides, lengths, count = (lines.sources, lines.targets), lines.lengths, len(lines.sources)
    blank = [np.fromiter(map(str.isspace, side), np.bool_, count) for side in sides] | (lengths == 0)
    shorter, longer = lengths.min(axis=0), lengths.max(axis=0)
    drops = {
        "both_empty": blank.all(axis=0),
        "one_side_empty": blank.any(axis=0),
        "too_long": longer > filters.max_characters,
        "too_short": shorter < filters.min_characters,
    }
    reasons = np.select(list(drops.values()), [NUMBERS[name] for name in drops], 0).astype(np.uint8)
    # Counting wide letters can change the ratio by 3 at most, and most pairs are far from the limit.
    suspects = (reasons == 0) & (longer * _WIDE_LETTERS > shorter * filters.max_ratio)
    for place in np.flatnonzero(suspects).tolist():
        least, most = sorted((_letters(sides[0][place]), _letters(sides[1][place])))
        if most > RATIO_FREE_CHARACTERS and most > least * filters.max_ratio:
            reasons[place] = NUMBERS["ratio"]
    if filters.drop_copies:
        same = np.fromiter(map(str.__eq__, *sides), np.bool_, count)
        reasons[same & (reasons == 0)] = NUMBERS["copy"]
    for place, fault in lines.faults.items():
        reasons[place] = NUMBERS[fault]
    return reasons


def text_reasons(lines: Lines, text: TextConfig) -> Reasons:
    """Decides about each line of a text of one side; empty lines stay where they bound documents."""
    reasons = np.zeros(len(lines.targets), np.uint8)
    if text.unit != "documents":
        reasons[[is_blank(line) for line in lines.targets]] = NUMBERS["empty"]
    for place, fault in lines.faults.items():
        reasons[place] = NUMBERS[fault]
    return reasons


def _letters(text: str) -> int:
    """Length of `text` in letters of an alphabet: each wide letter counts as three."""
    if text.isascii():
        return len(text)
    return len(text) + (_WIDE_LETTERS - 1) * len(_WIDE.findall(text))


@dataclass(frozen=True)
class FilteredBlock:
    """A block of a corpus, and what is to be kept of it.

    Attributes:
        numbers: `[lines]`: line numbers.
        reasons: Why each is dropped.
        pairs: The pairs that are kept.
        lengths: `[2, pairs]`: characters of the source and the target sides.
        digests: `[pairs]`: equal for equal pairs; empty where nobody wants them.
        notes: Repairs.
        dropped: The other pairs, where they are wanted.
        beside: The dropped pairs that are context of the lines behind them; None where nobody wants them.
    """

    numbers: NDArray[np.int64]
    reasons: Reasons
    pairs: PairBlock
    lengths: NDArray[np.int32]
    digests: Digests
    notes: ReadNotes
    dropped: list[Pair]
    beside: PairBlock | None = None

    def without(self, chosen: NDArray[np.bool_], reason: int, *, show: bool) -> FilteredBlock:
        """Drops chosen ones of the pairs that were kept so far."""
        if not chosen.any():
            return self
        reasons, kept = self.reasons.copy(), ~chosen
        reasons[np.flatnonzero(reasons == 0)[chosen]] = reason
        newly_dropped = [self.pairs[place] for place in np.flatnonzero(chosen).tolist()] if show else []
        return replace(
            self,
            reasons=reasons,
            pairs=self.pairs.take(kept),
            lengths=self.lengths[:, kept],
            digests=self.digests[kept] if len(self.digests) else self.digests,
            dropped=sorted([*self.dropped, *newly_dropped]),
            beside=None if self.beside is None else self.beside.merged(self.pairs.take(chosen)),
        )


def filter_blocks(
    readers: Sequence[Reader],
    filters: FilterConfig | TextConfig,
    *,
    digests: bool,
    show_dropped: bool = False,
    documents: bool = False,
) -> Iterator[FilteredBlock]:
    """Reads corpora, and decides about each pair all that can be decided without the others.

    All cores work, where there are many blocks; the result is the same for any number of them.

    Args:
        readers: Of each corpus; their indices are their places in this list.
        filters: Which pairs to drop; or which text of one side they read.
        digests: Whether digests of the pairs are wanted.
        show_dropped: Whether dropped pairs are wanted.
        documents: Whether those of them that are context of others are wanted.

    Raises:
        DataError: a text cannot be read.
        ResourceError: a helping process died.
    """
    corpora = (reader.blocks() for reader in readers)
    blocks = chain.from_iterable(map(_with_lines_before, corpora) if digests and documents else corpora)
    wanted = (readers, filters, digests, show_dropped, documents)
    return ordered_map(_BlockFilter, wanted, blocks, alone=BLOCKS_ALONE)


def _with_lines_before(blocks: Iterator[RawBlock]) -> Iterator[RawBlock]:
    """The blocks of a corpus; all but the first have the last line of the one in front."""
    before: tuple[Raw, ...] = ()
    for block in blocks:
        yield block._replace(before=before)
        ends = [raws[-1] for raws in block.files]
        before = tuple(Raw(raw.data.rpartition(b"\n")[2], raw.too_long, 1) for raw in ends)


@dataclass
class _BlockFilter:
    readers: Sequence[Reader]
    filters: FilterConfig | TextConfig
    digests: bool
    show_dropped: bool
    documents: bool

    def __call__(self, block: RawBlock) -> FilteredBlock:
        notes = ReadNotes()
        lines = self.readers[block.corpus].parse(block, notes)
        if isinstance(self.filters, TextConfig):
            reasons = text_reasons(lines, self.filters)
        else:
            reasons = pair_reasons(lines, self.filters)
        kept = reasons == 0
        pairs = _block_of(lines, kept, block.corpus)
        # Where there is no source, a document ends: so it does where the source alone is translated.
        blank = np.fromiter(map(is_blank, lines.sources), np.bool_, len(reasons))
        beside = ~kept & ~np.isin(reasons, _ENDING_DOCUMENTS) & ~blank
        dropped = []
        if self.show_dropped:
            dropped = [
                Pair(lines.first + place, lines.sources[place], lines.targets[place], block.corpus)
                for place in np.flatnonzero(~kept).tolist()
            ]
        return FilteredBlock(
            np.arange(lines.first, lines.first + len(reasons)),
            reasons,
            pairs,
            lines.lengths[:, kept],
            self._digests_of(block, lines, pairs, kept) if self.digests else digests_of([]),
            notes,
            dropped,
            _block_of(lines, beside, block.corpus) if self.documents else None,
        )

    def _digests_of(
        self, block: RawBlock, lines: Lines, pairs: PairBlock, kept: NDArray[np.bool_]
    ) -> Digests:
        """Digests of the kept pairs; with documents, together with the pair in front of each."""
        sources, targets = pairs.source.lines(), pairs.target.lines()
        if self.documents:
            first = self._line_before(block)
            before = [
                (lines.sources[place - 1].strip(), lines.targets[place - 1].strip()) if place else first
                for place in np.flatnonzero(kept).tolist()
            ]
            in_front = ["\n".join((*pair, "")).encode() if any(pair) else b"" for pair in before]
            sources = [front + source for front, source in zip(in_front, sources, strict=True)]
        return digests_of([source + b"\n" + target for source, target in zip(sources, targets, strict=True)])

    def _line_before(self, block: RawBlock) -> tuple[str, str]:
        """The pair in front of a block, which another block counts; empty where there is none."""
        if not block.before:
            return "", ""
        alone = RawBlock(block.corpus, block.first - 1, tuple((raw,) for raw in block.before), block.layout)
        lines = self.readers[block.corpus].parse(alone, ReadNotes())
        # The header of a table is no pair.
        return (lines.sources[0].strip(), lines.targets[0].strip()) if lines.sources else ("", "")


def _block_of(lines: Lines, chosen: NDArray[np.bool_], corpus: int) -> PairBlock:
    sources, targets = (
        Texts.of([text.encode() for text in compress(side, chosen.tolist())])
        for side in (lines.sources, lines.targets)
    )
    return PairBlock(corpus, lines.first + np.flatnonzero(chosen), sources, targets)
