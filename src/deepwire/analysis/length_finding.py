"""BLEU and decoding speed by source length as a finding, several models beside each other."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch

from deepwire.analysis.figures import Axis, Bars, Series
from deepwire.analysis.finding import Finding, provenance
from deepwire.analysis.length import SAMPLES, Bucket, LengthScore, length_scores
from deepwire.analysis.records import Column, Table
from deepwire.analysis.scored import WARM_UP, Scorer

_LENGTH = Axis(label="length of the source", unit="words")


def finding(
    scorers: Sequence[Scorer], buckets: Sequence[Bucket], rounds: int, tell: Callable[[str], None]
) -> Finding:
    """Measure and show.

    Args:
        scorers: Models on the same text.
        buckets: Of its lines, from `cut`.
        rounds: How often each bucket is translated; the fastest counts.
        tell: Hears how far it is.
    """
    names = [scorer.name for scorer in scorers]
    found = list(zip(names, length_scores(scorers, buckets, rounds, tell), strict=True))
    categories = tuple(bucket.name for bucket in buckets)
    return Finding(
        analysis="length",
        title="BLEU and decoding speed by length of the source",
        measured=(
            "The text is cut by the number of source words, and each part translated and scored alone. "
            f"Speed is that of the fastest of {rounds} translations of a part, after {WARM_UP} sentences to "
            "warm up and without loading the model; models and parts take turns. Ranges of BLEU "
            f"hold 95 % of {SAMPLES} bootstrap resamples of the part."
        ),
        tables=(_buckets_table(buckets), _scores_table(found)),
        figures=(
            Bars(
                name="bleu",
                title="BLEU by source length",
                caption=f"Ranges hold 95 % of {SAMPLES} bootstrap resamples of the part.",
                x=_LENGTH,
                y=Axis(label="BLEU"),
                categories=categories,
                series=tuple(_bleu(*each) for each in found),
            ),
            Bars(
                name="speed",
                title="Decoding speed by source length",
                caption=f"{_conditions(scorers[0])}; the fastest of {rounds} rounds.",
                x=_LENGTH,
                y=Axis(label="speed", unit="sentences/s"),
                categories=categories,
                series=tuple(
                    Series(name=name, y=tuple(one.sentences_per_second for one in scores))
                    for name, scores in found
                ),
            ),
        ),
        notes=(
            "BLEU of a part is corpus BLEU of that part; parts with few sentences vary much, as their ranges "
            "show, and the BLEU of the whole text is not their mean.",
        ),
        provenance=provenance(
            [scorer.source for scorer in scorers], (scorers[0].pairs.description,), scorers[0].settings
        ),
    )


def _buckets_table(buckets: Sequence[Bucket]) -> Table:
    return Table(
        title="The parts of the text",
        columns=(
            Column(name="source words"),
            Column(name="sentences"),
            Column(name="mean length", unit="words", digits=1),
        ),
        rows=tuple((one.name, len(one.rows), one.words / len(one.rows)) for one in buckets),
    )


def _scores_table(found: Sequence[tuple[str, Sequence[LengthScore]]]) -> Table:
    return Table(
        title="Each model on each part",
        columns=(
            Column(name="model"),
            Column(name="source words"),
            Column(name="BLEU", digits=2),
            Column(name="from", digits=2),
            Column(name="to", digits=2),
            Column(name="speed", unit="sentences/s", digits=1),
            Column(name="output", unit="words/s", digits=0),
            Column(name="output over reference", digits=3),
        ),
        rows=tuple(
            (
                name,
                one.bucket.name,
                one.bleu,
                one.range.low,
                one.range.high,
                one.sentences_per_second,
                one.words_per_second,
                one.output_ratio,
            )
            for name, scores in found
            for one in scores
        ),
    )


def _bleu(name: str, scores: Sequence[LengthScore]) -> Series:
    """BLEU of each part with its range."""
    return Series(
        name=name,
        y=tuple(one.bleu for one in scores),
        # Resamples of very few sentences may all lie on one side of the score.
        low=tuple(min(one.bleu, one.range.low) for one in scores),
        high=tuple(max(one.bleu, one.range.high) for one in scores),
    )


def _conditions(scorer: Scorer) -> str:
    """What decides speed besides model and text."""
    settings = scorer.settings
    return f"Beam {settings['beam']}, {settings['device']}, {torch.get_num_threads()} CPU threads"
