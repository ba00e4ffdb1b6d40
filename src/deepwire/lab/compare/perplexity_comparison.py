"""One text read by several language models: perplexities, paired tests, and where they differ most."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from deepwire.decoding.language_model import TextScore, text_scorer
from deepwire.decoding.model_loading import load_models, translator_of
from deepwire.errors import LogFn, ModelError, UsageError
from deepwire.evaluation.comparison import PairedTest, few_sentences, paired_comparison
from deepwire.evaluation.metric import Floats, Metric
from deepwire.evaluation.significance import Comparison, bounds
from deepwire.lab.compare.translation_differences import most_different, tested_cells
from deepwire.lab.report.finding import BarChart, Column, Figure, Series, Table
from deepwire.lab.subject.document_text import DocumentText, text_of_model

_SHOWN = 80


@dataclass(frozen=True)
class ModelPerplexity:
    """The scores of the documents of a text with a model.

    `comparison` is in bits per byte with the first model, which has none itself.
    """

    name: str
    each: Sequence[TextScore]
    comparison: Comparison | None = None
    precision: str = ""

    @property
    def score(self) -> TextScore:
        """The score of all documents."""
        return sum(self.each, TextScore())

    @property
    def counts(self) -> Floats:
        """Log-probability in nats and bytes of each document, `[N, 2]`."""
        return np.array([[score.log_probability, score.bytes] for score in self.each], dtype=np.float64)


class BitsPerByte(Metric):
    """Bits per byte of documents, each with the statistics log-probability (in nats) and bytes."""

    name = "bits per byte"
    width = 2
    higher_is_better = False

    def values(self, totals: Floats) -> Floats:
        """Turn summed statistics `[..., 2]` into bits per byte `[...]`."""
        bits: Floats = -totals[..., 0] / totals[..., 1] / math.log(2)
        return bits

    def sentence_values(self, statistics: Floats) -> Floats:
        """Bits per byte of each document, `[N]`."""
        return self.values(statistics)

    def signature(self, references: int) -> str:
        """No setting changes it."""
        del references
        return "documents:alone"

    def _count(self, hypotheses: Sequence[str], references: Sequence[Sequence[str]]) -> Floats:
        del hypotheses, references
        raise UsageError("bits per byte are those of a language model, not of two texts")


def language_models(models: Sequence[str]) -> bool:
    """Whether all of several models are language models, and not all of them translate.

    Raises:
        ModelError: Some are, and others translate; or there is no such model.
        UsageError: The documents of some have one line, those of others several.
    """
    texts = {name: text_of_model(name) for name in models}
    if all(text is None for text in texts.values()):
        return False
    if None in texts.values():
        first = next(name for name, text in texts.items() if text is not None)
        other = next(name for name, text in texts.items() if text is None)
        raise ModelError(
            f"{first}: is a language model, and {other} translates", "compare models of one task"
        )
    if len(set(texts.values())) > 1:
        units = ", ".join(f"{name} {unit}" for name, unit in texts.items())
        raise UsageError(
            f"data.text.unit differs ({units}): no text has the same documents for all",
            "compare models of one unit, or add --no-translation",
        )
    return True


def read_by_all(
    models: Sequence[str],
    names: Sequence[str],
    text: DocumentText,
    device: str,
    precision: str,
    paired: PairedTest,
    tell: LogFn,
) -> list[ModelPerplexity]:
    """Score each document with each model, and test each model against the first in bits per byte.

    Each document is read on its own, in windows of the block of training. `names` are for tables; device and
    precision are those of ``deepwire perplexity``.

    Raises:
        ModelError, UsageError, ResourceError: A model cannot be loaded, or there is no such device.
    """
    read = list[ModelPerplexity]()
    for model, name in zip(models, names, strict=True):
        loaded = load_models([model], device, precision, {})
        assert loaded.text is not None, "the models were looked at before"
        scorer = text_scorer(translator_of(loaded, warn=tell), loaded.text)
        perplexity = ModelPerplexity(name, list(scorer.scores(text.documents)), precision=loaded.precision)
        tell(f"{name}: {len(perplexity.each):,} documents, {perplexity.score.tokens:,} tokens")
        if read:
            (test,) = paired_comparison([BitsPerByte()], [read[0].counts], [perplexity.counts], paired)
            perplexity = replace(perplexity, comparison=test)
        read.append(perplexity)
    return read


def perplexity_table(read: Sequence[ModelPerplexity]) -> Table:
    """Perplexities, and bits per byte with the difference to the first model, its interval and p-value."""
    columns = ["model", "tokens", "perplexity [per token] .2", "perplexity [per word] .1"]
    columns += ["perplexity [per byte] .4", "bits per byte .4", "difference .4", "from .4", "to .4", "p .4"]
    rows = []
    for model in read:
        score = model.score
        perplexities = score.perplexity, score.word_perplexity, score.byte_perplexity
        tested = tested_cells(model.comparison)
        rows.append((model.name, score.tokens, *perplexities, score.bits_per_byte, *tested))
    return Table(title="Perplexity", columns=columns, rows=rows)


def perplexity_chart(read: Sequence[ModelPerplexity]) -> Figure:
    """Bits per byte of each model."""
    low, high = bounds([model.comparison for model in read if model.comparison is not None])
    values = [model.score.bits_per_byte for model in read]
    return BarChart(
        name="scores",
        caption="With the 95 % interval of each, where the test gives one.",
        title="Bits per byte",
        x="model",
        y="cross-entropy [bits/byte]",
        categories=[model.name for model in read],
        series=[Series(name="bits per byte", y=values, low=low, high=high)],
    )


def perplexity_notes(read: Sequence[ModelPerplexity], paired: PairedTest) -> Iterator[str]:
    """How to read the numbers, and what is odd about the tests."""
    yield from (f"{model.name}: read in {model.precision}" for model in read if model.precision)
    yield "Lower is better. Per token it depends on the vocabulary; per word and per byte it does not."
    yield from few_sentences(paired, len(read[0].each), "documents")


def document_table(read: Sequence[ModelPerplexity], text: DocumentText, count: int) -> Table:
    """The documents whose bits per byte differ most between two models; equal ones are left out."""
    values = np.stack([BitsPerByte().sentence_values(model.counts) for model in read])
    return Table(
        title="Documents whose bits per byte differ most",
        columns=["document", *(Column(name=model.name, digits=3) for model in read), "begins"],
        rows=[
            (place + 1, *values[:, place].tolist(), text.documents[place][0][:_SHOWN])
            for place in most_different(values, count)
        ],
    )
