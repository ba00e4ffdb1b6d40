"""Score one or several systems, test their differences, and write that as a table or as JSON."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, dataclass

from deepwire.config.counts import counted
from deepwire.errors import UsageError
from deepwire.evaluation.metric import Floats, Metric, Score, check_line_counts, is_gap, reference_count
from deepwire.evaluation.metric_choice import (
    BleuMetric,
    MultiBleuMetric,
    TerMetric,
    script_without_spaces,
)
from deepwire.evaluation.significance import (
    DEFAULT_SAMPLES,
    DEFAULT_SEED,
    Comparison,
    Interval,
    paired_test,
)
from deepwire.evaluation.texts import Text

SIGNIFICANT = 0.05
_SUSPICIOUS_SHARE = 0.10
# A resample of one sentence is always the text itself: its p-value would be the smallest there is.
_FEW_SENTENCES = 20
_TOKENIZERS_FOR_RAW_TEXT = ("13a", "intl", "zh", "ja-mecab", "ko-mecab", "char")
_FREE_STANDING_STOP = re.compile(r" [.。।۔]\s*$")
_ATTACHED_STOP = re.compile(r"\w\.\s*$")


@dataclass(frozen=True)
class PairedTest:
    """The test to run on the differences to the baseline.

    Attributes:
        test: `bootstrap` or `randomization`.
        baseline: Position of the baseline among the systems.
        samples: Number of resamples or shuffles; the usual number of the test when None.
        seed: Seed of the random numbers; the usual one when None.
    """

    test: str
    baseline: int = 0
    samples: int | None = None
    seed: int | None = None

    def check(self, systems: int) -> None:
        """Raises a UsageError where the test is unknown, or there are fewer than two systems."""
        if self.test not in DEFAULT_SAMPLES:
            raise UsageError(
                f"unknown paired test {self.test!r}", f"choose one of {', '.join(DEFAULT_SAMPLES)}"
            )
        if systems < 2:
            raise UsageError(
                "a paired test needs two or more systems", "give another hypothesis file or model"
            )


@dataclass(frozen=True)
class SystemResult:
    """The scores of one system and its comparisons with the baseline, one per metric.

    `precision` is the number format in which a model translated.
    """

    name: str
    scores: tuple[Score, ...]
    comparisons: tuple[Comparison, ...] = ()
    precision: str = ""


@dataclass(frozen=True)
class ScoreReport:
    """The findings of an evaluation.

    Attributes:
        lines: Number of sentences.
        references: Names of the references.
        systems: Results, in the order the systems were given.
        baseline: Position of the baseline among the systems; None when nothing was tested.
        warnings: About odd texts, one line each.
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
    """Scores systems, and tests each against the baseline if there is a test.

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
    results = []
    for number, (system, rows) in enumerate(zip(systems, counts, strict=True)):
        scores = [
            metric.score_of(row, reference_count(answers)) for metric, row in zip(metrics, rows, strict=True)
        ]
        tests: tuple[Comparison, ...] = ()
        if paired is not None and number != paired.baseline:
            tests = paired_comparison(metrics, counts[paired.baseline], rows, paired)
        results.append(SystemResult(system.name, tuple(scores), tests, system.precision))
    return ScoreReport(
        lines=len(answers[0]),
        references=tuple(text.name for text in references),
        systems=tuple(results),
        baseline=None if paired is None else paired.baseline,
        warnings=(
            *gap_warnings(references),
            *text_warnings([*systems, *references], metrics),
            *few_sentences(paired, len(answers[0])),
        ),
    )


def paired_comparison(
    metrics: Sequence[Metric], baseline: Sequence[Floats], system: Sequence[Floats], paired: PairedTest
) -> tuple[Comparison, ...]:
    """Tests a system against the baseline, both as `paired_test` takes them for each metric."""
    seed = DEFAULT_SEED if paired.seed is None else paired.seed
    return tuple(
        paired_test(metric, first, second, paired.test, paired.samples, seed)
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


def gap_warnings(references: Sequence[Text]) -> list[str]:
    """Warnings of references without text in some lines, one line each."""
    effect = "they count as missing there" if len(references) > 1 else "every word of a system is wrong there"
    gaps = [(text.name, [*map(is_gap, text.lines)]) for text in references]
    return [
        f"{name} is empty in {counted(sum(rows), 'line')}, first in line {rows.index(True) + 1}: {effect}"
        for name, rows in gaps
        if any(rows)
    ]


def text_warnings(texts: Sequence[Text], metrics: Sequence[Metric]) -> list[str]:
    """Warnings of texts, one line each: tokenised text for metrics of raw text, or the reverse."""
    warnings: list[str] = []
    names = [metric.tokenize for metric in metrics if isinstance(metric, BleuMetric)]
    of_raw_text = [name for name in names if name in _TOKENIZERS_FOR_RAW_TEXT]
    of_tokens = any(isinstance(metric, MultiBleuMetric) for metric in metrics)
    for text in texts:
        if of_raw_text and _share(text.lines, _FREE_STANDING_STOP) > _SUSPICIOUS_SHARE:
            warnings.append(
                f"{text.name} looks tokenised (lines end in a free-standing full stop), but BLEU with "
                f"tokenizer {of_raw_text[0]} expects raw text: detokenise it, or use the metric multi-bleu"
            )
        if of_tokens and _share(text.lines, _ATTACHED_STOP) > _SUSPICIOUS_SHARE:
            warnings.append(
                f"{text.name} looks like raw text (lines end in a word with a full stop), but multi-bleu "
                "counts white-space tokens: tokenise it, or use the metric bleu"
            )
    odd = next(filter(None, (without_spaces(text, metrics) for text in texts)), "")
    return [*warnings, odd] if odd else warnings


def _share(lines: Sequence[str], pattern: re.Pattern[str]) -> float:
    return sum(pattern.search(line) is not None for line in lines) / max(len(lines), 1)


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
    """How a sentence names a metric that finds words by the spaces between them; `""` for others."""
    match metric:
        case TerMetric(characters=False) | MultiBleuMetric():
            return metric.name
        case BleuMetric(tokenize="13a" | "intl" as tokenize):
            return f"BLEU|tok:{tokenize}"
        case _:
            return ""


def as_text(report: ScoreReport) -> str:
    """Scores, intervals and p-values as a table, then one signature per metric."""
    if report.baseline is None:
        rows = [["system", *(score.name for score in report.systems[0].scores)]]
        for system in report.systems:
            rows.append([system.name, *(f"{score.value:.{score.digits}f}" for score in system.scores)])
        blocks = ["\n".join(table(rows))]
    else:
        tests = next(system for system in report.systems if system.comparisons).comparisons
        title = {"bootstrap": "paired bootstrap (Koehn 2004)", "randomization": "approximate randomisation"}
        test = f"{title[tests[0].test]}, two-sided; {tests[0].samples} samples, seed {tests[0].seed}"
        note = f"{test}; * p < {SIGNIFICANT}"
        blocks = ["\n".join(table(_test_rows(report), names=2)), note]
    signatures = [f"{score.name}|{score.signature}" for score in report.systems[0].scores]
    signatures += precisions(report)
    return "\n\n".join([*blocks, "\n".join(signatures)])


def precisions(report: ScoreReport) -> list[str]:
    """The number formats in which models translated, one line each."""
    return [f"{each.name}: translated in {each.precision}" for each in report.systems if each.precision]


def as_json(report: ScoreReport) -> dict[str, object]:
    """The whole report as values that JSON can hold; scores are not rounded."""
    systems = [
        {
            "name": system.name,
            "baseline": number == report.baseline,
            **({"precision": system.precision} if system.precision else {}),
            "scores": [
                {**score_as_json(score), "higher_is_better": score.higher_is_better}
                for score in system.scores
            ],
            "comparisons": [asdict(comparison) for comparison in system.comparisons],
        }
        for number, system in enumerate(report.systems)
    ]
    return {
        "lines": report.lines,
        "references": report.references,
        "systems": systems,
        "warnings": report.warnings,
    }


def score_as_json(score: Score) -> dict[str, object]:
    """A score, its signature and its details."""
    return {"name": score.name, "score": score.value, "signature": score.signature, **score.details}


def _test_rows(report: ScoreReport) -> Iterator[list[str]]:
    other = next(system for system in report.systems if system.comparisons)
    with_intervals = other.comparisons[0].difference_interval is not None
    header = ["system", "metric", "score", "95 % interval", "difference", "95 % interval", "p"]
    rows = [header]
    for place in range(len(other.scores)):
        for number, system in enumerate(report.systems):
            score, digits = system.scores[place], system.scores[place].digits
            row = [system.name, score.name, f"{score.value:.{digits}f}"]
            if number == report.baseline:
                row += [_interval(other.comparisons[place].baseline_interval, digits), "baseline", "", ""]
            else:
                test = system.comparisons[place]
                row += [
                    _interval(test.system_interval, digits),
                    f"{test.difference:+.{digits}f}",
                    _interval(test.difference_interval, digits, sign="+"),
                    f"{test.p_value:.4f}" + (" *" if test.p_value < SIGNIFICANT else ""),
                ]
            rows.append(row)
    for row in rows:
        yield row if with_intervals else [*row[:3], row[4], row[6]]


def aligned(rows: Sequence[Sequence[str]], right: Sequence[bool]) -> list[str]:
    """Rows of cells as lines; the columns that `right` says, such as numbers, are flush right."""
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.rjust(width) if flush else cell.ljust(width)
            for cell, width, flush in zip(row, widths, right, strict=True)
        ).rstrip()
        for row in rows
    ]


def table(rows: Iterable[Sequence[str]], names: int = 1) -> list[str]:
    """Aligned lines; the first `names` columns hold names, the others numbers."""
    head, *others = rows
    return aligned([head, *others], [column >= names for column in range(len(head))])


def _interval(interval: Interval | None, digits: int, *, sign: str = "") -> str:
    if interval is None:
        return ""
    return f"{interval.low:{sign}.{digits}f} .. {interval.high:{sign}.{digits}f}"
