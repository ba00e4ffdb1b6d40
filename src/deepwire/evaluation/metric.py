"""The base of every metric: the statistics of sentences, and a score made from their sums."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from deepwire.errors import DataError, UsageError

Floats = NDArray[np.float64]
References = Sequence[str] | Sequence[Sequence[str]]
"""One reference text (a list of lines), or several of them (a list of lists of lines)."""
Details = dict[str, float | tuple[float, ...]]


@dataclass(frozen=True)
class Score:
    """The score of one text; BLEU, chrF and TER are percentages.

    Attributes:
        name: The metric as it is written in tables, such as `BLEU` or `chrF2++`.
        value: The score.
        signature: All settings that change the value, in sacrebleu's form.
        higher_is_better: False for error rates.
        details: The numbers behind the value, such as precisions and lengths.
        digits: Behind the point, in tables.
    """

    name: str
    value: float
    signature: str
    higher_is_better: bool = True
    details: Mapping[str, float | tuple[float, ...]] = field(default_factory=dict)
    digits: int = 2

    def __str__(self) -> str:
        return f"{self.name}|{self.signature} = {self.value:.{self.digits}f}"


class Metric(ABC):
    """A corpus metric that is a function of summed sentence statistics, which resampling needs.

    Attributes:
        name: The metric as it is written in tables.
        width: The number K of statistics of one sentence.
        higher_is_better: False for error rates.
        needs_source: Whether it reads the source text, too, and so overrides `_count_with_source`.
        digits: Of a score in tables, behind the point.
    """

    name: str
    width: int
    higher_is_better: bool = True
    needs_source: bool = False
    digits: int = 2

    @abstractmethod
    def values(self, totals: Floats) -> Floats:
        """Corpus scores `[...]` of summed statistics `[..., K]`."""

    def sentence_values(self, statistics: Floats) -> Floats:
        """Sentence scores `[N]` of the statistics of single sentences `[N, K]`."""
        return self.values(statistics)

    @abstractmethod
    def signature(self, references: int) -> str:
        """The settings that change the score; `references` are those of `reference_count`."""

    @abstractmethod
    def _count(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
        """The statistics `[N, K]` of texts whose lengths were checked."""

    def _count_with_source(
        self, hypotheses: Sequence[str], references: Sequence[Sequence[str]], source: Sequence[str] | None
    ) -> Floats:
        del source
        return self._count(hypotheses, references)

    def statistics(
        self, hypotheses: Sequence[str], references: References, source: Sequence[str] | None = None
    ) -> Floats:
        """The statistics of every sentence, `[N, K]`.

        An empty line of one of several references is no translation of no words: it counts as missing.

        Raises:
            DataError: The line counts differ, or there are no lines or no references.
            UsageError: The metric reads the source, and there is none.
        """
        texts = reference_texts(references)
        names = (
            ["reference"] if len(texts) == 1 else [f"reference {place + 1}" for place in range(len(texts))]
        )
        named = [("hypotheses", hypotheses), *zip(names, texts, strict=True)]
        check_line_counts(named if source is None else [*named, ("source", source)])
        if self.needs_source and source is None:
            raise UsageError(f"{self.name} reads the source, too", "add --source FILE, from Python source=")
        counts = np.empty((len(hypotheses), self.width))
        # A command that takes one reference refuses several before it computes for long.
        for present, rows in sorted(_by_references(texts).items(), key=lambda group: -len(group[0])):
            part = self._count_with_source(
                [hypotheses[row] for row in rows],
                [[texts[number][row] for row in rows] for number in present],
                None if source is None else [source[row] for row in rows],
            )
            if np.shape(part) != (len(rows), self.width):
                raise UsageError(
                    f"{self.name}: statistics of shape {np.shape(part)}, not {(len(rows), self.width)}",
                    "a metric of another package is wrong; or install a sacrebleu that deepwire's tests have",
                )
            counts[rows] = part
        return counts

    def score(self, hypotheses: Sequence[str], references: References) -> Score:
        """Scores a text against one or several references; errors as of `statistics`."""
        texts = reference_texts(references)
        return self.score_of(self.statistics(hypotheses, texts), reference_count(texts))

    def score_of(self, statistics: Floats, references: int) -> Score:
        """Scores a text from its sentence statistics `[N, K]` and `reference_count`."""
        totals = statistics.sum(axis=0)
        return Score(
            name=self.name,
            value=float(self.values(totals)),
            signature=self.signature(references),
            higher_is_better=self.higher_is_better,
            details=self.details(totals),
            digits=self.digits,
        )

    def details(self, totals: Floats) -> Details:
        """The numbers behind the score of summed statistics `[K]`; a metric may have none."""
        del totals
        return {}


def reference_texts(references: References) -> list[Sequence[str]]:
    """The references as a list of texts, whether one text or several are given; a DataError for none."""
    if not references:
        raise DataError("no reference to score against")
    if isinstance(references[0], str):
        return [[str(line) for line in references]]
    return list(references)


def is_gap(line: str) -> bool:
    """Whether nothing can be seen in a line, be it empty or of spaces, also those without a width."""
    return not any(character.isprintable() and character != " " for character in line)


def _by_references(texts: Sequence[Sequence[str]]) -> dict[tuple[int, ...], list[int]]:
    """The rows that have the same of several references; the first one alone where all are gaps."""
    rows: dict[tuple[int, ...], list[int]] = {}
    for row, lines in enumerate(zip(*texts, strict=True)):
        present = tuple(number for number, line in enumerate(lines) if len(lines) > 1 and not is_gap(line))
        rows.setdefault(present or (0,), []).append(row)
    return rows


def reference_count(texts: Sequence[Sequence[str]]) -> int:
    """How many references each line has; -1 where some have fewer."""
    counts = {len(present) for present in _by_references(texts)}
    return counts.pop() if len(counts) == 1 else -1


def check_line_counts(texts: Sequence[tuple[str, Sequence[str]]]) -> None:
    """Raises a DataError where texts (name, lines) are empty or differ in their number of lines."""
    for name, lines in texts:
        if not lines:
            raise DataError(f"{name} is empty")
    first_name, first = texts[0]
    for name, lines in texts[1:]:
        if len(lines) != len(first):
            raise DataError(
                f"line counts differ: {first_name} {len(first)}, {name} {len(lines)}",
                "line N of every file must be the same sentence; lines end at \\n only",
            )
