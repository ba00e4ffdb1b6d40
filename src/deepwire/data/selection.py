"""Pairs of a role that are kept, by direction where a run has several; their reports; a check of all text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from functools import partial
from itertools import islice
from typing import Any, NamedTuple
from unicodedata import is_normalized

import numpy as np
from numpy.typing import NDArray

from deepwire.config.counts import counted
from deepwire.data.batches.epoch_order import DirectionShare, shares
from deepwire.data.batches.token_store import Links
from deepwire.data.data_config import CorpusConfig, DataConfig, FilterConfig, Role, TextConfig
from deepwire.data.filters import (
    REASON_IDS,
    REASON_NAMES,
    REASONS,
    Digests,
    DigestSet,
    FilteredBlock,
    filter_blocks,
)
from deepwire.data.text.corpus import directed, directions_of, reader
from deepwire.data.text.files import ReadNotes, display, read_lines
from deepwire.data.text.language_guess import guess_language, is_known_language, language_code
from deepwire.data.text.pairs import Pair, PairBlock, Reservoir
from deepwire.errors import DataError, harmless

Report = dict[str, Any]
"""The report of a role as values that JSON can hold; see `CheckReport.to_dict`."""

_EXAMPLES = 5
_RESERVOIR = 1000
_LARGE_DROP = 0.2
_SAME_SIDES = 0.1
_CORRELATION, _CORRELATION_PAIRS = 0.2, 200
_FEWEST_LINES = 10

_RAW = "give raw text, or choose data.vocabulary.type words"
_SIGNS = (
    (re.compile(r"\S@@ |(?:^| )\u2581\S"), 0.1, "cut into subwords already (`@@ ` or `\u2581`)"),
    # Marks that no language puts a space before; French does before others.
    (re.compile(r"\S [.,。，、،।](?= |$)"), 0.3, "tokenised already (a space before commas and full stops)"),
    (
        re.compile(r"&(?:apos|quot|amp|lt|gt|#\d+|bar);| @[-,./]@ "),
        0.02,
        "tokenised already (`&apos;`, `@-@`)",
    ),
)
"""Signs that raw text does not have, and the share of lines from which on they count."""
_ODD_CHARACTERS: Sequence[tuple[Callable[[str], object], str]] = (
    (
        lambda line: not is_normalized("NFC", line),
        "letters apart from their marks, not in Unicode's form NFC",
    ),
    (re.compile("[\u00a0\u2007\u202f]").search, "no-break spaces, which are no spaces"),
    (
        re.compile("[\u00ad\u200b\u2060\ufeff]").search,
        "characters without width (U+00AD, U+200B, U+2060, U+FEFF)",
    ),
)
"""Characters that look like others, or like none, and are different ones for a model."""


def language_warnings(labels: tuple[str, str], sides: Sequence[Sequence[str]]) -> list[str]:
    """Whether the languages of source and target are swapped, or not those of the labels."""
    if language_code(labels[0]) == language_code(labels[1]):
        return []
    languages = [guess_language(lines, labels) for lines in sides]
    if languages == [labels[1], labels[0]]:
        return [f"the two sides look swapped: the text of {labels[0]} is {labels[1]}, and the reverse"]
    return [
        f"the text of {label} looks like {language}"
        for label, language in zip(labels, languages, strict=True)
        if language is not None and language != label and is_known_language(label)
    ]


def _processed_warnings(label: str, lines: Sequence[str]) -> list[str]:
    """Whether a text was tokenised or cut into subwords before."""
    if len(lines) < _FEWEST_LINES:
        return []
    found = (
        said for sign, share, said in _SIGNS if sum(map(bool, map(sign.search, lines))) > share * len(lines)
    )
    return [f"{label} looks {said}: {_RAW}" for said in islice(found, 1)]


def _character_warnings(label: str, lines: Sequence[str]) -> Iterator[str]:
    for is_odd, said in _ODD_CHARACTERS:
        if count := sum(map(bool, map(is_odd, lines))):
            yield f"{label}: {count / len(lines):.1%} of the lines have {said}"


@dataclass
class CorpusCounts:
    """Pairs of a corpus that were read, and those of them that were kept."""

    name: str
    pairs: int = 0
    kept: int = 0


@dataclass
class _Dropped:
    count: int = 0
    examples: list[tuple[int, int]] = field(default_factory=list)


class CheckReport:
    """Counts pairs as they are read and filtered; constant memory.

    Args:
        corpora: The name of each corpus, by `Pair.corpus`.
        labels: The source and the target language; text of one side has an empty source language.
        samples: How many random kept pairs to show.
        seed: Chooses the samples.
        raw: Whether the text should be raw: the vocabulary does not want it tokenised.
    """

    def __init__(
        self,
        corpora: Mapping[int, str],
        labels: tuple[str, str],
        *,
        samples: int = 5,
        seed: int = 1,
        raw: bool = True,
    ) -> None:
        self.corpora = {number: CorpusCounts(name) for number, name in corpora.items()}
        self.labels = labels
        self.notes = ReadNotes()
        self.dropped: dict[str, _Dropped] = {}
        self.also_in_training = 0
        self._samples, self._raw = samples, raw
        self._reservoir = Reservoir(max(samples, _RESERVOIR), seed)

    def drop(self, corpus: int, numbers: NDArray[np.int64], reasons: NDArray[np.uint8]) -> None:
        """Counts dropped lines: their numbers, and why, as indices of `filters.REASON_NAMES`."""
        self.corpora[corpus].pairs += len(numbers)
        distinct, firsts, counts = np.unique(reasons, return_index=True, return_counts=True)
        for place in np.argsort(firsts).tolist():
            dropped = self.dropped.setdefault(REASON_NAMES[distinct[place]], _Dropped())
            dropped.count += int(counts[place])
            room = _EXAMPLES - len(dropped.examples)
            if room:
                lines = numbers[reasons == distinct[place]][:room].tolist()
                dropped.examples += [(corpus, line) for line in lines]

    def keep(self, pairs: PairBlock) -> None:
        """Counts kept pairs."""
        self.corpora[pairs.corpus].pairs += len(pairs)
        self.corpora[pairs.corpus].kept += len(pairs)
        self._reservoir.extend(pairs)

    @property
    def pairs(self) -> int:
        """Pairs read."""
        return sum(corpus.pairs for corpus in self.corpora.values())

    @property
    def kept(self) -> int:
        """Pairs kept."""
        return sum(corpus.kept for corpus in self.corpora.values())

    def samples(self) -> list[Pair]:
        """A few random kept pairs, the same for the same seed and text."""
        return self._reservoir.shuffled()[: self._samples]

    @property
    def unit(self) -> str:
        """The unit of the counts: pairs, or lines where the text has one side."""
        return "pair" if self.labels[0] else "line"

    def main_reason(self) -> str:
        """Why most of the dropped pairs are dropped."""
        return REASONS[max(self.dropped, key=lambda name: self.dropped[name].count)]

    def warnings(self) -> list[str]:
        """Warnings that a person should look at before training, one sentence each."""
        warnings = self._note_warnings()
        share = 1 - self.kept / max(self.pairs, 1)
        if share > _LARGE_DROP:
            warnings.append(f"{share:.0%} of the {self.unit}s are dropped, most for: {self.main_reason()}")
        sides = self._sides()
        if self.labels[0]:
            warnings += self._pair_warnings(sides)
        for label, lines in zip(self.labels, sides, strict=True):
            warnings += _processed_warnings(label, lines) if self._raw else []
            warnings += _character_warnings(label, lines)
        if self.also_in_training:
            are = "is" if self.also_in_training == 1 else "are"
            warnings.append(f"{self.also_in_training:,} of these pairs {are} also in the training text")
        return warnings

    def _pair_warnings(self, sides: Sequence[Sequence[str]]) -> list[str]:
        warnings, sample = [], self._reservoir.pairs
        same = sum(pair.source == pair.target for pair in sample) / max(len(sample), 1)
        if same > _SAME_SIDES:
            warnings.append(
                f"both sides are the same in {same:.0%} of the pairs (filters.drop_copies drops these)"
            )
        warnings += language_warnings(self.labels, sides)
        correlation = _length_correlation(sample)
        if correlation is not None and correlation < _CORRELATION:
            warnings.append(
                f"the lengths of the two sides hardly go together (correlation {correlation:.2f}): "
                "the lines may not be translations of each other"
            )
        return warnings

    def _note_warnings(self) -> list[str]:
        notes = self.notes
        texts = [
            (notes.byte_order_marks, "file", "began with a byte order mark, which was removed"),
            (notes.carriage_returns, "line", "ended in \\r\\n: the \\r was removed"),
            (notes.replaced_lines, "line", "had bytes that are not UTF-8, which were replaced by U+FFFD"),
            (notes.joined_lines, "JSON text", "had line breaks, which became spaces"),
        ]
        return [f"{counted(count, unit)} {text}" for count, unit, text in texts if count]

    def _sides(self) -> tuple[list[str], list[str]]:
        pairs = self._reservoir.pairs
        return [pair.source for pair in pairs], [pair.target for pair in pairs]

    def to_dict(self) -> Report:
        """The whole report as values that JSON can hold."""
        sides = {
            side: {
                "language": label,
                "looks_like": guess_language(lines, self.labels),
                "length": _length_statistics(lines),
            }
            for side, label, lines in zip(("source", "target"), self.labels, self._sides(), strict=True)
        }
        dropped = {
            reason: {
                "count": found.count,
                "examples": [
                    {"corpus": self.corpora[corpus].name, "line": line} for corpus, line in found.examples
                ],
            }
            for reason, found in sorted(self.dropped.items(), key=lambda item: -item[1].count)
        }
        samples = [
            {
                "corpus": self.corpora[pair.corpus].name,
                "line": pair.line,
                "source": pair.source,
                "target": pair.target,
            }
            for pair in self.samples()
        ]
        return {
            "pairs": self.pairs,
            "kept": self.kept,
            "dropped": dropped,
            "corpora": [asdict(corpus) for corpus in self.corpora.values()],
            **sides,
            "repaired": asdict(self.notes),
            "also_in_training": self.also_in_training,
            "warnings": self.warnings(),
            "samples": samples,
        }


def _length_correlation(pairs: Sequence[Pair]) -> float | None:
    """Correlation of the log lengths of the two sides; None where there are too few pairs or no spread."""
    if len(pairs) < _CORRELATION_PAIRS:
        return None
    lengths = np.log([[len(pair.source), len(pair.target)] for pair in pairs])
    if lengths.std(axis=0).min() < 0.05:
        return None
    return float(np.corrcoef(lengths.T)[0, 1])


def _length_statistics(lines: Sequence[str]) -> dict[str, float]:
    """Mean and quantiles in characters."""
    if not lines:
        return {}
    lengths = list(map(len, lines))
    median, most = np.quantile(lengths, (0.5, 0.95)).tolist()
    return {"mean": round(float(np.mean(lengths)), 1), "median": median, "p95": most}


def report_lines(role: str, report: Report, *, brief: bool = False) -> list[str]:
    """The report of `role` (`train`, `valid`, `test`): totals, reasons and lines, warnings, samples.

    Args:
        role: How the report begins.
        report: As of `CheckReport.to_dict`.
        brief: Whether figures of the sides and samples are left out.
    """
    read = counted(report["pairs"], "pair" if report["source"]["language"] else "line")
    share = report["kept"] / max(report["pairs"], 1)
    lines = [f"{role}: {report['kept']:,} of {read} kept ({share:.2%})"]
    several = len(report["corpora"]) > 1
    for corpus in report["corpora"] if several else ():
        lines.append(f"  {corpus['name']}: {corpus['kept']:,} of {corpus['pairs']:,}")
    for reason, dropped in report["dropped"].items():
        places = [
            f"{place['corpus']}:{place['line']}" if several else str(place["line"])
            for place in dropped["examples"]
        ]
        more = ", ..." if dropped["count"] > len(places) else ""
        where = f"line{'s' if dropped['count'] > 1 else ''} {', '.join(places)}{more}"
        meaning = REASONS.get(reason, reason)
        lines.append(f"  dropped {dropped['count']:,} {reason} ({meaning}): {where}")
    for side in (report["source"], report["target"]) if not brief else ():
        if side["language"]:  # text of one side has no source
            figures = ", ".join(f"{name} {value:g}" for name, value in side["length"].items())
            guessed = side["looks_like"]
            looks = f"looks like {guessed}" if guessed else "its language cannot be told"
            lines.append(f"  {side['language']}: characters a line: {figures}; {looks}")
    lines += [f"  warning: {warning}" for warning in report["warnings"]]
    for pair in report["samples"] if not brief else ():
        lines.append(f"  {pair['corpus']}:{pair['line']}")
        lines += [f"    {text}" for text in (pair["source"], pair["target"]) if text]
    return list(map(harmless, lines))


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
        for direction in sorted(set(self.directions)):
            members = {n: corpora[n] for n, its in enumerate(self.directions) if its == direction}
            first = next(iter(members.values()))
            source = first.source or data.source
            labels = "" if data.text is not None else source, first.target or data.target
            self._names[direction] = role if data.languages is None else f"{role} {'-'.join(labels)}"
            if data.text is None and filters.drop_duplicates:
                self._seen[direction] = DigestSet()
            self._reports[direction] = CheckReport(
                {number: corpus.label for number, corpus in members.items()},
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
        read, last = 0, dict[int, Digests]()
        for block in filter_blocks(
            [reader(corpus, self._data, number) for number, corpus in enumerate(self.corpora)],
            self._filters,
            digests=self._data.text is None and self._data.filters.drop_duplicates,
            documents=self._data.context.used,
        ):
            corpus = block.pairs.corpus
            if block.line_digests is not None:
                in_front = np.concatenate([last.get(corpus, np.zeros(1, np.uint64)), block.line_digests])
                block, last[corpus] = block.in_context(in_front[:-1]), in_front[-1:]
            seen = self._seen.get(self.directions[corpus])
            if seen is not None:
                known = ~seen.add(block.digests)
                block = block.drop(known, REASON_IDS["duplicate"])
            self.of(corpus).notes.add(block.notes)
            dropped = block.reasons != 0
            self.of(corpus).drop(corpus, block.numbers[dropped], block.reasons[dropped])
            yield block
            before, read = read, read + len(block.reasons)
            if progress is not None and before // _PAIRS_BETWEEN_REPORTS < read // _PAIRS_BETWEEN_REPORTS:
                progress(read)

    def count_seen(self, corpus: int, digests: Digests, other: Selection) -> None:
        """Counts how many of the pairs that were kept here `other` kept too, in the same direction."""
        seen = other._seen.get(self.directions[corpus])
        if seen is not None:
            self.of(corpus).also_in_training += int(seen.contains(digests).sum())

    def reports(self) -> dict[str, CheckReport]:
        """The reports, by role or by role and direction (`train en-de`)."""
        return {self._names[direction]: report for direction, report in self._reports.items()}

    def counts(self) -> list[CorpusCounts]:
        """How many pairs of each corpus were read and kept so far."""
        return [self.of(number).corpora[number] for number in range(len(self.corpora))]

    def require_some(self) -> None:
        """Raises a DataError where no pair of a direction can be used."""
        for report in self._reports.values():
            if report.kept == 0:
                names = ", ".join(corpus.name for corpus in report.corpora.values())
                raise DataError(
                    f"{names}: none of {counted(report.pairs, report.unit)} can be used",
                    f"most were dropped because {report.main_reason()}; see data.filters",
                )

    def of(self, corpus: int) -> CheckReport:
        """The report that counts the pairs of a corpus."""
        return self._reports[self.directions[corpus]]


class WordAlignments:
    """The alignments of some corpora, in step with the pairs that are kept; corpora may have none."""

    def __init__(self, corpora: Sequence[CorpusConfig]) -> None:
        paths = {
            number: each.alignments for number, each in enumerate(corpora) if each.alignments is not None
        }
        self._names = {number: display(path) for number, path in paths.items()}
        self._lines = {number: iter(read_lines(path)) for number, path in paths.items()}
        self._read = dict.fromkeys(paths, 0)

    def of(self, pairs: PairBlock) -> Links:
        """The links of the next pairs of a corpus.

        Raises:
            DataError: A line is no alignment, or of words that the pair has not, or is missing.
        """
        if pairs.corpus not in self._lines:
            return np.zeros(0, np.int64), np.zeros(len(pairs), np.int64)
        links = [self._of_pair(pair) for pair in pairs]
        sizes = np.fromiter(map(len, links), np.int64, len(links))
        flat = np.array([each for alignment in links for link in alignment for each in link], np.int64)
        return flat, sizes

    def _of_pair(self, pair: Pair) -> list[tuple[int, int]]:
        """The links of a pair, sorted."""
        skipped = pair.line - self._read[pair.corpus] - 1
        line = str(next(islice(self._lines[pair.corpus], skipped, None), "missing"))
        self._read[pair.corpus], where = pair.line, f"{self._names[pair.corpus]}:{pair.line}"
        if not _ALIGNMENT.fullmatch(line):
            raise DataError(f"{where}: no alignment: {line.strip()[:40]!r}", _FORM_HINT)
        words = [min(len(side.split()), _MAX_WORDS) for side in (pair.source, pair.target)]
        links = sorted({(int(source), int(target)) for source, target in _LINK.findall(line)})
        for source, target in links:
            if source >= words[0] or target >= words[1]:
                said = f"{source}-{target}, but the pair has {words[0]} and {words[1]} words"
                raise DataError(f"{where}: {said}", _FORM_HINT)
        return links

    def finish(self, lines: Sequence[int]) -> None:
        """Raises a DataError where a file has more or fewer lines than the text of its corpus."""
        for number, rest in self._lines.items():
            have = self._read[number] + sum(1 for _ in rest)
            if have != lines[number]:
                name = self._names[number]
                raise DataError(f"{name}: {have} lines, but the text has {lines[number]}", _FORM_HINT)


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
            selection.of(block.pairs.corpus).keep(block.pairs)
            alignments.of(block.pairs)
            if role != "train":
                selection.count_seen(block.pairs.corpus, block.digests, training)
        alignments.finish([corpus.pairs for corpus in selection.counts()])
        selection.require_some()
        reports |= selection.reports()
    if data.languages is None:
        return Checked(reports, [])
    kept = [corpus.kept for corpus in training.counts()]
    weights = [corpus.weight for corpus in training.corpora]
    mix = shares(data.languages, kept, weights, training.directions, data.sampling_temperature)
    return Checked(reports, mix)
