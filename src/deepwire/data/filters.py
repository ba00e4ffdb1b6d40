"""Filters for pairs of lines: the reason to drop each, block by block, and digests to find duplicates."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from itertools import chain

import numpy as np
from numpy.typing import NDArray

from deepwire.data.data_config import FilterConfig, TextConfig
from deepwire.data.parallel_map import ordered_map
from deepwire.data.text.corpus import Lines, RawBlock, Reader
from deepwire.data.text.files import ReadNotes
from deepwire.data.text.pairs import PairBlock, Texts, is_blank

Digests = NDArray[np.uint64]
Reasons = NDArray[np.uint8]
"""`[lines]`: why each is dropped, an index of `REASON_NAMES`; 0 keeps it."""


class DigestSet:
    """A set of 64-bit digests of texts: 8 bytes for each, 24 while it grows.

    Each new text collides with one of n others with probability n / 2^64: among a hundred million pairs, one
    pair is lost with probability 0.03 %. Digests are the same in every process, so results repeat.
    """

    def __init__(self) -> None:
        # Sorted runs, each more than twice as long as the next: few to search, and rarely merged.
        self._runs: list[Digests] = []

    def contains(self, digests: Digests) -> NDArray[np.bool_]:
        """`[digests]`: whether each was added before."""
        known = np.zeros(len(digests), np.bool_)
        for run in self._runs:
            places = np.searchsorted(run, digests)
            known |= run[np.minimum(places, len(run) - 1)] == digests
        return known

    def add(self, digests: Digests) -> NDArray[np.bool_]:
        """Adds digests; returns `[digests]` which are new, for equal ones only the first."""
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
"""Every reason to drop a pair, with its meaning."""
REASON_NAMES = ("", *REASONS)
"""The name of each reason id; 0 keeps a pair."""
REASON_IDS = {name: i for i, name in enumerate(REASON_NAMES)}
_NOT_CONTEXT = [REASON_IDS[name] for name in ("bad_utf8", "both_empty", "nul", "too_long")]
"""Lines dropped for these reasons end a document; those dropped for others are context of the next lines."""

RATIO_FREE_CHARACTERS = 20
"""The ratio is not checked where both sides are this short: "Ja." may translate "Yes, of course."."""
_LETTERS_PER_WIDE = 3
_WIDE = re.compile("[\u1100-\u11ff\u2e80-\ua4cf\uac00-\ud7ff\uf900-\ufaff\U00020000-\U0003ffff]")
"""Ideographs, kana, hangul: each stands for about three letters of an alphabet."""
_MULTIPLIER = np.uint64(0x9E3779B97F4A7C15)
SERIAL_BLOCKS = 96
"""Blocks filtered before worker processes start; about 200,000 pairs, below which they cost more than they
save."""


def pair_reasons(lines: Lines, filters: FilterConfig) -> Reasons:
    """The reason to drop each pair by itself; duplicates are found later.

    Lengths are in characters, so scripts without spaces are treated like others.
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
    reasons = np.select(list(drops.values()), [REASON_IDS[name] for name in drops], 0).astype(np.uint8)
    # Letters are at least as many as characters and at most as many as bytes: most pairs need no exact count.
    sizes = np.stack([side.sizes for side in lines.texts])
    suspects = (reasons == 0) & (sizes > lengths[::-1] * filters.max_ratio).any(axis=0)
    for place in np.flatnonzero(suspects).tolist():
        fewer, more = sorted((_letters(sides[0][place]), _letters(sides[1][place])))
        if more > RATIO_FREE_CHARACTERS and more > fewer * filters.max_ratio:
            reasons[place] = REASON_IDS["ratio"]
    if filters.drop_copies:
        same = np.fromiter(map(str.__eq__, *sides), np.bool_, count)
        reasons[same & (reasons == 0)] = REASON_IDS["copy"]
    for place, fault in lines.faults.items():
        reasons[place] = REASON_IDS[fault]
    return reasons


def text_reasons(lines: Lines, text: TextConfig) -> Reasons:
    """The reason to drop each line of a monolingual text; empty lines stay where they separate documents."""
    reasons = np.zeros(len(lines.targets), np.uint8)
    if text.unit != "documents":
        reasons[[is_blank(line) for line in lines.targets]] = REASON_IDS["empty"]
    for place, fault in lines.faults.items():
        reasons[place] = REASON_IDS[fault]
    return reasons


def _letters(text: str) -> int:
    """Length of `text` in letters of an alphabet: each wide letter counts as three."""
    if text.isascii():
        return len(text)
    return len(text) + (_LETTERS_PER_WIDE - 1) * len(_WIDE.findall(text))


@dataclass(frozen=True)
class FilteredBlock:
    """A block of a corpus and what is kept of it.

    Attributes:
        numbers: `[lines]`: line numbers.
        reasons: Why each line is dropped.
        pairs: The pairs that are kept.
        digests: `[pairs]`: equal for equal pairs; empty unless asked for.
        notes: Repairs made when reading.
        context_only: The dropped pairs that are context of later lines; None without documents.
        line_digests: `[lines]`: equal for lines that are equal but for spaces at the ends, 0 for empty ones;
            None unless digests and documents are asked for.
    """

    numbers: NDArray[np.int64]
    reasons: Reasons
    pairs: PairBlock
    digests: Digests
    notes: ReadNotes
    context_only: PairBlock | None = None
    line_digests: Digests | None = None

    def in_context(self, in_front: Digests) -> FilteredBlock:
        """With digests of pairs together with the line in front; `in_front` `[lines]` has those of lines."""
        return replace(self, digests=self.digests * _MULTIPLIER + in_front[self.reasons == 0])

    def drop(self, chosen: NDArray[np.bool_], reason: int) -> FilteredBlock:
        """The block without the chosen of its pairs."""
        if not chosen.any():
            return self
        reasons, kept = self.reasons.copy(), ~chosen
        reasons[np.flatnonzero(reasons == 0)[chosen]] = reason
        return replace(
            self,
            reasons=reasons,
            pairs=self.pairs.take(kept),
            digests=self.digests[kept] if len(self.digests) else self.digests,
            context_only=None
            if self.context_only is None
            else self.context_only.merged(self.pairs.take(chosen)),
        )


def filter_blocks(
    readers: Sequence[Reader],
    filters: FilterConfig | TextConfig,
    *,
    digests: bool,
    documents: bool = False,
) -> Iterator[FilteredBlock]:
    """Reads corpora and filters them block by block, without looking for duplicates.

    Many blocks are filtered on all cores; the result is the same for any number of cores.

    Args:
        readers: One for each corpus.
        filters: Which pairs to drop; a `TextConfig` for monolingual text.
        digests: Whether to compute digests of the pairs.
        documents: Whether to return dropped pairs that are context of others.

    Raises:
        DataError: A text cannot be read.
        ResourceError: A worker process died.
    """
    blocks = chain.from_iterable(reader.blocks() for reader in readers)
    arguments = (readers, filters, digests, documents)
    return ordered_map(_BlockFilter, arguments, blocks, serial=SERIAL_BLOCKS)


@dataclass
class _BlockFilter:
    readers: Sequence[Reader]
    filters: FilterConfig | TextConfig
    digests: bool
    documents: bool

    def __call__(self, block: RawBlock) -> FilteredBlock:
        notes = ReadNotes()
        lines = self.readers[block.corpus].parse(block, notes)
        if isinstance(self.filters, TextConfig):
            reasons = text_reasons(lines, self.filters)
        else:
            reasons = pair_reasons(lines, self.filters)
        kept = reasons == 0
        pairs = lines.take(kept, block.corpus)
        context_only = None
        if self.documents:
            # An empty source ends a document, also in translation, where there is no target to look at.
            blank = np.fromiter(map(is_blank, lines.sources), np.bool_, len(reasons))
            is_context = ~kept & ~np.isin(reasons, _NOT_CONTEXT) & ~blank
            context_only = lines.take(is_context, block.corpus)
        return FilteredBlock(
            np.arange(lines.first, lines.first + len(reasons)),
            reasons,
            pairs,
            _pair_digests(pairs.source, pairs.target) if self.digests else np.zeros(0, np.uint64),
            notes,
            context_only,
            _line_digests(lines) if self.documents and self.digests else None,
        )


def _pair_digests(source: Texts, target: Texts) -> Digests:
    return source.hashes() * _MULTIPLIER + target.hashes()


def _line_digests(lines: Lines) -> Digests:
    sides = [Texts.of_strings([text.strip() for text in side]) for side in (lines.sources, lines.targets)]
    empty = (sides[0].sizes == 0) & (sides[1].sizes == 0)
    return np.where(empty, np.uint64(0), _pair_digests(*sides))
