"""Text of one side: documents, and their packing into blocks of tokens that cross the bounds of documents.

The text is one stream: EOS, then each document and its EOS; between the lines of a document stands BOS. A
block is `block` tokens of the stream to predict, behind the token before them, which is the last one of the
block before. So every token is predicted once, and the first token of a document is predicted from EOS.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from deepwire.data.batches.token_store import StoreWriter, TokenBlock
from deepwire.data.data_config import TextConfig, Unit
from deepwire.data.subwords.base import BOS, EOS, Segmentation, Vocabulary
from deepwire.data.text.pairs import Texts, is_blank
from deepwire.errors import DataError

LINE_BREAK = BOS
"""Stands between the lines of a document: there, a line begins."""


def documents_of(lines: Iterable[str], unit: Unit) -> Iterator[list[str]]:
    """The lines of each document, as they are read; lines that are empty or only spaces are in none."""
    document: list[str] = []
    for line in lines:
        blank = is_blank(line)
        if not blank:
            document.append(line)
        if document and (unit == "lines" or blank):
            yield document
            document = []
    if document:
        yield document


def document_ids(lines: Sequence[str], vocabulary: Vocabulary) -> list[int]:
    """The tokens of a document, its end symbol too."""
    ids: list[int] = []
    for tokens in vocabulary.encode_lines(lines):
        ids += [*tokens, LINE_BREAK]
    return [*ids[:-1], EOS]


def _bytes(line: str) -> int:
    return len(line.encode("utf-8", "surrogatepass"))


def words_and_bytes(lines: Sequence[str], unit: Unit) -> tuple[int, int]:
    """The size of a document: words between spaces, and bytes with all line ends.

    The empty line behind a document of several lines counts too: the bytes of all are those of their file.
    """
    ends = len(lines) + (unit == "documents")
    return sum(len(line.split()) for line in lines), sum(map(_bytes, lines)) + ends


class Packing:
    """Writes the blocks of all corpora, one after the other, into a store, in constant memory.

    Args:
        store: Where to.
        text: The size of a block, and what a document is.
        counts: How many blocks each corpus has; grows.
    """

    def __init__(self, store: StoreWriter, text: TextConfig, counts: list[int]) -> None:
        self._store, self._counts, self._corpus = store, counts, 0
        self._size, self._between = text.block, EOS if text.unit == "lines" else LINE_BREAK
        self._stream = np.array([EOS], np.int64)
        self._open = False
        # Lines that end in the stream and are in no block yet: where their last token stands, number, text.
        self._ends = np.zeros(0, np.int64)
        self._numbers = np.zeros(0, np.int64)
        self._lines: list[bytes] = []
        self._last = 0

    def add(self, corpus: int, pieces: Segmentation, texts: Texts, numbers: NDArray[np.int64]) -> None:
        """Take some more lines of a corpus, of such numbers in their file; corpora come in turn."""
        if corpus != self._corpus:
            self._end_corpus()
            self._corpus = corpus
        lines = texts.lines()
        blank = np.fromiter((not line.strip() for line in lines), np.bool_, len(lines))
        full = pieces.take(~blank)
        # A line behind another one begins with what stands between the two; a blank one ends a document.
        follows = np.concatenate([[self._open], ~blank[:-1]]) if len(lines) else blank
        symbols = np.where(blank, EOS, self._between)
        lengths = np.zeros(len(lines), np.int64)
        lengths[~blank] = full.lengths
        sizes = lengths + follows
        stops = np.cumsum(sizes)
        tokens = np.empty(int(stops[-1]) if len(lines) else 0, np.int64)
        starts = (stops - sizes)[follows]
        of_text = np.ones(len(tokens), np.bool_)
        of_text[starts] = False
        tokens[starts], tokens[of_text] = symbols[follows], full.pieces
        used = follows | ~blank
        self._ends = np.concatenate([self._ends, (len(self._stream) - 1 + stops)[used]])
        self._numbers = np.concatenate([self._numbers, numbers[used]])
        self._lines += [line + b"\n" for line, is_used in zip(lines, used.tolist(), strict=True) if is_used]
        self._stream = np.concatenate([self._stream, tokens])
        if len(lines):
            self._open, self._last = not blank[-1], int(numbers[-1])
        self._write((len(self._stream) - 1) // self._size)

    def finish(self) -> None:
        """Write what is left; a DataError where there is no text at all."""
        self._end_corpus()
        if not any(self._counts):
            raise DataError("the text has only empty lines")

    def _end_corpus(self) -> None:
        """End the last document, and write the blocks that are left, the last of them perhaps a short one."""
        if self._open:
            self._stream, self._open = np.append(self._stream, EOS), False
        self._write((len(self._stream) - 1) // self._size)
        self._write(int(len(self._stream) > 1))

    def _write(self, count: int) -> None:
        """Write the next blocks of the stream; the text of a block are the lines that end in it."""
        if not count:
            return
        size = min(self._size, len(self._stream) - 1)
        places = np.arange(count)[:, None] * size + np.arange(size + 1)
        tokens = self._stream[places].ravel()
        taken = count * size
        done = int(np.searchsorted(self._ends, taken, "right"))
        block_of = np.minimum(np.maximum(self._ends[:done] - 1, 0) // size, count - 1)
        bounds = np.searchsorted(block_of, np.arange(count + 1))
        texts = [b"".join(self._lines[start:stop]) for start, stop in pairwise(bounds.tolist())]
        first = np.searchsorted(self._ends, np.arange(count) * size + 1)
        numbers = np.append(self._numbers, self._last)[first]
        self._stream, self._lines = self._stream[taken:], self._lines[done:]
        self._ends, self._numbers = self._ends[done:] - taken, self._numbers[done:]
        pieces = Segmentation(tokens, np.full(count, size + 1, np.int64))
        sources = TokenBlock.of([[]] * count, [""] * count)
        self._store.add(sources, TokenBlock(pieces, Texts.of(texts)), 0, numbers)
        self._counts[self._corpus] += count
