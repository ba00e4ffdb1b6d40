"""Reading a parallel corpus: pair by pair, or by blocks of lines that several processes share."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from deepwire.data.data_config import BadUtf8, CorpusConfig, DataConfig
from deepwire.data.languages import Direction
from deepwire.data.text.directed import prefix_of
from deepwire.data.text.files import ReadNotes, find_text
from deepwire.data.text.pairs import Pair
from deepwire.data.text.reader import Lines, RawBlock, Reader, decoded, two_file_blocks, without_faults
from deepwire.data.text.tables import JsonReader, TsvReader
from deepwire.errors import DataError


def read_pairs(
    corpus: CorpusConfig, data: DataConfig, *, index: int = 0, notes: ReadNotes | None = None
) -> Iterator[Pair]:
    """Every pair of a corpus in order, unfiltered: one for each line, in constant memory.

    Args:
        corpus: What to read; in a run with directions one of those that `directed` gives.
        data: The languages and what to do with lines that are not UTF-8.
        index: The number of the corpus, handed on in `Pair.corpus`.
        notes: Counts what was repaired while reading.

    Raises:
        DataError: a file is missing, empty or damaged; the line counts of the two sides differ (known only at
            the end); a line is not UTF-8 (and `on_bad_utf8` is `error`), or lacks a column or key.
    """
    return _pairs(reader(corpus, data, index), notes if notes is not None else ReadNotes())


def _pairs(source: Reader, notes: ReadNotes) -> Iterator[Pair]:
    for block in source.blocks():
        lines = source.parse(block, notes)
        for place, (left, right) in enumerate(zip(lines.sources, lines.targets, strict=True)):
            yield Pair(lines.first + place, left, right, block.corpus, lines.faults.get(place, ""))


def reader(corpus: CorpusConfig, data: DataConfig, index: int) -> Reader:
    """What reads a corpus.

    Raises:
        DataError: a side of a prefix does not exist.
    """
    source, target = corpus.source or data.source, corpus.target or data.target
    if corpus.tsv is not None:
        columns = (corpus.source_column or 1, corpus.target_column or 2)
        return TsvReader(corpus.tsv, columns, index, data.on_bad_utf8)
    if corpus.jsonl is not None:
        keys = (str(corpus.source_column or source), str(corpus.target_column or target))
        return JsonReader(corpus.jsonl, keys, index, data.on_bad_utf8)
    paths = corpus_files(corpus, data)
    return TwoFileReader(paths[0], paths[1], index, data.on_bad_utf8)


def corpus_files(corpus: CorpusConfig, data: DataConfig) -> list[Path]:
    """The files of a corpus: source and target, or the one TSV or JSONL file.

    Raises:
        DataError: a side of a prefix does not exist.
    """
    if corpus.prefix is None:
        return [path for path in (corpus.source_file, corpus.target_file, corpus.tsv, corpus.jsonl) if path]
    if corpus.source is None or corpus.target is None:
        return [find_text(corpus.prefix, data.source), find_text(corpus.prefix, data.target)]
    direction = Direction(corpus.source, corpus.target)
    prefix = prefix_of(corpus.prefix, direction)
    try:
        return [find_text(prefix, language) for language in direction]
    except DataError as fault:
        own = "a corpus that is not for all directions names its own: directions: [...]"
        raise DataError(
            f"{fault.message}, needed for {direction}", f"{fault.hint}; {own}" if fault.hint else own
        ) from None


class TwoFileReader:
    """A corpus whose sides lie in two files, line by line translations of each other."""

    def __init__(self, source: Path, target: Path, corpus: int, on_bad_utf8: BadUtf8) -> None:
        self._paths, self._corpus, self._on_bad_utf8 = (source, target), corpus, on_bad_utf8

    def blocks(self) -> Iterator[RawBlock]:
        """See `Reader`."""
        return two_file_blocks(self._paths, self._corpus)

    def parse(self, block: RawBlock, notes: ReadNotes) -> Lines:
        """See `Reader`; of a pair with two bad sides the fault is the source's."""
        faults = dict[int, str]()
        source, target = (
            without_faults(decoded(path, raw, block.first, self._on_bad_utf8, notes), faults)
            for path, raw in zip(self._paths, block.files, strict=True)
        )
        return Lines(block.first, source, target, faults)
