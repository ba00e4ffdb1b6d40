"""Which pairs of a role are kept, by direction where a run has several; and a check of all text of a run."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from deepwire.config.counts import counted
from deepwire.data.batches.epoch_order import DirectionShare, shares
from deepwire.data.data_config import CorpusConfig, DataConfig, FilterConfig, Role, TextConfig
from deepwire.data.filtering.filter_report import CheckReport
from deepwire.data.filtering.filters import (
    REASON_IDS,
    REASON_NAMES,
    Digests,
    DigestSet,
    FilteredBlock,
    filter_blocks,
)
from deepwire.data.filtering.word_alignments import WordAlignments
from deepwire.data.text.corpus import corpus_files, directed, directions_of, reader
from deepwire.data.text.pairs import Pair, PairBlock
from deepwire.data.text.placeholders import kinds_in
from deepwire.errors import DataError
from deepwire.io.output import open_output

_LENIENT = FilterConfig(max_characters=1 << 30, max_ratio=1e9, drop_duplicates=False)
"""For validation and test text, which is only refused what cannot be used at all."""
_PAIRS_BETWEEN_REPORTS = 10_000


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

    def read(
        self, *, show_dropped: bool = False, progress: Callable[[int], None] | None = None
    ) -> Iterator[FilteredBlock]:
        """Reads all corpora: blocks of lines with the pairs that are kept; the others are counted.

        Args:
            show_dropped: Whether `FilteredBlock.dropped` is wanted.
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
            show_dropped=show_dropped,
            documents=self._data.context.used,
        ):
            corpus = block.pairs.corpus
            seen = self._seen.get(self.directions[corpus])
            if seen is not None:
                known = ~seen.add(block.digests)
                block = block.drop(known, REASON_IDS["duplicate"], show=show_dropped)
            self._of(corpus).notes.add(block.notes)
            dropped = block.reasons != 0
            self.drop(corpus, block.numbers[dropped], block.reasons[dropped])
            yield block
            before, read = read, read + len(block.reasons)
            if progress is not None and before // _PAIRS_BETWEEN_REPORTS < read // _PAIRS_BETWEEN_REPORTS:
                progress(read)

    def keep(self, pairs: PairBlock, lengths: NDArray[np.int32]) -> None:
        """Counts pairs that were kept; `lengths` are `[2, pairs]` characters."""
        renumbered = replace(pairs, corpus=self._places[pairs.corpus])
        self._of(pairs.corpus).keep(renumbered.corpus, lengths, renumbered)

    def drop(self, corpus: int, numbers: NDArray[np.int64], reasons: NDArray[np.uint8]) -> None:
        """Counts dropped lines of a corpus; `reasons` are indices of `filters.REASON_NAMES`."""
        self._of(corpus).drop(self._places[corpus], numbers, reasons)

    def count_seen(self, corpus: int, digests: Digests, other: Selection) -> None:
        """Counts how many of the pairs that were kept here `other` kept too, in the same direction."""
        seen = other._seen.get(self.directions[corpus])
        if seen is not None:
            self._of(corpus).also_in_training += int(seen.contains(digests).sum())

    def count_placeholders(self, pairs: PairBlock) -> None:
        """Counts the symbols of pairs that were kept, as the store has them."""
        self._of(pairs.corpus).placeholders.update(kinds_in(pairs.source.data.decode()))

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


OnReject = Callable[[str, str, Pair, str], None]


class Checked(NamedTuple):
    """The findings about the text of a run.

    Attributes:
        reports: By role (`train`, `valid`, `test`), or by role and direction (`train en-de`).
        mix: The share of each direction in an epoch; empty without directions.
    """

    reports: dict[str, CheckReport]
    mix: list[DirectionShare]


def checked_files(data: DataConfig) -> list[Path]:
    """Every file that `check_corpora` reads; a DataError where a side of a prefix does not exist."""
    files: list[Path] = []
    for role in data.corpora():
        for corpus in directed(data, role):
            files += corpus_files(corpus, data)
            files += [] if corpus.alignments is None else [corpus.alignments]
    return files


def check_corpora(
    data: DataConfig,
    *,
    seed: int = 1,
    samples: int = 5,
    on_reject: OnReject | None = None,
    on_progress: Callable[[str, int], None] | None = None,
) -> Checked:
    """Reads and filters every text of `data` once, in a run with directions once for each direction.

    Alignments beside training text are read, too. Validation and test text is only refused what cannot be
    used at all: length, ratio and duplicates are for training.

    Args:
        data: The data section of a run.
        seed: Chooses the sample pairs.
        samples: How many random pairs a report shows.
        on_reject: Called with role, corpus name, pair and reason for every dropped pair.
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
        for block in selection.read(show_dropped=on_reject is not None, progress=progress):
            selection.keep(block.pairs, block.lengths)
            alignments.of(block.pairs)
            if on_reject is not None:
                label = selection.corpora[block.pairs.corpus].label
                for pair, reason in zip(block.dropped, block.reasons[block.reasons != 0], strict=True):
                    on_reject(role, label, pair, REASON_NAMES[reason])
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


_ESCAPES = {ord("\\"): "\\\\", ord("\t"): "\\t", ord("\n"): "\\n", ord("\r"): "\\r"}


@contextmanager
def reject_file(path: Path) -> Iterator[OnReject]:
    """Opens a TSV file for dropped pairs, which has its name only once it is complete.

    The file is compressed where its ending says so. Tabs, line ends and backslashes in a text are written as
    `\\t`, `\\n`, `\\r` and `\\\\`. Pairs that cannot be used as text are written as far as they were read.

    Raises:
        UsageError: the file cannot be written there.
        ResourceError: nothing can be written there.
    """
    with open_output(path) as file:

        def write(*fields: str) -> None:
            line = "\t".join(field.translate(_ESCAPES) for field in fields)
            # JSON can hold halves of characters, UTF-8 cannot.
            file.write(line.encode(errors="replace").decode() + "\n")

        def add(role: str, corpus: str, pair: Pair, reason: str) -> None:
            write(f"{role}/{corpus}", str(pair.line), reason, pair.source, pair.target)

        write("corpus", "line", "reason", "source", "target")
        yield add
