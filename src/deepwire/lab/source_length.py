"""BLEU and decoding speed by length of the source (MHPLSTM, Figs. 4 and 5; GTrans, Fig. 12)."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import chain, pairwise
from typing import Literal, NamedTuple

import numpy as np

from deepwire.errors import DataError, LogFn, UsageError
from deepwire.evaluation.metric_choice import script_without_spaces
from deepwire.evaluation.significance import interval, resampled_scores
from deepwire.lab.finding import BarChart, Finding, Series, Table, provenance
from deepwire.lab.subject import Scorer, TimedTranslation

LengthUnit = Literal["words", "characters"]
SAMPLES, WARM_UP = 1000, 32


def unit_of(lines: Sequence[str]) -> LengthUnit:
    """Words, or characters where the script has no spaces between words, as that of Japanese."""
    return "characters" if script_without_spaces(lines) else "words"


def text_lengths(lines: Sequence[str], unit: LengthUnit) -> list[int]:
    """The length of each line: what stands between white space, or all characters but white space."""
    words = [line.split() for line in lines]
    return [len(each) if unit == "words" else sum(map(len, each)) for each in words]


@dataclass(frozen=True)
class Bucket:
    """Sentences (`rows`, from 0) whose source is `low` to `high` long; None: no upper end."""

    low: int
    high: int | None
    rows: tuple[int, ...]

    @property
    def name(self) -> str:
        """`8-11`, or `31+` without an upper end."""
        if self.high is None:
            return f"{self.low}+"
        return str(self.low) if self.low == self.high else f"{self.low}-{self.high}"


class LengthScore(NamedTuple):
    """One model on one bucket: a row of the table.

    `bleu` is that of the bucket by itself, from `low` to `high` its 95 % interval by bootstrap resamples;
    `speed` is in translated sentences a second, the best of the rounds.
    """

    model: str
    bucket: str
    sentences: int
    bleu: float
    low: float
    high: float
    speed: float


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
            buckets.append(Bucket(low, high, rows))
    if not buckets:
        raise DataError("no line of the source has a word")
    return buckets


def _length_scores(
    scorers: Sequence[Scorer], buckets: Sequence[Bucket], rounds: int, tell: LogFn
) -> list[list[LengthScore]]:
    """Each model on each bucket, translated by itself `rounds` times.

    Rounds go over models and buckets in turn, so that a busy moment of the machine does not hit one alone.
    """
    sources, reference = scorers[0].pairs.source.lines, scorers[0].pairs.reference
    done: list[list[list[TimedTranslation]]] = [[[] for _ in buckets] for _ in scorers]
    for scorer in scorers:
        scorer.translate(scorer.model, sources[:WARM_UP])
    for number in range(rounds):
        for scorer, by_bucket in zip(scorers, done, strict=True):
            for bucket, made in zip(buckets, by_bucket, strict=True):
                lines = [sources[row] for row in bucket.rows]
                made.append(scorer.translate(scorer.model, lines, documents=False))
            tell(f"{scorer.name}: round {number + 1} of {rounds}")
    scores = []
    for scorer, by_bucket in zip(scorers, done, strict=True):
        of_model = []
        for bucket, made in zip(buckets, by_bucket, strict=True):
            lines, seconds = min(made, key=lambda each: each.seconds)
            statistics = scorer.metric.statistics(lines, reference.only(bucket.rows).answers)
            bleu = float(scorer.metric.values(np.sum(statistics, axis=0)))
            drawn = interval(resampled_scores(scorer.metric, (statistics,), samples=SAMPLES)[0])
            # Resamples of very few sentences may all lie on one side of their BLEU.
            low, high = min(bleu, drawn.low), max(bleu, drawn.high)
            speed = len(lines) / seconds
            of_model.append(LengthScore(scorer.name, bucket.name, len(lines), bleu, low, high, speed))
        scores.append(of_model)
    return scores


def source_length_finding(
    scorers: Sequence[Scorer], buckets: Sequence[Bucket], rounds: int, tell: LogFn
) -> Finding:
    """Translate each bucket (from `cut`) with each model; the fastest of the rounds counts."""
    by_model = _length_scores(scorers, buckets, rounds, tell)
    first = scorers[0]
    unit = unit_of(first.pairs.source.lines)
    x = f"length of the source [{unit}]"
    categories = [bucket.name for bucket in buckets]
    columns = [f"source {unit}", "sentences", "BLEU .2", "from .2", "to .2", "speed [sentences/s] .1"]
    rows = list(chain(*by_model))
    return Finding(
        analysis="length",
        title="BLEU and decoding speed by length of the source",
        measured=(
            f"The text is cut by the number of source {unit}, and each part translated and scored alone. "
            f"Speed is that of the fastest of {rounds} translations of a part, after {WARM_UP} sentences to "
            "warm up and without loading the model; models and parts take turns. Ranges of BLEU hold 95 % "
            f"of {SAMPLES} bootstrap resamples of the part. Parts with few sentences vary much, and the BLEU "
            "of the whole text is not their mean."
        ),
        tables=[Table(title="Each model on each part", columns=["model", *columns], rows=rows)],
        figures=[
            BarChart(
                name="bleu",
                title="BLEU by source length",
                x=x,
                y="BLEU",
                categories=categories,
                series=[
                    Series(
                        name=scores[0].model,
                        y=[score.bleu for score in scores],
                        low=[score.low for score in scores],
                        high=[score.high for score in scores],
                    )
                    for scores in by_model
                ],
            ),
            BarChart(
                name="speed",
                title="Decoding speed by source length",
                x=x,
                y="speed [sentences/s]",
                categories=categories,
                series=[
                    Series(name=scores[0].model, y=[score.speed for score in scores]) for scores in by_model
                ],
            ),
        ],
        provenance=provenance(
            [scorer.subject.source for scorer in scorers], (first.pairs.description,), first.settings
        ),
    )
