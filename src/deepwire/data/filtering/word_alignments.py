"""Alignments of training pairs, read from files beside the text and checked line by line."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

import numpy as np

from deepwire.data.batches.token_store import Links
from deepwire.data.data_config import CorpusConfig
from deepwire.data.text.files import display, read_lines
from deepwire.data.text.pairs import PairBlock
from deepwire.errors import DataError

_FORM = re.compile(r"\s*(?:\d{1,6}-\d{1,6}(?:\s+|\Z))*")
_LINK = re.compile(r"(\d+)-(\d+)")
_MAX_WORDS = 1 << 16
_HINT = "write a line for each line of the text, as 0-0 1-2: source word, hyphen, target word, from 0"


class WordAlignments:
    """The alignments of some corpora, in step with the pairs that are kept; corpora may have none."""

    def __init__(self, corpora: Sequence[CorpusConfig]) -> None:
        self._files = {
            number: _File(corpus) for number, corpus in enumerate(corpora) if corpus.alignments is not None
        }

    def of(self, pairs: PairBlock) -> Links:
        """The links of the next pairs of a corpus.

        Raises:
            DataError: A line is no alignment, or of words that the pair has not, or is missing.
        """
        file = self._files.get(pairs.corpus)
        if file is None:
            return Links(np.zeros(0, np.int64), np.zeros(len(pairs), np.int64))
        sides = pairs.source.strings(), pairs.target.strings()
        links = [
            file.links(number, (len(source.split()), len(target.split())))
            for number, source, target in zip(pairs.numbers.tolist(), *sides, strict=True)
        ]
        sizes = np.fromiter(map(len, links), np.int64, len(links))
        flat = np.array([each for alignment in links for link in alignment for each in link], np.int64)
        return Links(flat, sizes)

    def finish(self, lines: Sequence[int]) -> None:
        """Raises a DataError where a file has more or fewer lines than the text of its corpus."""
        for number, file in self._files.items():
            file.require_lines(lines[number])


class _File:
    def __init__(self, corpus: CorpusConfig) -> None:
        assert corpus.alignments is not None
        self._name, self._read = display(corpus.alignments), 0
        self._lines: Iterator[object] = iter(read_lines(corpus.alignments))

    def links(self, number: int, words: tuple[int, int]) -> list[tuple[int, int]]:
        """The links of a line, sorted; both sides have so many words."""
        line = ""
        while self._read < number:
            following = next(self._lines, None)
            if following is None:
                raise DataError(f"{self._name}: {self._read} lines, and the text has line {number}", _HINT)
            self._read, line = self._read + 1, str(following)
            if not _FORM.fullmatch(line):
                bad = next((part for part in line.split() if not _LINK.fullmatch(part)), line.strip())
                raise DataError(f"{self._name}:{self._read}: no alignment: {bad[:40]!r}", _HINT)
        links = {(int(source), int(target)) for source, target in _LINK.findall(line)}
        for source, target in links:
            if source >= min(words[0], _MAX_WORDS) or target >= min(words[1], _MAX_WORDS):
                raise DataError(
                    f"{self._name}:{number}: {source}-{target}, but the pair has {words[0]} and {words[1]} "
                    "words",
                    _HINT,
                )
        return sorted(links)

    def require_lines(self, wanted: int) -> None:
        have = self._read + sum(1 for _ in self._lines)
        if have != wanted:
            raise DataError(f"{self._name}: {have} lines, but the text has {wanted}", _HINT)
