"""Which pairs of a role are kept, by direction where a run has several; and a check of all text of a run."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from functools import partial
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepwire.config.counts import counted
from deepwire.data.batches.epoch_order import DirectionShare, shares
from deepwire.data.batches.token_store import Links
from deepwire.data.data_config import CorpusConfig, DataConfig, FilterConfig, Role, TextConfig
from deepwire.data.filtering.filter_report import CheckReport
from deepwire.data.filtering.filters import (
    REASON_IDS,
    Digests,
    DigestSet,
    FilteredBlock,
    filter_blocks,
)
from deepwire.data.text.corpus import directed, directions_of, reader
from deepwire.data.text.files import display, read_lines
from deepwire.data.text.pairs import PairBlock
from deepwire.errors import DataError

_LENIENT = FilterConfig(max_characters=1 << 30, max_ratio=1e9, drop_duplicates=False)
"""For validation and test text, which is only refused what cannot be used at all."""
_PAIRS_BETWEEN_REPORTS = 10_000
_ALIGNMENT = re.compile(r"\s*(?:\d{1,6}-\d{1,6}(?:\s+|\Z))*")
_LINK = re.compile(r"(\d+)-(\d+)")
_MAX_WORDS = 1 << 16
_FORM_HINT = "write a line for each line of the text, as 0-0 1-2: source word, hyphen, target word, from 0"


class Selection:
    """Duplicates and reports of one role; one of each, or one of each for every direction.

    A pair is a duplicate only of a pair of its own direction. Duplicates cost 8 to 24 bytes for each kept
    pair (`filters.DigestSet`).

    Args:
        role: The use of the corpora.
        corpora: As `directed` gives them; `Pair.corpus` is a place in this list.
        data: The run's data section.
        samples: How many random pairs a report shows.
        seed: Chooses them.
    """

    def __init__(
        self,
        role: Role,
        corpora: Sequence[CorpusConfig],
        data: DataConfig,
        *,
        samples: int = 5,
        seed: int = 1,
    ) -> None:
        self.role, self.corpora, self._data = role, corpora, data
        self.directions = directions_of(corpora, data) or [0] * len(corpora)
        filters = data.filters if role == "train" else _LENIENT
        self._filters: FilterConfig | TextConfig = data.text or filters
        self._seen: dict[int, DigestSet] = {}
        self._reports: dict[int, CheckReport] = {}
        self._names: dict[int, str] = {}
        # The place of each corpus among those of its direction.
        self._places = [self.directions[:number].count(each) for number, each in enumerate(self.directions)]
        for direction in sorted(set(self.directions)):
            members = [
                corpus for corpus, its in zip(corpora, self.directions, strict=True) if its == direction
            ]
            source = members[0].source or data.source
            labels = "" if data.text is not None else source, members[0].target or data.target
            self._names[direction] = role if data.languages is None else f"{role} {'-'.join(labels)}"
            if data.text is None and filters.drop_duplicates:
                self._seen[direction] = DigestSet()
            self._reports[direction] = CheckReport(
                [corpus.label for corpus in members],
                labels,
                samples=samples,
                seed=seed,
                # Vocabularies of text as people write it; others may want it tokenised.
                raw=data.vocabulary.type in ("bpe", "unigram"),
            )

    def read(self, progress: Callable[[int], None] | None = None) -> Iterator[FilteredBlock]:
        """Reads all corpora: blocks of lines with the pairs that are kept; the others are counted.

        Args:
            progress: Hears about every 10,000 pairs how many are read.

        Raises:
            DataError: a text cannot be read.
            ResourceError: a helping process died.
        """
        read = 0
        for block in filter_blocks(
            [reader(corpus, self._data, number) for number, corpus in enumerate(self.corpora)],
            self._filters,
            digests=self._data.text is None and self._data.filters.drop_duplicates,
            documents=self._data.context.used,
        ):
            corpus = block.pairs.corpus
            seen = self._seen.get(self.directions[corpus])
            if seen is not None:
                known = ~seen.add(block.digests)
                block = block.drop(known, REASON_IDS["duplicate"])
            self._of(corpus).notes.add(block.notes)
            dropped = block.reasons != 0
            self.drop(corpus, block.numbers[dropped], block.reasons[dropped])
            yield block
            before, read = read, read + len(block.reasons)
            if progress is not None and before // _PAIRS_BETWEEN_REPORTS < read // _PAIRS_BETWEEN_REPORTS:
                progress(read)

    def keep(self, pairs: PairBlock) -> None:
        """Counts pairs that were kept."""
        self._of(pairs.corpus).keep(replace(pairs, corpus=self._places[pairs.corpus]))

    def drop(self, corpus: int, numbers: NDArray[np.int64], reasons: NDArray[np.uint8]) -> None:
        """Counts dropped lines of a corpus; `reasons` are indices of `filters.REASON_NAMES`."""
        self._of(corpus).drop(self._places[corpus], numbers, reasons)

    def count_seen(self, corpus: int, digests: Digests, other: Selection) -> None:
        """Counts how many of the pairs that were kept here `other` kept too, in the same direction."""
        seen = other._seen.get(self.directions[corpus])
        if seen is not None:
            self._of(corpus).also_in_training += int(seen.contains(digests).sum())

    def reports(self) -> dict[str, CheckReport]:
        """The reports, by role or by role and direction (`train en-de`)."""
        return {self._names[direction]: report for direction, report in self._reports.items()}

    def kept(self, corpus: int) -> int:
        """How many pairs of a corpus were kept so far."""
        return self._of(corpus).corpora[self._places[corpus]].kept

    def lines(self, corpus: int) -> int:
        """How many pairs of a corpus were kept or dropped so far."""
        return self._of(corpus).corpora[self._places[corpus]].pairs

    def require_some(self) -> None:
        """Raises a DataError where no pair of a direction can be used."""
        for report in self._reports.values():
            if report.kept == 0:
                names = ", ".join(corpus.name for corpus in report.corpora)
                raise DataError(
                    f"{names}: none of {counted(report.pairs, report.unit)} can be used",
                    f"most were dropped because {report.main_reason()}; see data.filters",
                )

    def _of(self, corpus: int) -> CheckReport:
        return self._reports[self.directions[corpus]]


class WordAlignments:
    """The alignments of some corpora, in step with the pairs that are kept; corpora may have none."""

    def __init__(self, corpora: Sequence[CorpusConfig]) -> None:
        self._files = {
            number: _AlignmentFile(corpus)
            for number, corpus in enumerate(corpora)
            if corpus.alignments is not None
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


class _AlignmentFile:
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
                raise DataError(
                    f"{self._name}: {self._read} lines, and the text has line {number}", _FORM_HINT
                )
            self._read, line = self._read + 1, str(following)
            if not _ALIGNMENT.fullmatch(line):
                bad = next((part for part in line.split() if not _LINK.fullmatch(part)), line.strip())
                raise DataError(f"{self._name}:{self._read}: no alignment: {bad[:40]!r}", _FORM_HINT)
        links = {(int(source), int(target)) for source, target in _LINK.findall(line)}
        for source, target in links:
            if source >= min(words[0], _MAX_WORDS) or target >= min(words[1], _MAX_WORDS):
                raise DataError(
                    f"{self._name}:{number}: {source}-{target}, but the pair has {words[0]} and {words[1]} "
                    "words",
                    _FORM_HINT,
                )
        return sorted(links)

    def require_lines(self, wanted: int) -> None:
        have = self._read + sum(1 for _ in self._lines)
        if have != wanted:
            raise DataError(f"{self._name}: {have} lines, but the text has {wanted}", _FORM_HINT)


class Checked(NamedTuple):
    """The findings about the text of a run.

    Attributes:
        reports: By role (`train`, `valid`, `test`), or by role and direction (`train en-de`).
        mix: The share of each direction in an epoch; empty without directions.
    """

    reports: dict[str, CheckReport]
    mix: list[DirectionShare]


def check_corpora(
    data: DataConfig,
    *,
    seed: int = 1,
    samples: int = 5,
    on_progress: Callable[[str, int], None] | None = None,
) -> Checked:
    """Reads and filters every text of `data` once, in a run with directions once for each direction.

    Alignments beside training text are read, too. Validation and test text is only refused what cannot be
    used at all: length, ratio and duplicates are for training.

    Args:
        data: The data section of a run.
        seed: Chooses the sample pairs.
        samples: How many random pairs a report shows.
        on_progress: Called with role and pairs read so far, about every 10,000 pairs.

    Raises:
        DataError: a text cannot be read, or no pair of it can be used, or alignments do not fit their text.
    """
    selections = {
        role: Selection(role, directed(data, role), data, samples=samples, seed=seed)
        for role in data.corpora()
    }
    training = selections["train"]
    reports: dict[str, CheckReport] = {}
    for role, selection in selections.items():
        progress = None if on_progress is None else partial(on_progress, role)
        alignments = WordAlignments(selection.corpora)
        for block in selection.read(progress):
            selection.keep(block.pairs)
            alignments.of(block.pairs)
            if role != "train":
                selection.count_seen(block.pairs.corpus, block.digests, training)
        alignments.finish([selection.lines(number) for number in range(len(selection.corpora))])
        selection.require_some()
        reports |= selection.reports()
    if data.languages is None:
        return Checked(reports, [])
    kept = [training.kept(number) for number in range(len(training.corpora))]
    weights = [corpus.weight for corpus in training.corpora]
    mix = shares(data.languages, kept, weights, training.directions, data.sampling_temperature)
    return Checked(reports, mix)
