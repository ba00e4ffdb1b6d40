"""The table of many directions: scores of each, averages over groups, comparison with a baseline."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace

from deepwire.data.languages import Direction
from deepwire.evaluation.comparison import PairedTest, compare, score_as_json
from deepwire.evaluation.metric import Metric, Score
from deepwire.evaluation.multilingual.direction_names import Group
from deepwire.evaluation.significance import Comparison, holm
from deepwire.evaluation.texts import Text

SIGNIFICANT = 0.05


@dataclass(frozen=True)
class DirectionFacts:
    """Facts about a direction besides its scores.

    Attributes:
        direction: From where, into what.
        zero_shot: The system was not trained on this direction.
        training_pairs: Pairs of the direction in the training text, if known.
        right_language: Share (0 to 1) of hypotheses in the target language, if somebody looked.
        baseline_right_language: The same for the baseline.
        reference_right_language: The same for the reference: what the check is worth.
    """

    direction: Direction
    zero_shot: bool = False
    training_pairs: int | None = None
    right_language: float | None = None
    baseline_right_language: float | None = None
    reference_right_language: float | None = None


@dataclass(frozen=True)
class DirectionRow:
    """One direction: a score of system and baseline, and a test of their difference, for each metric."""

    about: DirectionFacts
    lines: int
    scores: tuple[Score, ...]
    baseline: tuple[Score, ...] = ()
    comparisons: tuple[Comparison, ...] = ()

    @property
    def direction(self) -> Direction:
        """From where, into what."""
        return self.about.direction

    @property
    def gain(self) -> float:
        """Difference of the first metric to the baseline; positive is better."""
        sign = 1 if self.scores[0].higher_is_better else -1
        return sign * (self.scores[0].value - self.baseline[0].value)

    @property
    def p_value(self) -> float | None:
        """The p-value of the first metric; None without a test."""
        return self.comparisons[0].p_value if self.comparisons else None

    def to_json(self) -> dict[str, object]:
        """The facts, scores and comparisons of the direction."""
        return {
            **asdict(self.about),
            "direction": str(self.direction),
            "source": self.direction.source,
            "target": self.direction.target,
            "lines": self.lines,
            "scores": [score_as_json(score) for score in self.scores],
            "baseline": [score_as_json(score) for score in self.baseline],
            "comparisons": [asdict(comparison) for comparison in self.comparisons],
        }


@dataclass(frozen=True)
class DirectionAverage:
    """Means over some directions."""

    name: str
    rows: tuple[DirectionRow, ...]

    @property
    def values(self) -> tuple[float, ...]:
        """The mean of each metric."""
        return _means([row.scores for row in self.rows])

    @property
    def baseline(self) -> tuple[float, ...]:
        """The mean of each metric of the baseline; empty without one."""
        return _means([row.baseline for row in self.rows])

    @property
    def wins(self) -> int:
        """Directions that are better than the baseline by the first metric; a tie is no win."""
        return sum(row.gain > 0 for row in self.rows if row.baseline)

    @property
    def win_ratio(self) -> float | None:
        """Wins in percent of the directions; None without a baseline."""
        return 100.0 * self.wins / len(self.rows) if self.rows[0].baseline else None

    def significant(self, sign: int) -> int:
        """Directions that are better (1) or worse (-1) with p below 0.05, each tested for itself."""
        return sum(
            row.p_value is not None and row.p_value < SIGNIFICANT and sign * row.gain > 0 for row in self.rows
        )

    @property
    def correctable(self) -> bool:
        """Whether the test had so many samples that a p-value can pass Holm's correction."""
        tests = [row.comparisons[0] for row in self.rows if row.comparisons]
        return all(samples_for(len(tests), test.test) <= test.samples for test in tests)

    def corrected(self, sign: int) -> int:
        """Significant directions that are left by Holm's correction for their number."""
        tested = [(row.gain, row.p_value) for row in self.rows if row.p_value is not None]
        corrected = holm([p_value for _, p_value in tested])
        return sum(
            p_value < SIGNIFICANT and sign * gain > 0
            for (gain, _), p_value in zip(tested, corrected, strict=True)
        )

    def to_json(self) -> dict[str, object]:
        """The means, and with a baseline how many directions are better and worse."""
        record: dict[str, object] = {
            "name": self.name,
            "directions": [str(row.direction) for row in self.rows],
            "scores": self.values,
        }
        if self.win_ratio is not None:
            record |= {
                "baseline": self.baseline,
                "wins": self.wins,
                "win_ratio": self.win_ratio,
                "significantly_better": self.significant(1),
                "significantly_worse": self.significant(-1),
                "better_after_holm": self.corrected(1) if self.correctable else None,
                "worse_after_holm": self.corrected(-1) if self.correctable else None,
            }
        return record


def _means(scores: Sequence[tuple[Score, ...]]) -> tuple[float, ...]:
    return tuple(sum(score.value for score in column) / len(column) for column in zip(*scores, strict=True))


def samples_for(directions: int, test: str = "bootstrap") -> int:
    """The fewest samples with which a p-value can pass Holm's correction.

    It is 1 / (samples + 1) at least, and twice that in a bootstrap, which doubles the share of one side.
    """
    return round((2 if test == "bootstrap" else 1) * directions / SIGNIFICANT)


@dataclass(frozen=True)
class DirectionBlock:
    """Directions of one kind, such as those out of English.

    Attributes:
        title: Names the kind.
        averages: Over all of them first, then over groups.
        rows: The directions; none where other blocks show them.
    """

    title: str
    averages: tuple[DirectionAverage, ...]
    rows: tuple[DirectionRow, ...]

    def to_json(self) -> dict[str, object]:
        """The averages and the directions."""
        return {
            "title": self.title,
            "averages": [average.to_json() for average in self.averages],
            "directions": [row.to_json() for row in self.rows],
        }


@dataclass(frozen=True)
class DirectionsReport:
    """The findings of an evaluation of many directions.

    Attributes:
        system: Its name.
        baseline: The name of the baseline, if there is one.
        test: The test sets.
        metrics: Names of the metrics, in the order of all scores.
        blocks: Directions by kind; zero-shot ones apart.
        signatures: For each metric and signature the target languages that were scored with it.
        notes: For the reader, one line each.
        paired: The test that was run, if one was.
    """

    system: str
    baseline: str | None
    test: str
    metrics: tuple[str, ...]
    blocks: tuple[DirectionBlock, ...]
    signatures: Mapping[str, tuple[str, ...]]
    notes: tuple[str, ...]
    paired: PairedTest | None = None

    def to_json(self) -> dict[str, object]:
        """The whole report as values that JSON can hold; numbers are not rounded."""
        return {
            "system": self.system,
            "baseline": self.baseline,
            "test": self.test,
            "metrics": self.metrics,
            "blocks": [block.to_json() for block in self.blocks],
            "signatures": self.signatures,
            "notes": self.notes,
        }


@dataclass
class DirectionTable:
    """Scores direction by direction, so that texts of one direction are in memory at a time.

    Attributes:
        metrics: The metrics of a target language.
        centre: The language that most directions share; directions out of it and into it are averaged apart.
        groups: Groups to average, besides all directions.
        paired: The test against the baseline; None for none.
        rows: The directions so far.
        warnings: About their texts.
    """

    metrics: Callable[[str], Sequence[Metric]]
    centre: str = "en"
    groups: Sequence[Group] = ()
    paired: PairedTest | None = None
    rows: list[DirectionRow] = field(default_factory=list)
    warnings: list[str] = field(default_factory=list)

    def add(
        self,
        about: DirectionFacts,
        reference: Text,
        hypotheses: Text,
        baseline: Text | None = None,
        source: Text | None = None,
    ) -> DirectionRow:
        """Scores one direction; `source` is for metrics that read it.

        Raises:
            DataError: The texts differ in their number of lines.
            UsageError: A metric reads the source, and there is none.
        """
        systems = [hypotheses] if baseline is None else [hypotheses, baseline]
        paired = None if baseline is None or self.paired is None else replace(self.paired, baseline=1)
        report = compare(systems, reference.references, self.metrics(about.direction.target), paired, source)
        ours, *theirs = report.systems
        row = DirectionRow(
            about, report.lines, ours.scores, theirs[0].scores if theirs else (), ours.comparisons
        )
        self.warnings += report.warnings
        self.rows.append(row)
        return row

    def report(
        self, system: str, baseline: str | None, test: str, notes: Iterable[str] = ()
    ) -> DirectionsReport:
        """The whole table; at least one direction was added."""
        signatures: dict[str, set[str]] = {}
        for row in self.rows:
            for score in row.scores:
                signatures.setdefault(f"{score.name}|{score.signature}", set()).add(row.direction.target)
        return DirectionsReport(
            system=system,
            baseline=baseline,
            test=test,
            metrics=tuple(score.name for score in self.rows[0].scores),
            blocks=tuple(self._blocks()),
            signatures={name: tuple(sorted(languages)) for name, languages in signatures.items()},
            notes=(*dict.fromkeys(self.warnings), *notes),
            paired=self.paired if baseline else None,
        )

    def _blocks(self) -> Iterator[DirectionBlock]:
        centre = self.centre
        rows = sorted(self.rows, key=lambda row: (-(row.about.training_pairs or 0), str(row.direction)))
        trained = [row for row in rows if not row.about.zero_shot]
        kinds = {
            f"Out of {centre}": [row for row in trained if row.direction.source == centre],
            f"Into {centre}": [row for row in trained if row.direction.target == centre],
            f"Without {centre}": [row for row in trained if centre not in row.direction],
        }
        if sum(map(bool, kinds.values())) > 1:
            yield DirectionBlock("All trained directions", tuple(self._averages(trained)), ())
        kinds["Zero-shot: directions that were not trained"] = [row for row in rows if row.about.zero_shot]
        for title, members in kinds.items():
            if members:
                yield DirectionBlock(title, tuple(self._averages(members)), tuple(members))

    def _averages(self, rows: Sequence[DirectionRow]) -> Iterator[DirectionAverage]:
        yield DirectionAverage("all", tuple(rows))
        for group in self.groups:
            members = tuple(row for row in rows if group.has(row.direction, self.centre))
            if members:
                yield DirectionAverage(group.name, members)
