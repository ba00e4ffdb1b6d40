"""Building a prepared corpus: text files to vocabularies and token stores in an empty folder.

Filtered pairs lie in a temporary file until the vocabulary is learned; then all cores cut them into subwords.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepwire.data.batches.epoch_order import Permutation, mix, tempered
from deepwire.data.batches.token_store import StoreWriter, TokenBlock
from deepwire.data.data_config import DataConfig
from deepwire.data.filters import REASON_IDS, Digests, FilteredBlock
from deepwire.data.parallel_map import ordered_map
from deepwire.data.prepare.packing import Packing
from deepwire.data.selection import Selection, WordAlignments
from deepwire.data.subwords.base import Segmentation
from deepwire.data.subwords.sentencepiece import train_model
from deepwire.data.text.corpus import directed
from deepwire.data.text.pairs import PairBlock, Texts
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import BpeConfig, ExistingConfig, UnigramConfig

CHUNK_PAIRS = 4096
"""A chunk ends with the block in which it gets as many."""
PAIRS_FOR_PROCESSES = 200_000
"""With fewer pairs, starting processes costs more than they save."""
_LINE_BITS = 40
"""Bits of a line number in a number for a line of a corpus; the corpus stands above them."""


class Chunk(NamedTuple):
    """Some neighbouring pairs of one corpus, from byte `start` to `stop` of the file of temporary pairs."""

    corpus: int
    start: int
    stop: int
    pairs: int


class TemporaryPairs(AbstractContextManager["TemporaryPairs"]):
    """A file of pairs in chunks: line numbers, sizes of source and target lines, source and target lines.

    Attributes:
        context_only: With `documents`, another one for lines that are context alone.
    """

    def __init__(self, path: Path, *, documents: bool = False) -> None:
        self.path = path
        self.context_only = TemporaryPairs(path.with_suffix(".context")) if documents else None
        self.chunks: list[Chunk] = []
        self._file = path.open("wb", 1 << 20)
        self._waiting: list[PairBlock] = []
        self._pairs, self._end = 0, 0

    def __exit__(self, kind: type[BaseException] | None, *fault: object) -> None:
        if self.context_only is not None:
            self.context_only.__exit__(kind, *fault)
        if kind is None:
            self._end_chunk()
        self._file.close()

    def add(self, pairs: PairBlock, context_only: PairBlock | None = None) -> None:
        """Appends pairs, and lines that are context alone."""
        if self.context_only is not None and context_only is not None:
            self.context_only.add(context_only)
        if self._waiting and self._waiting[0].corpus != pairs.corpus:
            self._end_chunk()
        self._waiting.append(pairs)
        self._pairs += len(pairs)
        if self._pairs >= CHUNK_PAIRS:
            self._end_chunk()

    def flush(self) -> None:
        """Brings what was added to the file, so that all of it can be read."""
        self._end_chunk()
        self._file.flush()

    def _end_chunk(self) -> None:
        if self._pairs:
            waiting = self._waiting
            texts = [*(pairs.source for pairs in waiting), *(pairs.target for pairs in waiting)]
            parts = [pairs.numbers.astype("<i8", copy=False).tobytes() for pairs in waiting]
            parts += [side.sizes.astype("<i4", copy=False).tobytes() for side in texts]
            parts += [side.data for side in texts]
            self._file.writelines(parts)
            start, self._end = self._end, self._end + sum(map(len, parts))
            self.chunks.append(Chunk(waiting[0].corpus, start, self._end, self._pairs))
        self._waiting, self._pairs = [], 0


def read_chunk(path: Path, chunk: Chunk) -> PairBlock:
    """The pairs of a chunk."""
    with path.open("rb") as file:
        file.seek(chunk.start)
        data = file.read(chunk.stop - chunk.start)
    count = chunk.pairs
    sizes = np.frombuffer(data, "<i4", 2 * count, 8 * count).reshape(2, count)
    texts = 16 * count
    middle = texts + int(sizes[0].sum(dtype=np.int64))
    sides = Texts(data[texts:middle], sizes[0]), Texts(data[middle:], sizes[1])
    return PairBlock(chunk.corpus, np.frombuffer(data, "<i8", count), *sides)


def previous_of(places: list[NDArray[np.int64]]) -> NDArray[np.int64]:
    """The number, for each sentence of a store, of the one on the line in front of it; -1: none.

    Takes 33 bytes for each. `places` say where they stand in their corpora; the list is emptied.
    """
    every = np.concatenate([np.zeros(0, np.int64), *places])
    places.clear()
    order = np.argsort(every)
    every.sort()
    previous = np.full(len(order), -1, np.int64)
    previous[order[1:]] = np.where(np.diff(every) == 1, order[:-1], -1)
    return previous


class Segmented(NamedTuple):
    """A chunk, segmented.

    Attributes:
        pairs: The kept pairs.
        source: The pieces of the kept pairs.
        target: Likewise.
        too_long: Line numbers of the others, a side of which has too many pieces.
    """

    pairs: PairBlock
    source: Segmentation
    target: Segmentation
    too_long: NDArray[np.int64]


class _Segmenter:
    """Segments chunks; drops pairs with more than `max_length` pieces on a side, if that is given."""

    def __init__(self, path: Path, vocabularies: Path, max_length: int | None) -> None:
        self._path, self._most = path, max_length
        self._vocabularies = Vocabularies.load(vocabularies)

    def __call__(self, chunk: Chunk) -> Segmented:
        pairs = read_chunk(self._path, chunk)
        source = self._vocabularies.source.segment(pairs.source)
        target = self._vocabularies.target.segment(pairs.target)
        kept = np.ones(len(pairs), np.bool_)
        if self._most is not None:
            kept = np.maximum(source.lengths, target.lengths) <= self._most
        return Segmented(
            pairs.take(kept),
            source.take(kept),
            target.take(kept),
            pairs.numbers[~kept],
        )


_SEED = 20_190


def balanced_lines(
    path: Path,
    chunks: Sequence[Chunk],
    languages: Sequence[tuple[int, int]],
    *,
    temperature: float,
    most: int,
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
    """
    lines = [0] * (1 + max(language for pair in languages for language in pair))
    for chunk in chunks:
        for language in languages[chunk.corpus]:
            lines[language] += chunk.pairs
    budget = min(most, sum(lines))
    wanted = [
        max(1, round(share * budget)) if count else 0
        for share, count in zip(tempered(lines, temperature), lines, strict=True)
    ]
    orders = [Permutation(count, mix(_SEED, language)) for language, count in enumerate(lines)]
    done = [0] * len(lines)
    for chunk in chunks:
        pairs = read_chunk(path, chunk)
        for language, texts in zip(languages[chunk.corpus], (pairs.source, pairs.target), strict=True):
            places = np.arange(done[language], done[language] + chunk.pairs)
            done[language] += chunk.pairs
            times, rest = divmod(wanted[language], lines[language])
            copies = times + (orders[language][places] < rest)
            lines_here = texts.lines()
            for place in np.repeat(np.arange(chunk.pairs), copies).tolist():
                yield lines_here[place].decode()


Progress = Callable[[str, int, int | None], None]
"""Called with what is being done, how many pairs are done, and of how many, where that is known."""

VOCABULARY, TRAIN, VALID = "vocabulary", "train", "valid"


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

    def build(self) -> tuple[list[dict[str, object]], dict[str, object]]:
        """Writes vocabularies and stores; returns which pairs are those of a corpus, and the reports.

        Raises:
            DataError: the text cannot be read or used, or does not support the vocabulary.
        """
        # The validation text first: its faults would show after hours of work.
        valid = None if self._data.valid is None else self._filter_valid()
        with self._temporary_pairs(TRAIN) as pairs_file:
            vocabularies = self._learn(pairs_file)
        vocabularies.save(self._folder / VOCABULARY)
        counts = self._segment(pairs_file, self._training, vocabularies)
        self._training.require_some()
        reports = self._training.reports()
        if valid is not None:
            pairs_file, blocks = valid
            for corpus, digests in blocks:
                self._valid.count_seen(corpus, digests, self._training)
            self._segment(pairs_file, self._valid, vocabularies)
            reports |= self._valid.reports()
        ends = np.cumsum(counts).tolist()
        corpora = [
            {"name": corpus.label, "start": end - count, "stop": end}
            for corpus, count, end in zip(self._training.corpora, counts, ends, strict=True)
        ]
        return corpora, {name: report.to_dict() for name, report in reports.items()}

    def _filter_valid(self) -> tuple[TemporaryPairs, list[tuple[int, Digests]]]:
        """The validation pairs, and of each block of them the corpus and the digests."""
        blocks = []
        with self._temporary_pairs(VALID) as pairs_file:
            for block in self._filter(self._valid, pairs_file):
                self._valid.of(block.pairs.corpus).keep(block.pairs)
                blocks.append((block.pairs.corpus, block.digests))
        self._valid.require_some()
        return pairs_file, blocks

    def _temporary_pairs(self, role: str) -> TemporaryPairs:
        return TemporaryPairs(self._folder / f"{role}.staged", documents=self._data.context.used)

    def _filter(self, selection: Selection, pairs_file: TemporaryPairs) -> Iterator[FilteredBlock]:
        """Read and filter; pass on what is kept, and write it to the file."""
        for block in selection.read(lambda read: self._report_progress("reading pairs", read, None)):
            pairs_file.add(block.pairs, block.context_only)
            yield block

    def _learn(self, pairs_file: TemporaryPairs) -> Vocabularies:
        config, languages = self._data.vocabulary, self._data.languages
        if self._data.text is not None:  # the one vocabulary stands on both sides
            if not isinstance(config, ExistingConfig):
                config = config.model_copy(update={"joint": True})
            learned = Vocabularies.learn_from_blocks(config, self._training_pairs(pairs_file))
            return replace(learned, source=learned.target, joint=True)
        if languages is None or not isinstance(config, BpeConfig | UnigramConfig):
            return Vocabularies.learn_from_blocks(config, self._training_pairs(pairs_file))
        for _ in self._training_pairs(pairs_file):
            pass
        pairs_file.flush()
        lines = balanced_lines(
            pairs_file.path,
            pairs_file.chunks,
            [languages.indices[direction] for direction in self._training.directions],
            temperature=config.balance_temperature,
            most=2 * config.max_training_sentences,
        )
        both = train_model(config, lines, "the text of all languages")
        return Vocabularies(both, both, joint=True, type=config.type)

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
        self, pairs_file: TemporaryPairs, selection: Selection, vocabularies: Vocabularies
    ) -> list[int]:
        """Write a store; returns how many pairs or blocks of each corpus are in it."""
        data, training = self._data, selection.role == TRAIN
        with StoreWriter(
            self._folder / selection.role,
            vocabularies.source.size,
            vocabularies.target.size,
            directions=data.languages is not None,
            lines=training,
            documents=pairs_file.context_only is not None,
            packed=data.text is not None,
            aligned=data.aligned and training,
        ) as store:
            if data.text is None:
                counts = self._write_pairs(pairs_file, selection, store)
            else:
                counts = [0] * len(selection.corpora)
                packing = Packing(store, data.text, counts)
                for result in self._segmented(pairs_file, selection):
                    packing.add(result.pairs.corpus, result.target, result.pairs.target, result.pairs.numbers)
                packing.finish()
                store.finish()
        pairs_file.path.unlink()
        return counts

    def _write_pairs(self, pairs_file: TemporaryPairs, selection: Selection, store: StoreWriter) -> list[int]:
        counts, places = [0] * len(selection.corpora), list[NDArray[np.int64]]()
        alignments = WordAlignments(selection.corpora)

        def write(result: Segmented, *, is_pair: bool = True) -> None:
            pairs = result.pairs
            links = alignments.of(pairs) if is_pair else None
            sides = TokenBlock(result.source, pairs.source), TokenBlock(result.target, pairs.target)
            store.add(*sides, selection.directions[pairs.corpus], pairs.numbers, links)
            counts[pairs.corpus] += len(pairs) * is_pair
            if pairs_file.context_only is not None:
                places.append((pairs.corpus << _LINE_BITS) + pairs.numbers)

        for result in self._segmented(pairs_file, selection):
            write(result)
        alignments.finish([corpus.pairs for corpus in selection.counts()])
        if pairs_file.context_only is None:
            store.finish()
            return counts
        for result in self._cut(pairs_file.context_only, selection):
            write(result, is_pair=False)
        store.finish(sum(counts), previous_of(places))
        pairs_file.context_only.path.unlink()
        return counts

    def _segmented(self, pairs_file: TemporaryPairs, selection: Selection) -> Iterator[Segmented]:
        """The pairs of a role, segmented; counts those that are kept and those that are too long."""
        total, done = sum(chunk.pairs for chunk in pairs_file.chunks), 0
        training = selection.role == TRAIN
        for result in self._cut(pairs_file, selection):
            yield result
            report = selection.of(result.pairs.corpus)
            if training:  # where some are too long; all of the validation text is counted
                report.keep(result.pairs)
            too_long = np.full(len(result.too_long), REASON_IDS["too_long"], np.uint8)
            report.drop(result.pairs.corpus, result.too_long, too_long)
            done += len(result.pairs) + len(too_long)
            self._report_progress("segmenting", done, total)

    def _cut(self, pairs_file: TemporaryPairs, selection: Selection) -> Iterator[Segmented]:
        """The chunks of a file, segmented in their order; a ResourceError where a helping process died."""
        limited = selection.role == TRAIN and self._data.text is None
        longest = self._data.filters.max_length if limited else None
        chunks = pairs_file.chunks
        few = sum(chunk.pairs for chunk in chunks) < PAIRS_FOR_PROCESSES
        arguments = pairs_file.path, self._folder / VOCABULARY, longest
        return ordered_map(_Segmenter, arguments, chunks, serial=len(chunks) if few else 0)
