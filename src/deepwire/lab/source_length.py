"""BLEU and decoding speed by length of the source (MHPLSTM, Figs. 4 and 5; GTrans, Fig. 12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Literal

import numpy as np
import torch

from deepwire.config.counts import counted
from deepwire.errors import DataError, LogFn, UsageError
from deepwire.evaluation.metric import Metric
from deepwire.evaluation.metric_choice import script_without_spaces
from deepwire.evaluation.significance import Interval, interval, resampled_scores
from deepwire.evaluation.texts import Text
from deepwire.lab.finding import Axis, BarChart, Finding, Series, Table, provenance
from deepwire.lab.scorer import WARM_UP, Scorer

LengthUnit = Literal["words", "characters"]
SAMPLES = 1000


def unit_of(lines: Sequence[str]) -> LengthUnit:
    """Words, or characters where the script has no spaces between words, as that of Japanese."""
    return "characters" if script_without_spaces(lines) else "words"


def text_lengths(lines: Sequence[str], unit: LengthUnit) -> list[int]:
    """The length of each line: what stands between white space, or all characters but white space."""
    words = [line.split() for line in lines]
    return [len(each) if unit == "words" else sum(map(len, each)) for each in words]


@dataclass(frozen=True)
class Bucket:
    """Sentences (`rows`, from 0) whose source is `low` to `high` long; None: no upper end.

    `length` is that of the source of all of them.
    """

    low: int
    high: int | None
    rows: tuple[int, ...]
    length: int

    @property
    def name(self) -> str:
        """`8-11`, or `31+` without an upper end."""
        if self.high is None:
            return f"{self.low}+"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


@dataclass(frozen=True)
class LengthScore:
    """One model on one bucket.

    Attributes:
        bleu: BLEU of the bucket by itself, with the 95 % interval of bootstrap resamples.
        sentences_per_second: Translated sentences; the best of the rounds.
        output_per_second: Words of the output, or characters where it has no spaces between words.
        output_ratio: Length of the output over that of the reference.
    """

    bucket: Bucket
    bleu: float
    range: Interval
    sentences_per_second: float
    output_per_second: float
    output_ratio: float


def equal_bounds(lengths: Sequence[int], buckets: int) -> list[int]:
    """Upper ends that cut a text into about equally many sentences; fewer where lengths coincide.

    The last bucket has no upper end, so there is one bound less than buckets.
    """
    ordered = sorted(lengths)
    ends = [ordered[len(ordered) * number // buckets - 1] for number in range(1, buckets)]
    return sorted({end for end in ends if 0 < end < ordered[-1]})


def cut(lengths: Sequence[int], bounds: Sequence[int]) -> list[Bucket]:
    """The lines by length: up to the first bound, from there to the second, ..., above the last.

    Empty lines are in no bucket, and empty buckets are left out.

    Raises:
        UsageError: The bounds do not ascend, or are not positive.
        DataError: No line has a word.
    """
    if any(bound < 1 for bound in bounds) or any(high <= low for low, high in pairwise(bounds)):
        raise UsageError(
            f"bounds of lengths must ascend from 1, not {list(bounds)}", "give them like 15,30,45"
        )
    buckets = []
    for low, high in zip([1, *(bound + 1 for bound in bounds)], [*bounds, None], strict=True):
        rows = tuple(
            row for row, length in enumerate(lengths) if low <= length and (high is None or length <= high)
        )
        if rows:
            buckets.append(Bucket(low, high, rows, sum(lengths[row] for row in rows)))
    if not buckets:
        raise DataError("no line of the source has a word")
    return buckets


def length_scores(
    scorers: Sequence[Scorer], buckets: Sequence[Bucket], rounds: int, tell: LogFn
) -> list[list[LengthScore]]:
    """Each model on each bucket, translated by itself `rounds` times.

    Rounds go over models and buckets in turn, so that a busy moment of the machine does not hit one alone.
    """
    sources, reference = scorers[0].pairs.source.lines, scorers[0].pairs.reference
    seconds = [[float("inf")] * len(buckets) for _ in scorers]
    outputs: list[list[list[str]]] = [[[] for _ in buckets] for _ in scorers]
    for scorer in scorers:
        scorer.translate(scorer.model, sources[:WARM_UP])
    for number in range(rounds):
        for scorer, own_seconds, own_outputs in zip(scorers, seconds, outputs, strict=True):
            for place, bucket in enumerate(buckets):
                lines = [sources[row] for row in bucket.rows]
                done = scorer.translate(scorer.model, lines, documents=False)
                own_seconds[place] = min(own_seconds[place], done.seconds)
                own_outputs[place] = done.lines
            tell(f"{scorer.name}: round {number + 1} of {rounds}")
    unit = unit_of(reference.lines)
    answers = [reference.only(bucket.rows) for bucket in buckets]
    return [
        [_score(scorer.metric, *each, unit) for each in zip(buckets, lines, answers, took, strict=True)]
        for scorer, lines, took in zip(scorers, outputs, seconds, strict=True)
    ]


def _score(
    metric: Metric, bucket: Bucket, lines: Sequence[str], reference: Text, seconds: float, unit: LengthUnit
) -> LengthScore:
    statistics = metric.statistics(lines, reference.answers)
    length = sum(text_lengths(lines, unit))
    return LengthScore(
        bucket,
        bleu=float(metric.values(np.sum(statistics, axis=0))),
        range=interval(resampled_scores(metric, (statistics,), samples=SAMPLES)[0]),
        sentences_per_second=len(lines) / seconds,
        output_per_second=length / seconds,
        output_ratio=length / max(1, sum(text_lengths(reference.lines, unit))),
    )


def source_length_finding(
    scorers: Sequence[Scorer], buckets: Sequence[Bucket], rounds: int, tell: LogFn
) -> Finding:
    """Translate each bucket (from `cut`) with each model; the fastest of the rounds counts."""
    names = [scorer.name for scorer in scorers]
    scores_of = list(zip(names, length_scores(scorers, buckets, rounds, tell), strict=True))
    first = scorers[0]
    unit, unit_out = unit_of(first.pairs.source.lines), unit_of(first.pairs.reference.lines)
    x = Axis(label="length of the source", unit=unit)
    categories = [bucket.name for bucket in buckets]
    ranges = f"hold 95 % of {SAMPLES} bootstrap resamples of the part."
    settings, threads = first.settings, counted(torch.get_num_threads(), "CPU thread")
    return Finding(
        analysis="length",
        title="BLEU and decoding speed by length of the source",
        measured=(
            f"The text is cut by the number of source {unit}, and each part translated and scored alone. "
            f"Speed is that of the fastest of {rounds} translations of a part, after {WARM_UP} sentences to "
            "warm up and without loading the model; models and parts take turns. Ranges of BLEU "
            f"{ranges}"
        ),
        tables=[
            _buckets_table(buckets, unit),
            _scores_table(scores_of, unit, unit_out),
        ],
        figures=[
            BarChart(
                name="bleu",
                title="BLEU by source length",
                caption=f"Ranges {ranges}",
                x=x,
                y="BLEU",
                categories=categories,
                series=[_bleu(*each) for each in scores_of],
            ),
            BarChart(
                name="speed",
                title="Decoding speed by source length",
                caption=f"Beam {settings['beam']}, {settings['device']}, {threads}; the fastest of {rounds} "
                "rounds.",
                x=x,
                y="speed [sentences/s]",
                categories=categories,
                series=[
                    Series(name=name, y=[score.sentences_per_second for score in scores])
                    for name, scores in scores_of
                ],
            ),
        ],
        notes=(
            "BLEU of a part is corpus BLEU of that part; parts with few sentences vary much, as their ranges "
            "show, and the BLEU of the whole text is not their mean.",
        ),
        provenance=provenance(
            [scorer.source for scorer in scorers], (first.pairs.description,), first.settings
        ),
    )


def _buckets_table(buckets: Sequence[Bucket], unit: LengthUnit) -> Table:
    columns = [f"source {unit}", "sentences", f"mean length [{unit}] .1"]
    rows = [(bucket.name, len(bucket.rows), bucket.length / len(bucket.rows)) for bucket in buckets]
    return Table(title="The parts of the text", columns=columns, rows=rows)


def _scores_table(
    scores_of: Sequence[tuple[str, list[LengthScore]]], unit: LengthUnit, output_unit: LengthUnit
) -> Table:
    columns = ["model", f"source {unit}", "BLEU .2", "from .2", "to .2", "speed [sentences/s] .1"]
    return Table(
        title="Each model on each part",
        columns=[*columns, f"output [{output_unit}/s] .0", "output over reference .3"],
        rows=[
            (
                name,
                score.bucket.name,
                score.bleu,
                score.range.low,
                score.range.high,
                score.sentences_per_second,
                score.output_per_second,
                score.output_ratio,
            )
            for name, scores in scores_of
            for score in scores
        ],
    )


def _bleu(name: str, scores: Sequence[LengthScore]) -> Series:
    """BLEU of each part with its range."""
    return Series(
        name=name,
        y=[score.bleu for score in scores],
        # Resamples of very few sentences may all lie on one side of the score.
        low=[min(score.bleu, score.range.low) for score in scores],
        high=[max(score.bleu, score.range.high) for score in scores],
    )
