"""Score one or several systems, test their differences, and write that as a table or as JSON."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from deepwire.config.counts import counted
from deepwire.errors import UsageError
from deepwire.evaluation.metric import (
    Floats,
    Metric,
    Score,
    check_line_counts,
    detokenized_share,
    is_gap,
    reference_count,
    tokenized_share,
)
from deepwire.evaluation.metric_choice import script_without_spaces
from deepwire.evaluation.significance import (
    DEFAULT_SAMPLES,
    DEFAULT_SEED,
    Comparison,
    Interval,
    approximate_randomization,
    paired_bootstrap,
)
from deepwire.evaluation.standard_metrics import BleuMetric, MultiBleuMetric, TerMetric, multi_bleu_line
from deepwire.evaluation.text_table import aligned
from deepwire.evaluation.texts import Text

_SUSPICIOUS_SHARE = 0.10
_TESTS = {"bootstrap": paired_bootstrap, "randomization": approximate_randomization}
# A resample of one sentence is always the text itself: its p-value would be the smallest there is.
_FEW_SENTENCES = 20
_TOKENIZERS_FOR_RAW_TEXT = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "char")


@dataclass(frozen=True)
class PairedTest:
    """Which test to run on the differences to the baseline.

    Attributes:
        test: ``bootstrap`` or ``randomization``.
        baseline: Position of the baseline among the systems.
        samples: Number of resamples or shuffles; the usual number of the test when None.
        seed: Seed of the random numbers; the usual one when None.
    """

    test: str
    baseline: int = 0
    samples: int | None = None
    seed: int | None = None

    def check(self, systems: int) -> None:
        """Check that the test exists and has something to compare.

        Raises:
            UsageError: The test is unknown, or there are fewer than two systems.
        """
        if self.test not in _TESTS:
            raise UsageError(f"unknown paired test {self.test!r}", f"choose one of {', '.join(_TESTS)}")
        if systems < 2:
            raise UsageError(
                "a paired test needs two or more systems", "give another hypothesis file or model"
            )


@dataclass(frozen=True)
class SystemResult:
    """The scores of one system, and its comparisons with the baseline if there are any; one per metric.

    `precision` is the number format in which a model translated, where one did.
    """

    name: str
    scores: tuple[Score, ...]
    comparisons: tuple[Comparison, ...] = ()
    precision: str = ""


@dataclass(frozen=True)
class ScoreReport:
    """Everything an evaluation found.

    Attributes:
        lines: Number of sentences.
        references: Names of the references.
        systems: Results, in the order the systems were given.
        baseline: Position of the baseline among the systems; None when nothing was tested.
        warnings: What is odd about the texts, one line each.
    """

    lines: int
    references: tuple[str, ...]
    systems: tuple[SystemResult, ...]
    baseline: int | None
    warnings: tuple[str, ...]


def compare(
    systems: Sequence[Text],
    references: Sequence[Text],
    metrics: Sequence[Metric],
    paired: PairedTest | None = None,
    source: Text | None = None,
) -> ScoreReport:
    """Score systems, and test each against the baseline.

    Args:
        systems: At least one; at least two for a test.
        references: At least one.
        metrics: At least one.
        paired: The test; None for scores only.
        source: What was translated, for metrics that read it.

    Raises:
        DataError: Two texts differ in their number of lines, or one is empty.
        UsageError: The test is unknown or has nothing to compare, or a metric lacks the source.
    """
    if paired is not None:
        paired.check(len(systems))
    check_line_counts([(text.name, text.lines) for text in (*systems, *references)])
    answers = [text.lines for text in references]
    read = None if source is None else source.lines
    counts = [[metric.statistics(system.lines, answers, read) for metric in metrics] for system in systems]
    results = tuple(
        SystemResult(
            name=system.name,
            scores=tuple(
                metric.score_of(row, reference_count(answers))
                for metric, row in zip(metrics, rows, strict=True)
            ),
            comparisons=()
            if paired is None or number == paired.baseline
            else paired_comparison(metrics, counts[paired.baseline], rows, paired),
            precision=system.precision,
        )
        for number, (system, rows) in enumerate(zip(systems, counts, strict=True))
    )
    return ScoreReport(
        lines=len(answers[0]),
        references=tuple(text.name for text in references),
        systems=results,
        baseline=None if paired is None else paired.baseline,
        warnings=(
            *gap_warnings(systems, references, source),
            *text_warnings([*systems, *references], metrics),
            *few_sentences(paired, len(answers[0])),
        ),
    )


def paired_comparison(
    metrics: Sequence[Metric], baseline: Sequence[Floats], system: Sequence[Floats], paired: PairedTest
) -> tuple[Comparison, ...]:
    """Test a system against the baseline, metric by metric.

    Args:
        metrics: M of them.
        baseline: For each metric its sentence statistics, ``[N, K]``, or ``[S, N, K]`` of S runs.
        system: The same of the system.
        paired: The test.

    Raises:
        DataError: The two have different numbers of sentences.
    """
    samples = DEFAULT_SAMPLES[paired.test] if paired.samples is None else paired.samples
    seed = DEFAULT_SEED if paired.seed is None else paired.seed
    run = _TESTS[paired.test]
    return tuple(
        run(metric, first, second, samples=samples, seed=seed)
        for metric, first, second in zip(metrics, baseline, system, strict=True)
    )


def few_sentences(paired: PairedTest | None, sentences: int, unit: str = "sentences") -> list[str]:
    """Warnings of a test on so many sentences, one line each."""
    if paired is None or paired.test != "bootstrap" or sentences >= _FEW_SENTENCES:
        return []
    return [
        f"fewer than {_FEW_SENTENCES} {unit}: a bootstrap draws the same few again and again, so its "
        "p-values and intervals say little; randomization (--paired randomization) is valid for any number"
    ]


def gap_warnings(systems: Sequence[Text], references: Sequence[Text], source: Text | None) -> list[str]:
    """Which references or source lack lines that other texts have, one line each."""
    gaps = [list(map(is_gap, text.lines)) for text in references]
    none = [all(row) for row in zip(*gaps, strict=True)]
    silent = [all(map(is_gap, row)) for row in zip(*(system.lines for system in systems), strict=True)]
    empty = [
        (text.name, [gap > no for gap, no in zip(rows, none, strict=True)], "it counts as missing there")
        for text, rows in zip(references, gaps, strict=True)
    ]
    each = references[0].name if len(references) == 1 else "each reference"
    unanswerable = [no > nothing for no, nothing in zip(none, silent, strict=True)]
    empty.append((each, unanswerable, "every word of a system counts as wrong there"))
    if source is not None:
        rows = [is_gap(line) > no for line, no in zip(source.lines, none, strict=True)]
        empty.append((source.name, rows, "there is a reference, but nothing to translate"))
    return [
        f"{name} is empty in {counted(sum(rows), 'line')}, first in line {rows.index(True) + 1}: {effect}"
        for name, rows, effect in empty
        if any(rows)
    ]


def text_warnings(texts: Sequence[Text], metrics: Sequence[Metric]) -> list[str]:
    """Warnings of texts, one line each: tokenised text for metrics of raw text, or the reverse."""
    warnings: list[str] = []
    raw_tokenizers = [
        metric.tokenize
        for metric in metrics
        if isinstance(metric, BleuMetric) and metric.tokenize in _TOKENIZERS_FOR_RAW_TEXT
    ]
    for text in texts:
        if raw_tokenizers and (share := tokenized_share(text.lines)) > _SUSPICIOUS_SHARE:
            warnings.append(
                f"{text.name} looks tokenised ({share:.0%} of lines end in a free-standing full stop), but "
                f"BLEU with tokenizer {raw_tokenizers[0]} expects raw text: detokenise it, or use the metric "
                "multi-bleu"
            )
        is_multi_bleu = any(isinstance(metric, MultiBleuMetric) for metric in metrics)
        if is_multi_bleu and (share := detokenized_share(text.lines)) > _SUSPICIOUS_SHARE:
            warnings.append(
                f"{text.name} looks like raw text ({share:.0%} of lines end in a word with a full stop), but "
                "multi-bleu counts white-space tokens: tokenise it, or use the metric bleu"
            )
    for text in texts:
        if odd := without_spaces(text, metrics):
            return [*warnings, odd]  # the others are of the same language
    return warnings


def without_spaces(text: Text, metrics: Sequence[Metric]) -> str:
    """A warning if metrics count words between spaces in a text of a script that has none; else empty."""
    counting = [name for metric in metrics if (name := _between_spaces(metric))]
    script = script_without_spaces(text.lines) if counting else ""
    if not script:
        return ""
    odd = f"{text.name} is written without spaces ({script}), where {' and '.join(counting)} says little"
    if counting == ["multi-bleu"]:
        return f"{odd}: cut it into words, or use the metric bleu"
    return f"{odd}: name its language, or choose a tokenizer such as char"


def _between_spaces(metric: Metric) -> str:
    """How a sentence names a metric that finds words by the spaces between them; ``""`` for others."""
    match metric:
        case BleuMetric(tokenize="13a" | "intl" as tokenize):
            return f"BLEU|tok:{tokenize}"
        case TerMetric(characters=False) | MultiBleuMetric():
            return metric.name
        case _:
            return ""


JsonValue = str | int | float | bool | None | list["JsonValue"] | dict[str, "JsonValue"]

_SIGNIFICANT = 0.05


def as_text(report: ScoreReport) -> str:
    """Write scores, intervals and p-values as a table, then one signature per metric."""
    if report.baseline is None:
        blocks = [_table(_score_rows(report), names=1)]
    else:
        blocks = [_table(_test_rows(report), names=2), _test_note(report)]
    detail = [
        f"{system.name}: {multi_bleu_line(score)}"
        for system in report.systems
        for score in system.scores
        if score.name == MultiBleuMetric.name
    ]
    signatures = [f"{score.name}|{score.signature}" for score in report.systems[0].scores]
    signatures += precisions(report)
    blocks += ["\n".join(lines) for lines in (detail, signatures) if lines]
    return "\n\n".join(blocks)


def precisions(report: ScoreReport) -> list[str]:
    """In which number format models translated, one line each."""
    return [f"{each.name}: translated in {each.precision}" for each in report.systems if each.precision]


def as_json(report: ScoreReport) -> dict[str, JsonValue]:
    """Return everything in the report as JSON values; scores are not rounded."""
    systems: list[JsonValue] = []
    for number, system in enumerate(report.systems):
        scores: list[JsonValue] = [
            {
                "name": score.name,
                "score": score.value,
                "signature": score.signature,
                "higher_is_better": score.higher_is_better,
                **{key: plain(value) for key, value in score.details.items()},
            }
            for score in system.scores
        ]
        comparisons: list[JsonValue] = [
            {key: plain(value) for key, value in asdict(comparison).items()}
            for comparison in system.comparisons
        ]
        systems.append(
            {
                "name": system.name,
                "baseline": number == report.baseline,
                **({"precision": system.precision} if system.precision else {}),
                "scores": scores,
                "comparisons": comparisons,
            }
        )
    return {
        "lines": report.lines,
        "references": list(report.references),
        "systems": systems,
        "warnings": list(report.warnings),
    }


def plain(value: object) -> JsonValue:
    """A value of a report in the types of JSON."""
    if isinstance(value, tuple):
        return [plain(item) for item in value]
    if isinstance(value, dict):
        return {str(key): plain(item) for key, item in value.items()}
    if value is None or isinstance(value, str | int | float):
        return value
    raise TypeError(f"no JSON form for {type(value).__name__}")


def _score_rows(report: ScoreReport) -> Iterator[list[str]]:
    yield ["system", *(score.name for score in report.systems[0].scores)]
    for system in report.systems:
        yield [system.name, *(f"{score.value:.{score.digits}f}" for score in system.scores)]


def _test_rows(report: ScoreReport) -> Iterator[list[str]]:
    with_intervals = any(
        comparison.difference_interval for system in report.systems for comparison in system.comparisons
    )
    yield (
        ["system", "metric", "score", "95 % interval", "difference", "95 % interval", "p"]
        if with_intervals
        else ["system", "metric", "score", "difference", "p"]
    )
    for place in range(len(report.systems[0].scores)):
        for number, system in enumerate(report.systems):
            row = _baseline_row(report, place) if number == report.baseline else _system_row(system, place)
            yield row if with_intervals else [row[0], row[1], row[2], row[4], row[6]]


def _baseline_row(report: ScoreReport, place: int) -> list[str]:
    system = report.systems[report.baseline or 0]
    other = next(system for system in report.systems if system.comparisons)
    score = system.scores[place]
    interval = _interval(other.comparisons[place].baseline_interval, score.digits)
    return [system.name, score.name, f"{score.value:.{score.digits}f}", interval, "baseline", "", ""]


def _system_row(system: SystemResult, place: int) -> list[str]:
    score, comparison = system.scores[place], system.comparisons[place]
    return [
        system.name,
        score.name,
        f"{score.value:.{score.digits}f}",
        _interval(comparison.system_interval, score.digits),
        f"{comparison.difference:+.{score.digits}f}",
        _interval(comparison.difference_interval, score.digits, sign=True),
        _p_value(comparison),
    ]


def _table(rows: Iterable[list[str]], names: int) -> str:
    """Aligned lines; the first ``names`` columns hold names, the others numbers."""
    cells = list(rows)
    return "\n".join(aligned(cells, [column >= names for column in range(len(cells[0]))]))


def _interval(interval: Interval | None, digits: int, *, sign: bool = False) -> str:
    if interval is None:
        return ""
    plus = "+" if sign else ""
    low, high = (f"{edge:{plus}.{digits}f}" for edge in (interval.low, interval.high))
    return f"{low} .. {high}"


def _p_value(comparison: Comparison) -> str:
    return f"{comparison.p_value:.4f}" + (" *" if comparison.p_value < _SIGNIFICANT else "")


def _test_note(report: ScoreReport) -> str:
    comparison = next(system for system in report.systems if system.comparisons).comparisons[0]
    return f"{title_of_test(comparison)}; * p < {_SIGNIFICANT}"


def title_of_test(comparison: Comparison) -> str:
    """Which test a comparison is, with its settings."""
    title = {
        "bootstrap": "paired bootstrap (Koehn 2004), two-sided",
        "randomization": "approximate randomisation (Riezler & Maxwell 2005), two-sided",
    }[comparison.test]
    return f"{title}; {comparison.samples} samples, seed {comparison.seed}"
