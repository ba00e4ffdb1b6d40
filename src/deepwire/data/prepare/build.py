"""Building a prepared corpus: text files to vocabularies and token stores in an empty folder."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import NamedTuple, Self

import numpy as np
from numpy.typing import NDArray
from typing_extensions import TypedDict

from deepwire.data.batches.epoch_order import Permutation, mix, tempered
from deepwire.data.batches.token_store import Block, StoreWriter
from deepwire.data.data_config import DataConfig
from deepwire.data.filtering.filters import NUMBERS, FilteredBlock
from deepwire.data.filtering.selection import Selection
from deepwire.data.parallel_map import ordered_map
from deepwire.data.prepare.packing import BlockRows
from deepwire.data.prepare.symbol_pairs import (
    SymbolPairs,
    SymbolUse,
    require_symbols,
    symbol_use,
    with_symbols,
)
from deepwire.data.subwords.base import Segmentation
from deepwire.data.text.corpus import directed
from deepwire.data.text.pairs import Pair, PairBlock, Texts
from deepwire.data.text.placeholders import SYMBOLS
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import BpeConfig, UnigramConfig

CHUNK_PAIRS = 4096
"""A chunk ends with the block in which it gets as many."""


class Chunk(NamedTuple):
    """Some neighbouring pairs of one corpus in the file of temporary pairs."""

    corpus: int
    start: int
    """First byte."""
    stop: int
    pairs: int


class TemporaryPairs:
    """A file of pairs in chunks: line numbers, sizes of source and target lines, source and target lines."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.chunks: list[Chunk] = []
        self._file = path.open("wb", 1 << 20)
        self._waiting: list[PairBlock] = []
        self._pairs, self._end = 0, 0

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        fault: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        if kind is None:
            self._end_chunk()
        self._file.close()

    def add(self, pairs: PairBlock) -> None:
        """Append pairs."""
        if self._waiting and self._waiting[0].corpus != pairs.corpus:
            self._end_chunk()
        self._waiting.append(pairs)
        self._pairs += len(pairs)
        if self._pairs >= CHUNK_PAIRS:
            self._end_chunk()

    def flush(self) -> None:
        """Bring what was added to the file, so that all of it can be read."""
        self._end_chunk()
        self._file.flush()

    def _end_chunk(self) -> None:
        if self._pairs:
            start, waiting = self._end, self._waiting
            for pairs in waiting:
                self._write(pairs.numbers.astype("<i8", copy=False).tobytes())
            for side in ([pairs.source for pairs in waiting], [pairs.target for pairs in waiting]):
                for texts in side:
                    self._write(texts.sizes.astype("<i4", copy=False).tobytes())
            for side in ([pairs.source for pairs in waiting], [pairs.target for pairs in waiting]):
                for texts in side:
                    self._write(texts.data)
            self.chunks.append(Chunk(waiting[0].corpus, start, self._end, self._pairs))
        self._waiting, self._pairs = [], 0

    def _write(self, data: bytes) -> None:
        self._file.write(data)
        self._end += len(data)


def read_chunk(path: Path, chunk: Chunk) -> PairBlock:
    """The pairs of a chunk."""
    with path.open("rb") as file:
        file.seek(chunk.start)
        data = file.read(chunk.stop - chunk.start)
    count = chunk.pairs
    sizes = np.frombuffer(data, "<i4", 2 * count, 8 * count).reshape(2, count)
    texts = 16 * count
    middle = texts + int(sizes[0].sum(dtype=np.int64))
    return PairBlock(
        chunk.corpus,
        np.frombuffer(data, "<i8", count),
        Texts(data[texts:middle], sizes[0]),
        Texts(data[middle:], sizes[1]),
    )


_SEED = 20_190


def balanced_lines(
    path: Path,
    chunks: Sequence[Chunk],
    languages: Sequence[tuple[int, int]],
    *,
    temperature: float,
    most: int,
    placeholders: bool = False,
) -> Iterator[str]:
    """Lines of temporary pairs, of each language its tempered share; constant memory, the same every time.

    A language whose share is above what it has gets its lines several times; of one with more lines than its
    share, a random sample is taken.

    Args:
        path: The file of temporary pairs.
        chunks: All of its chunks.
        languages: Of each corpus the source and the target language.
        temperature: 1 takes as many lines of each language as the pairs have.
        most: How many lines at most, over all languages.
        placeholders: Whether lines have symbols for placeholders.
    """
    lines = _line_counts(chunks, languages)
    budget = min(most, sum(lines))
    wanted = [
        max(1, round(share * budget)) if count else 0
        for share, count in zip(tempered(lines, temperature), lines, strict=True)
    ]
    orders = [Permutation(count, mix(_SEED, language)) for language, count in enumerate(lines)]
    done = [0] * len(lines)
    for chunk in chunks:
        pairs = read_chunk(path, chunk)
        pairs = with_symbols(pairs) if placeholders else pairs
        for language, texts in zip(languages[chunk.corpus], (pairs.source, pairs.target), strict=True):
            places = np.arange(done[language], done[language] + chunk.pairs)
            done[language] += chunk.pairs
            times, rest = divmod(wanted[language], lines[language])
            copies = times + (orders[language][places] < rest)
            lines_here = texts.lines()
            for place in np.repeat(np.arange(chunk.pairs), copies).tolist():
                yield lines_here[place].decode()


def _line_counts(chunks: Sequence[Chunk], languages: Sequence[tuple[int, int]]) -> list[int]:
    counts = [0] * (1 + max(language for pair in languages for language in pair))
    for chunk in chunks:
        for language in languages[chunk.corpus]:
            counts[language] += chunk.pairs
    return counts


Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, how many pairs are done, and of how many, where that is known."""

VOCABULARY, TRAIN, VALID = "vocabulary", "train", "valid"
PAIRS_FOR_PROCESSES = 200_000
"""With fewer pairs, starting processes costs more than they save."""


class CorpusPlace(TypedDict):
    """Which pairs of the store are those of a corpus."""

    name: str
    start: int
    stop: int


class Builder:
    """Makes one prepared corpus in a folder.

    Args:
        data: The data section, without streams.
        folder: Where to; empty.
        seed: Chooses the pairs that the report shows.
        progress: Hears how far it is.
    """

    def __init__(self, data: DataConfig, folder: Path, seed: int, progress: Progress) -> None:
        self._data, self._folder, self._report_progress = data, folder, progress
        self._training = Selection("train", directed(data, "train"), data, seed=seed)
        self._valid = Selection("valid", directed(data, "valid"), data, seed=seed)

    def build(self) -> tuple[list[CorpusPlace], dict[str, object]]:
        """Everything but the header and the report; returns the corpora and the reports, which go into these.

        Raises:
            DataError: the text cannot be read or used, or does not support the vocabulary.
        """
        pairs_file = TemporaryPairs(self._folder / "train.staged")
        with pairs_file:
            vocabularies = self._learn(pairs_file)
        vocabularies.save(self._folder / VOCABULARY)
        longest = self._data.filters.max_length if self._data.text is None else None
        counts = self._segment(pairs_file, self._training, vocabularies, longest)
        self._training.require_some()
        reports = [self._training.reports()]
        if self._data.valid is not None:
            pairs_file = TemporaryPairs(self._folder / "valid.staged")
            with pairs_file:
                for block in self._filter(self._valid, pairs_file):
                    self._valid.count_seen(block, self._training)
            self._segment(pairs_file, self._valid, vocabularies, None)
            self._valid.require_some()
            reports.append(self._valid.reports())
        ends = [sum(counts[: number + 1]) for number in range(len(counts))]
        corpora: list[CorpusPlace] = [
            {"name": corpus.label, "start": end - count, "stop": end}
            for corpus, count, end in zip(self._training.corpora, counts, ends, strict=True)
        ]
        return corpora, {name: report.to_dict() for role in reports for name, report in role.items()}

    def _filter(self, selection: Selection, pairs_file: TemporaryPairs) -> Iterator[FilteredBlock]:
        """Read and filter; pass on what is kept, and write it to the file."""
        for block in selection.read(progress=lambda read: self._report_progress("reading pairs", read, None)):
            pairs_file.add(block.pairs)
            yield block

    def _learn(self, pairs_file: TemporaryPairs) -> Vocabularies:
        config, languages = self._data.vocabulary, self._data.languages
        if self._data.text is not None:
            return Vocabularies.learn_of_targets(config, self._training_pairs(pairs_file))
        symbols = SYMBOLS if self._data.placeholders else ()
        if languages is None or not isinstance(config, BpeConfig | UnigramConfig):
            blocks: Iterator[Sequence[Pair]] = self._training_pairs(pairs_file)
            if symbols:
                blocks = map(SymbolPairs, self._training_pairs(pairs_file))
            vocabularies = Vocabularies.learn_from_blocks(config, blocks, symbols)
            require_symbols(vocabularies, self._data.placeholders)
            return vocabularies
        for _ in self._training_pairs(pairs_file):
            pass
        pairs_file.flush()
        sides = [languages.indices[direction] for direction in self._training.directions]
        lines = balanced_lines(
            pairs_file.path,
            pairs_file.chunks,
            sides,
            temperature=config.balance_temperature,
            most=2 * config.max_training_sentences,
            placeholders=bool(symbols),
        )
        return Vocabularies.learn_joint(config, lines, symbols)

    def _training_pairs(self, pairs_file: TemporaryPairs) -> Iterator[PairBlock]:
        """The training pairs, which are written to the file; says when all are there."""
        count = 0
        for block in self._filter(self._training, pairs_file):
            count += len(block.pairs)
            yield block.pairs
        if count == 0:
            self._training.require_some()  # before the vocabulary complains about what it cannot know
        self._report_progress("learning the vocabulary", count, None)

    def _segment(
        self,
        pairs_file: TemporaryPairs,
        selection: Selection,
        vocabularies: Vocabularies,
        max_length: int | None,
    ) -> list[int]:
        """Write a store; returns how many pairs or blocks of each corpus are in it."""
        total = sum(chunk.pairs for chunk in pairs_file.chunks)
        counts, done = [0] * len(selection.corpora), 0
        sizes = vocabularies.source.size, vocabularies.target.size
        many, lines, text = self._data.languages is not None, selection.role == TRAIN, self._data.text
        with StoreWriter(
            self._folder / selection.role, *sizes, directions=many, lines=lines, packed=text is not None
        ) as store:
            blocks = None if text is None else BlockRows(store, text, counts)
            # Training sees symbols; validation text stays as it is, for scores of whole translations.
            symbols = symbol_use(self._data.placeholders, training=selection.role == TRAIN)
            folder = self._folder / VOCABULARY
            for result in segment(pairs_file.path, pairs_file.chunks, folder, max_length, symbols):
                pairs = result.pairs
                if blocks is not None:
                    blocks.add(pairs.corpus, result.target, result.stored.target, pairs.numbers)
                else:
                    store.add(*result.blocks(), selection.directions[pairs.corpus], pairs.numbers)
                    counts[pairs.corpus] += len(pairs)
                selection.keep(pairs, result.lengths)
                too_long = np.full(len(result.too_long), NUMBERS["too_long"], np.uint8)
                selection.drop(pairs.corpus, result.too_long, too_long)
                done += len(pairs) + len(too_long)
                self._report_progress("segmenting", done, total)
            if blocks is not None:
                blocks.finish()
            store.finish()
        pairs_file.path.unlink()
        return counts


class Segmented(NamedTuple):
    """A chunk, segmented."""

    pairs: PairBlock
    """The kept pairs."""
    lengths: NDArray[np.int32]
    """`[2, kept pairs]`: characters of the sides."""
    source: Segmentation
    """Of the kept pairs."""
    target: Segmentation
    too_long: NDArray[np.int64]
    """Line numbers of the others, a side of which has too many pieces."""
    stored: PairBlock
    """The kept pairs as the store has their text."""

    def blocks(self) -> tuple[Block, Block]:
        """The kept pairs as the store takes them."""
        source, target = (
            Block(*pieces, *texts)
            for pieces, texts in ((self.source, self.stored.source), (self.target, self.stored.target))
        )
        return source, target


def segment(
    path: Path,
    chunks: Sequence[Chunk],
    vocabularies: Path,
    max_length: int | None,
    symbols: SymbolUse = "none",
) -> Iterator[Segmented]:
    """Segment chunks of a file of temporary pairs, in their order.

    Args:
        path: The file of temporary pairs.
        chunks: What to read of it.
        vocabularies: Folder of the vocabularies.
        max_length: Pairs with more pieces than this on a side are left out; None keeps all.
        symbols: Whether placeholders are segmented as symbols, and whether the store's text has them too.

    Raises:
        ResourceError: a helping process died.
    """
    few = sum(chunk.pairs for chunk in chunks) < PAIRS_FOR_PROCESSES
    return ordered_map(
        _Segmenter, (path, vocabularies, max_length, symbols), chunks, alone=len(chunks) if few else 0
    )


class _Segmenter:
    def __init__(
        self, path: Path, vocabularies: Path, max_length: int | None, symbols: SymbolUse = "none"
    ) -> None:
        self._path, self._most, self._symbols = path, max_length, symbols
        self._vocabularies = Vocabularies.load(vocabularies)

    def __call__(self, chunk: Chunk) -> Segmented:
        pairs = read_chunk(self._path, chunk)
        sources, targets = pairs.source.strings(), pairs.target.strings()
        lengths = np.array([list(map(len, side)) for side in (sources, targets)], np.int32)
        read = pairs if self._symbols == "none" else with_symbols(pairs)
        source = self._vocabularies.source.segment(read.source.strings())
        target = self._vocabularies.target.segment(read.target.strings())
        too_long = np.zeros(len(pairs), np.bool_)
        if self._most is not None:
            too_long = np.maximum(source.lengths, target.lengths) > self._most
        kept = ~too_long
        stored = read if self._symbols == "stored" else pairs
        return Segmented(
            pairs.take(kept),
            lengths[:, kept],
            source.take(kept),
            target.take(kept),
            pairs.numbers[too_long],
            stored.take(kept),
        )
