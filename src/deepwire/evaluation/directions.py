"""The table of a model of many languages: every direction, averages, and a baseline to compare with."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from itertools import permutations
from pathlib import Path
from typing import TYPE_CHECKING

from deepwire.data.languages import Direction, known_directions
from deepwire.data.text.language_guess import is_known_language, language_shares
from deepwire.errors import DataError, LogFn, UsageError
from deepwire.evaluation import texts
from deepwire.evaluation.comparison import (
    SIGNIFICANT,
    PairedTest,
    compare,
    score_as_json,
    table,
)
from deepwire.evaluation.metric import Score
from deepwire.evaluation.metric_choice import LanguageMetrics
from deepwire.evaluation.significance import Comparison
from deepwire.evaluation.texts import SearchSettings, Text, parse_direction, texts_at, texts_of_run
from deepwire.io.atomic import disk_errors
from deepwire.io.output import write_output

if TYPE_CHECKING:
    from deepwire.decoding.translator import Translator

HYPOTHESES = ".hyp"
_FIELD = re.compile(r"\{(direction|source|target)\}")


@dataclass(frozen=True)
class DirectionsRequest:
    """The directions to evaluate, and how.

    Attributes:
        system: A model; a folder of `DIRECTION.hyp`; or a pattern with `{direction}` of models or files.
        baseline: To compare with, in the same forms.
        test: Test sets: a prefix or the folder of OPUS-100; `data.test` of the run when None.
        directions: All that the system has when empty.
        zero_shot: Evaluate also all directions of its languages that it was not trained on.
        metrics: The metrics of each language; the first decides what is better.
        centre: Directions out of this language and into it are averaged apart.
        groups: Languages whose directions are averaged, by the name of the group.
        paired: The test against the baseline; None for none.
        output: Folder for the translations of the system.
        search: How and where models translate.
    """

    system: str
    baseline: str | None = None
    test: str | None = None
    directions: Sequence[Direction] = ()
    zero_shot: bool = False
    metrics: LanguageMetrics = field(default_factory=LanguageMetrics)
    centre: str = "en"
    groups: Mapping[str, frozenset[str]] = field(default_factory=dict)
    paired: PairedTest | None = field(default_factory=lambda: PairedTest("bootstrap"))
    output: Path | None = None
    search: SearchSettings = field(default_factory=lambda: SearchSettings({}))


@dataclass(frozen=True)
class DirectionRow:
    """One direction: a score of system and baseline, and a test of their difference, for each metric.

    Attributes:
        direction: From where, into what.
        zero_shot: The system was not trained on this direction.
        lines: Number of sentences.
        scores: Of the system.
        baseline: Of the baseline, if there is one.
        comparisons: The tests, if there was one.
        right_language: Share (0 to 1) of translations in the target language, in a table with zero-shot rows.
        baseline_right_language: The same for the baseline.
    """

    direction: Direction
    zero_shot: bool
    lines: int
    scores: tuple[Score, ...]
    baseline: tuple[Score, ...] = ()
    comparisons: tuple[Comparison, ...] = ()
    right_language: float | None = None
    baseline_right_language: float | None = None

    @property
    def gain(self) -> float:
        """Difference of the first metric to the baseline; positive is better."""
        sign = 1 if self.scores[0].higher_is_better else -1
        return sign * (self.scores[0].value - self.baseline[0].value)

    @property
    def significant(self) -> bool:
        """Whether the first metric differs from the baseline with p below 0.05."""
        return bool(self.comparisons) and self.comparisons[0].p_value < SIGNIFICANT

    def to_json(self) -> dict[str, object]:
        """The whole row as values that JSON can hold."""
        return {
            "direction": str(self.direction),
            "zero_shot": self.zero_shot,
            "lines": self.lines,
            "scores": [score_as_json(score) for score in self.scores],
            "baseline": [score_as_json(score) for score in self.baseline],
            "comparisons": [asdict(comparison) for comparison in self.comparisons],
            "right_language": self.right_language,
            "baseline_right_language": self.baseline_right_language,
        }


@dataclass(frozen=True)
class DirectionAverage:
    """Means over some directions, all weighted equally."""

    name: str
    rows: tuple[DirectionRow, ...]

    @property
    def scores(self) -> list[float]:
        """The mean of each metric."""
        return _means([row.scores for row in self.rows])

    @property
    def baseline(self) -> list[float]:
        """The mean of each metric of the baseline; empty without one."""
        return _means([row.baseline for row in self.rows])

    @property
    def win_ratio(self) -> float:
        """Percentage of directions that are better than the baseline; a tie is no win."""
        return 100 * sum(row.gain > 0 for row in self.rows) / len(self.rows)

    def significant(self, sign: int) -> int:
        """How many directions are better (1) or worse (-1) with p below 0.05, each tested for itself."""
        return sum(row.significant and sign * row.gain > 0 for row in self.rows)

    def to_json(self) -> dict[str, object]:
        """The means, and with a baseline how many directions are better and worse."""
        record: dict[str, object] = {
            "name": self.name,
            "directions": [str(row.direction) for row in self.rows],
            "scores": self.scores,
        }
        if self.baseline:
            record |= {
                "baseline": self.baseline,
                "win_ratio": self.win_ratio,
                "significantly_better": self.significant(1),
                "significantly_worse": self.significant(-1),
            }
        return record


def _means(scores: Sequence[tuple[Score, ...]]) -> list[float]:
    return [sum(score.value for score in column) / len(column) for column in zip(*scores, strict=True)]


@dataclass(frozen=True)
class DirectionsReport:
    """The findings of an evaluation of many directions.

    Attributes:
        system: Its name.
        baseline: The name of the baseline, if there is one.
        test: The test sets.
        rows: The directions.
        averages: Means over them.
        notes: Signatures and warnings, one line each.
    """

    system: str
    baseline: str | None
    test: str
    rows: tuple[DirectionRow, ...]
    averages: tuple[DirectionAverage, ...]
    notes: tuple[str, ...]

    def to_json(self) -> dict[str, object]:
        """The whole report as values that JSON can hold; numbers are not rounded."""
        return {
            "system": self.system,
            "baseline": self.baseline,
            "test": self.test,
            "metrics": [score.name for score in self.rows[0].scores],
            "directions": [row.to_json() for row in self.rows],
            "averages": [average.to_json() for average in self.averages],
            "notes": self.notes,
        }

    def as_text(self) -> str:
        """Averages, then every direction, then notes."""
        title = f"{self.system} against {self.baseline}" if self.baseline else self.system
        blocks = [[f"{title} on {self.test}"], table(self._average_rows()), table(self._direction_rows())]
        return "\n\n".join("\n".join(lines) for lines in (*blocks, self.notes) if lines)

    def _score_titles(self) -> Iterator[str]:
        for score in self.rows[0].scores:
            yield score.name
            if self.baseline:
                yield f"baseline {score.name}"

    def _average_rows(self) -> Iterator[list[str]]:
        tested = bool(self.rows[0].comparisons)
        yield [
            "average",
            "directions",
            *self._score_titles(),
            *(["win ratio [%]"] if self.baseline else []),
            *([f"better, p < {SIGNIFICANT}", "worse"] if tested else []),
        ]
        for average in self.averages:
            row = [average.name, str(len(average.rows)), *_cells(average.scores, average.baseline)]
            row += [f"{average.win_ratio:.2f}"] if self.baseline else []
            yield row + ([str(average.significant(sign)) for sign in (1, -1)] if tested else [])

    def _direction_rows(self) -> Iterator[list[str]]:
        tested = bool(self.rows[0].comparisons)
        looked = any(row.right_language is not None for row in self.rows)
        heads = ["right language [%]", *(["baseline [%]"] if self.baseline else [])] if looked else []
        yield ["direction", "lines", *self._score_titles(), *(["p"] if tested else []), *heads]
        for row in self.rows:
            scores = _cells([score.value for score in row.scores], [score.value for score in row.baseline])
            cells = [f"{row.direction}{' (zero-shot)' * row.zero_shot}", f"{row.lines:,}", *scores]
            cells += [f"{row.comparisons[0].p_value:.4f}{' *' * row.significant}"] if tested else []
            shares = (row.right_language, row.baseline_right_language)[: len(heads)]
            yield cells + ["" if share is None else f"{100 * share:.1f}" for share in shares]


def _cells(system: Sequence[float], baseline: Sequence[float]) -> list[str]:
    """Scores of each metric; with a baseline, its own beside each."""
    columns = zip(system, baseline, strict=True) if baseline else ((value,) for value in system)
    return [f"{value:.2f}" for column in columns for value in column]


class _System:
    """A model, a folder of translations, or a pattern of models or files with one for each direction.

    Attributes:
        trained: Directions that it was trained on; none where that is not known.
        available: The directions to evaluate when nobody says which.
    """

    def __init__(self, name: str, search: SearchSettings, warn: LogFn) -> None:
        self.name, self._pattern, self._search, self._warn = name, name, search, warn
        self.trained: tuple[Direction, ...] = ()
        self.available: tuple[Direction, ...] = ()
        self._open: tuple[str, Translator] | None = None
        files = sorted(Path(name).glob(f"*{HYPOTHESES}")) if Path(name).is_dir() else []
        if files:
            self._pattern = str(Path(name) / f"{{direction}}{HYPOTHESES}")
            self.available = tuple(parse_direction(file.stem) for file in files)
        elif re.search(r"[{}]", _FIELD.sub("", name)):
            raise UsageError(f"{name}: unknown field", "the fields are {direction}, {source} and {target}")
        elif not _FIELD.search(name):
            self.trained = self.available = known_directions(texts.metadata(name))

    def check(self, direction: Direction) -> None:
        """Raises a UsageError or ModelError where there would be no translation, before any is made."""
        place = self._place(direction)
        if place.endswith(HYPOTHESES) and not Path(place).exists():
            known = ", ".join(map(str, self.available))
            raise UsageError(f"{self.name}: no translation {direction}{HYPOTHESES}", f"it has {known}")
        if not Path(place).is_file():
            texts.selected_target(place, direction)

    def translate(self, direction: Direction, source: Text) -> Text:
        """The translation of a text: that of a file, or by a model, which stays open for the next."""
        place = self._place(direction)
        if Path(place).is_file():
            return texts.read_text(Path(place))
        if self._open is None or self._open[0] != place:
            self._open = place, texts.load_translator(place, self._search, self._warn)
        return texts.translate(f"{self.name} {direction}", self._open[1], source, direction)

    def _place(self, direction: Direction) -> str:
        values = {"direction": str(direction), "source": direction.source, "target": direction.target}
        return _FIELD.sub(lambda match: values[match[1]], self._pattern)


def evaluate_directions(request: DirectionsRequest, warn: LogFn, progress: LogFn) -> DirectionsReport:
    """Translates and scores direction by direction, and averages; `progress` hears of each.

    Nothing is translated before everything is known to be there.

    Raises:
        UsageError: A name, setting, direction or device is wrong.
        DataError: A text is missing or damaged, or two differ in their number of lines.
        ModelError: A model is missing or damaged.
        ResourceError: A translation cannot be written.
    """
    names = [request.system] if request.baseline is None else [request.system, request.baseline]
    systems = [_System(name, request.search, warn) for name in names]
    system = systems[0]
    tests = texts_at(request.test) if request.test else texts_of_run(request.system)
    directions, notes = _choose(request, system, tests.has)
    if not directions:
        raise DataError(f"{tests.name}: no test set for any direction", "name others with --test")
    for direction in directions:
        for each in systems:
            each.check(direction)
        if not tests.has(direction):
            tests.read(direction)  # says what is missing
        request.metrics.of(direction.target)  # a missing tokenizer is said now
    if request.output is not None:
        with disk_errors(request.output):
            request.output.mkdir(parents=True, exist_ok=True)
    zero_shot = [pair for pair in directions if system.trained and pair not in system.trained]
    languages = _languages_of(directions) if zero_shot else []
    paired, rows = None, []
    if request.paired is not None and request.baseline is not None:
        paired = replace(request.paired, baseline=1)
    for direction in directions:
        source, reference = tests.read(direction)
        translations = [each.translate(direction, source) for each in systems]
        if request.output is not None:
            lines = "".join(f"{line}\n" for line in translations[0].lines)
            write_output(request.output / f"{direction}{HYPOTHESES}", lines)
        metrics = request.metrics.of(direction.target)
        report = compare(translations, reference.references, metrics, paired, source)
        ours, *theirs = report.systems
        shares = [_right(text, direction, languages) for text in translations]
        base = theirs[0].scores if theirs else ()
        about = (direction, direction in zero_shot, report.lines)
        rows.append(DirectionRow(*about, ours.scores, base, ours.comparisons, *shares))
        notes += report.warnings
        notes += [f"translated in {each.precision}" for each in report.systems if each.precision]
        notes += [f"{score.name}|{score.signature}" for score in ours.scores]
        scores = ", ".join(f"{score.name} {score.value:.2f}" for score in ours.scores)
        progress(f"{direction}: {report.lines:,} lines, {scores}")
    return DirectionsReport(
        request.system,
        request.baseline,
        tests.name,
        tuple(rows),
        tuple(_averages(rows, request.centre, request.groups)),
        tuple(dict.fromkeys([*notes, *request.metrics.notes])),
    )


def _choose(
    request: DirectionsRequest, system: _System, has_test: Callable[[Direction], bool]
) -> tuple[list[Direction], list[str]]:
    """The directions to score, and a note on those without a test set that were left out."""
    if request.directions:
        return list(request.directions), []
    chosen = list(system.available)
    if not chosen:
        raise UsageError(f"{system.name} does not say its directions", "use --directions en-de,de-en")
    if request.zero_shot:
        pairs = (Direction(*pair) for pair in permutations(_languages_of(chosen), 2))
        chosen += [pair for pair in pairs if pair not in chosen and has_test(pair)]
    missing = [pair for pair in chosen if not has_test(pair)]
    notes = [f"there is no test set for {', '.join(map(str, missing))}: left out"] if missing else []
    return [pair for pair in chosen if pair not in missing], notes


def _languages_of(directions: Sequence[Direction]) -> list[str]:
    return sorted({language for direction in directions for language in direction})


def _right(text: Text, direction: Direction, languages: Sequence[str]) -> float | None:
    """The share of lines in the target language and not in another of the table; None where it is unknown."""
    if not languages or not is_known_language(direction.target):
        return None
    guessed = [next(iter(language_shares(line, languages)), None) for line in text.lines]
    known = [name for name in guessed if name is not None]
    return known.count(direction.target) / len(known) if known else None


def _averages(
    rows: Sequence[DirectionRow], centre: str, groups: Mapping[str, frozenset[str]]
) -> Iterator[DirectionAverage]:
    trained = [row for row in rows if not row.zero_shot]
    members = {
        "all trained": trained,
        f"out of {centre}": [row for row in trained if row.direction.source == centre],
        f"into {centre}": [row for row in trained if row.direction.target == centre],
        f"without {centre}": [row for row in trained if centre not in row.direction],
        "zero-shot": [row for row in rows if row.zero_shot],
    }
    for name, languages in groups.items():
        inside = languages | {centre}
        members[name] = [row for row in trained if inside.issuperset(row.direction)]
    for name, some in members.items():
        if some:
            yield DirectionAverage(name, tuple(some))
