"""Sentences, with their document context, put into the arrays of batches; and batches dealt to processes."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import accumulate, pairwise
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepwire.data.batches.epoch_order import Indices
from deepwire.data.batches.token_store import Integers, Sentences, StoreSide, TokenStore
from deepwire.data.context import NO_CONTEXT, ContextConfig, separator_of
from deepwire.data.languages import Languages
from deepwire.data.subwords.base import BOS, EOS, PAD, id_dtype
from deepwire.data.subwords.text_tokens import TextTokens, owners, words_of
from deepwire.errors import DataError

if TYPE_CHECKING:
    from deepwire.data.vocabulary import Vocabularies, Vocabulary


class ContextSide:
    """Sentences with as many of the latest previous ones as fit, each with the separator behind it.

    See `deepwire.data.context.in_front`.

    Args:
        side: The sentences.
        previous: `[sentences]`: the sentence in front of each, or -1.
        count: How many previous sentences there may be.
        most: Most subwords of a sentence with its context.
        separator: The number of the separator.
    """

    def __init__(self, side: StoreSide, previous: Integers, *, count: int, most: int, separator: int) -> None:
        self.side, self.separator = side, separator
        self._previous, self._count, self._most = previous, count, most

    def take_lengths(self, lines: Integers) -> Integers:
        """Tokens of some sentences with their contexts, and separators."""
        chain, taken = self._chain(lines)
        lengths: Integers = np.where(taken, self._lengths(chain) + 1, 0).sum(0)
        return lengths - 1  # a sentence has no separator behind itself

    def take(self, lines: Integers) -> Sentences:
        """Copies some sentences with their contexts into memory: number i of the result is `lines[i]`."""
        chain, taken = self._chain(lines)
        # The earliest first, and the sentence itself at the end.
        order, wanted = chain[::-1].T, taken[::-1].T
        pieces = self.side.take(order[wanted])
        behind = np.broadcast_to(np.arange(order.shape[1]) < order.shape[1] - 1, order.shape)[wanted]
        sizes = pieces.lengths.astype(np.int64) + behind
        tokens = np.full(int(sizes.sum()), self.separator, id_dtype(self.separator + 1))
        shifts = np.cumsum(behind) - behind
        tokens[np.arange(len(pieces.tokens)) + np.repeat(shifts, pieces.lengths)] = pieces.tokens
        lengths = np.bincount(np.nonzero(wanted)[0], sizes, len(lines)).astype(np.int64)
        return Sentences(tokens, lengths, np.cumsum(lengths) - lengths)

    def gather(self, lines: Integers) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Tokens of some sentences with their contexts, one after the other, and the length of each."""
        sentences = self.take(lines)
        return sentences.tokens.astype(np.int64), sentences.lengths.astype(np.int64)

    def in_front(self, line: int) -> list[int]:
        """The tokens in front of a sentence."""
        tokens = self.take(np.array([line])).tokens
        return [int(token) for token in tokens[: len(tokens) - int(self.side.lengths[line])]]

    def _lengths(self, chain: Integers) -> NDArray[np.int64]:
        return self.side.lengths[np.maximum(chain, 0).ravel()].astype(np.int64).reshape(chain.shape)

    def _chain(self, lines: Integers) -> tuple[NDArray[np.int64], NDArray[np.bool_]]:
        """`[1 + count, lines]`: each sentence, the one in front of it, and so on; and which are taken."""
        chain = [np.asarray(lines, np.int64)]
        for _ in range(self._count):
            known = chain[-1] >= 0
            before = np.full(len(lines), -1, np.int64)
            before[known] = self._previous[chain[-1][known]]
            chain.append(before)
        whole = np.stack(chain)
        there = whole >= 0
        fits = np.cumsum(np.where(there, self._lengths(whole) + 1, 0), 0) - 1 <= self._most
        taken = there & fits
        taken[0] = True
        return whole, taken


_TOLERANCE = 16
"""A share may begin this part of a share early or late where that spares cutting a batch."""
ROWS = 8
"""Rows come in multiples of this: see `whole_rows`."""


def whole_rows(rows: int) -> int:
    """So many rows or a few less: a multiple of 8 above 8.

    Matrix products are made ready for each shape that they meet, which takes about as long as a small one
    itself, and keeps memory (oneDNN's cache of 1,024 primitives). With any number of rows half of the shapes
    of a run would be met once or twice only; on GPUs, products in 16 bits want multiples of 8 too.
    """
    return rows if rows < ROWS else rows - rows % ROWS


class BatchPiece(NamedTuple):
    """Rows `start` to `stop` of a batch."""

    batch: int
    start: int
    stop: int


def partition_batches(batches: Sequence[tuple[int, int]], processes: int) -> list[list[BatchPiece]]:
    """Gives each process a stretch of the batches (rows, padded length), in their order, of about equal size.

    The rows of all batches are thought of in a line, which is cut into as many stretches as there are
    processes. A cut near the end of a batch is made there; any other cuts a batch in two. So a few large
    batches keep many processes busy, and a process has at most two more passes than its share has batches.
    With fewer rows than processes some get nothing.
    """
    # The bounds of the batches, in tokens and in rows.
    tokens = [0, *accumulate(rows * width for rows, width in batches)]
    starts = [0, *accumulate(rows for rows, _ in batches)]

    def cut(number: int) -> int:
        """The row, of all batches, where share `number` begins."""
        # In units of a `processes`-th of a token, so that all numbers are whole.
        wanted, tolerance = tokens[-1] * number, tokens[-1] // _TOLERANCE
        batch = bisect_right(tokens, wanted // processes, 1) - 1
        if batch == len(batches):
            return starts[-1]
        before, behind = wanted - tokens[batch] * processes, tokens[batch + 1] * processes - wanted
        if min(before, behind) <= tolerance:
            return starts[batch] if before <= behind else starts[batch + 1]
        rows, width = batches[batch]
        row = round(before / (width * processes))
        if rows >= ROWS * ROWS:  # with fewer, shares would be too unequal
            row = ROWS * round(row / ROWS)
        return starts[batch] + min(row, rows)

    return [
        [
            BatchPiece(batch, max(first, start) - start, min(last, stop) - start)
            for batch, (start, stop) in enumerate(pairwise(starts))
            if max(first, start) < min(last, stop)
        ]
        for first, last in pairwise([0, *map(cut, range(1, processes)), starts[-1]])
    ]


Column = int | NDArray[np.int64]
"""A symbol in front of every row: one for all, or `[B]`."""


@dataclass(frozen=True)
class Batch:
    """One forward pass; int64 arrays, padded with PAD on the right.

    Attributes:
        source: `[B, S]`: (BOS) (tag) w1..wk EOS.
        target_input: `[B, T]`: BOS or a tag, then w1..wk.
        target_output: `[B, T]`: w1..wk EOS.
        target_tokens: Tokens of `target_output` that are not PAD.
        lines: `[B]`: numbers of the pairs in the store.
        source_languages: `[B]`: index of the source language of each row; None with one direction.
        target_languages: `[B]`: index of the target language of each row; None with one direction.
        links: `[links, 3]`: row, place in `target_output` and in `source` of subwords that belong together.
    """

    source: NDArray[np.int64]
    target_input: NDArray[np.int64]
    target_output: NDArray[np.int64]
    target_tokens: int
    lines: NDArray[np.int64]
    source_languages: NDArray[np.int64] | None = None
    target_languages: NDArray[np.int64] | None = None
    links: NDArray[np.int64] | None = None


_SPACE, _JOINER = "\u2581", "@@"

Rows = tuple[NDArray[np.int64], NDArray[np.int64]]
"""The tokens of all rows one after the other, and the length of each row."""


class SubwordLinks:
    """Makes links of subwords of the pairs of a store: two belong together if they are of words that do."""

    def __init__(self, store: TokenStore, vocabularies: Vocabularies) -> None:
        self._store = store
        self._sides = _WordFinder(vocabularies.source), _WordFinder(vocabularies.target)

    def of(self, source: Rows, target: Rows, lines: Indices) -> NDArray[np.int64]:
        """Row, target subword and source subword of each link of a batch, `[links, 3]`; none comes twice."""
        ends = np.cumsum(source[1]), np.cumsum(target[1])
        subword_links: list[tuple[int, int, int]] = []
        for row, line in enumerate(lines.tolist()):
            links = self._store.word_links(line).tolist()
            if not links:
                continue
            texts = self._store.source_text(line), self._store.target_text(line)
            first, second = (
                finder.subwords(side[0][end[row] - side[1][row] : end[row]].tolist(), text)
                for finder, side, end, text in zip(self._sides, (source, target), ends, texts, strict=True)
            )
            subword_links += sorted(
                {
                    (row, written, read)
                    for source_word, target_word in links
                    for written in second.get(target_word, ())
                    for read in first.get(source_word, ())
                }
            )
        return np.array(subword_links, np.int64).reshape(-1, 3)


class _WordFinder:
    """Tells which subwords each word of a text has."""

    def __init__(self, vocabulary: Vocabulary) -> None:
        self._vocabulary = vocabulary
        pieces = vocabulary.pieces(range(vocabulary.size))
        spaced = any(piece.startswith(_SPACE) for piece in pieces)
        self._inside = [spaced and not piece.startswith(_SPACE) for piece in pieces]
        self._joined = [not spaced and piece.endswith(_JOINER) for piece in pieces]

    def subwords(self, ids: Sequence[int], text: str) -> dict[int, list[int]]:
        """The subwords of each word of a text, by their places."""
        numbers, word, goes_on = list[int](), -1, False
        for number in ids:
            if word < 0 or not (goes_on or self._inside[number]):
                word += 1
            numbers.append(word)
            goes_on = self._joined[number]
        words_of_pieces: Sequence[Iterable[int]] = [(number,) for number in numbers]
        if word + 1 != len(text.split()):
            # The vocabulary does not part words as spaces do, or noise has changed them: letter by letter.
            words_of_pieces = owners(TextTokens.of(self._vocabulary, ids, text).spans, words_of(text))
        subwords_of: dict[int, list[int]] = {}
        for place, words in enumerate(words_of_pieces):
            for each in words:
                subwords_of.setdefault(each, []).append(place)
        return subwords_of


class Collator:
    """Puts pairs of a store into batches.

    Args:
        store: The pairs.
        source_bos: Whether a source begins with BOS.
        languages: Of a store with several directions.
        context: The previous sentences in front of a sentence.
        links: Finds which subwords belong together; None: nobody asks.

    Attributes:
        sides: Source and target side of the store, with context.
        separator: Behind the context of a target, which is not learned; None: all of a target is.

    Raises:
        DataError: the store has no directions, but languages were given, or no documents for context.
    """

    def __init__(
        self,
        store: TokenStore,
        source_bos: bool,
        languages: Languages | None,
        context: ContextConfig = NO_CONTEXT,
        links: SubwordLinks | None = None,
    ) -> None:
        if languages is not None and store.directions is None:
            raise DataError(f"{store.folder}: its pairs have no directions", "delete it, and prepare again")
        self._store, self._source_bos, self._languages, self._links = store, source_bos, languages, links
        previous = store.previous
        if context.used and previous is None:
            raise DataError(f"{store.folder}: its pairs have no documents", "delete it, and prepare again")

        def with_context(side: StoreSide, count: int) -> StoreSide | ContextSide:
            if not count or previous is None:
                return side
            separator = separator_of(side.vocabulary, languages)
            return ContextSide(side, previous, count=count, most=context.max_length, separator=separator)

        self.sides = (
            with_context(store.source_side, context.source),
            with_context(store.target_side, context.target),
        )
        self.separator: int | None = None
        if context.target and context.loss == "current":
            self.separator = separator_of(store.target_side.vocabulary, languages)
        self._pairs = None if languages is None else np.array(languages.indices, dtype=np.int64)
        self._before_source = int(source_bos) + int(languages is not None and languages.tags_source)

    def lengths(self, sources: Integers, targets: Integers) -> tuple[Indices, Indices]:
        """The tokens that rows of so many stored tokens read of the source, and predict, `[rows]` each."""
        return sources.astype(np.int64) + 1 + self._before_source, targets.astype(np.int64) + 1

    def collate(self, source: Rows, target: Rows, lines: Indices) -> Batch:
        """The arrays of a batch of the pairs `lines` `[B]` of the store."""
        output = padded_rows(*target, before=[], end=True)
        if self.separator is not None:
            # All up to the last separator is context.
            output[(output == self.separator)[:, ::-1].cumsum(1)[:, ::-1] > 0] = PAD
        directions = self._store.directions
        # `[B, 2]`: source and target language of each pair.
        languages = None if self._pairs is None or directions is None else self._pairs[directions[lines]]
        before: list[Column] = [BOS] if self._source_bos else []
        start: Column = BOS
        if self._languages is not None and languages is not None:
            if self._languages.tags_source:
                before.append(self._store.source_side.vocabulary + languages[:, 1])
            if self._languages.tags_target:
                start = self._store.target_side.vocabulary + languages[:, 1]
        links = None
        if self._links is not None:
            links = self._links.of(source, target, lines)
            links[:, 2] += self._before_source
        return Batch(
            source=padded_rows(*source, before=before, end=True),
            target_input=padded_rows(*target, before=[start], end=False),
            target_output=output,
            target_tokens=int((output != PAD).sum()),
            lines=lines,
            source_languages=None if languages is None else languages[:, 0],
            target_languages=None if languages is None else languages[:, 1],
            links=links,
        )


class BlockCollator(Collator):
    """Puts blocks of a store of text of one side into batches, whose sources are empty."""

    def lengths(self, sources: Integers, targets: Integers) -> tuple[Indices, Indices]:
        """See the base class; the first token of a block is read alone."""
        return np.zeros(len(sources), np.int64), targets.astype(np.int64) - 1

    def collate(self, source: Rows, target: Rows, lines: Indices) -> Batch:  # noqa: ARG002 - there is none
        """See the base class; each token predicts the next one of its block."""
        rows = padded_rows(*target, before=[], end=False)
        output = rows[:, 1:]
        return Batch(
            source=np.zeros((len(lines), 0), np.int64),
            target_input=np.where(output == PAD, PAD, rows[:, :-1]),
            target_output=output,
            target_tokens=len(target[0]) - len(lines),
            lines=lines,
        )


def padded_rows(
    tokens: NDArray[np.int64], lengths: NDArray[np.int64], *, before: Sequence[Column], end: bool
) -> NDArray[np.int64]:
    """`[rows, longest]`: tokens with symbols before and EOS behind them where asked for, then PAD."""
    begin = len(before)
    width = int(lengths.max(initial=0)) + begin + end
    columns, ends = np.arange(width), (lengths + begin)[:, None]
    rows = np.full((len(lengths), width), PAD, dtype=np.int64)
    rows[(columns >= begin) & (columns < ends)] = tokens
    for column, symbol in enumerate(before):
        rows[:, column] = symbol
    if end:
        rows[np.arange(len(lengths)), ends[:, 0]] = EOS
    return rows
