"""The metrics by name, and the score of a text in one call."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import cast

from deepwire import plugins
from deepwire.errors import UsageError
from deepwire.evaluation.metric import Floats, Metric, References, Score
from deepwire.evaluation.multi_bleu import MultiBleuMetric
from deepwire.evaluation.sacrebleu_metrics import BleuMetric, ChrfMetric, TerMetric


@dataclass(frozen=True)
class MetricOptions:
    """Settings of the metrics; each metric takes those that concern it.

    Attributes:
        tokenize: The tokenizer of BLEU; see ``deepwire.evaluation.sacrebleu_metrics.TOKENIZERS``.
        lowercase: Ignore case in BLEU, chrF and multi-bleu (TER always does).
        split_hyphens: Split hyphenated words in multi-bleu.
        characters: Chinese and Japanese characters are words in TER.
    """

    tokenize: str = "13a"
    lowercase: bool = False
    split_hyphens: bool = False
    characters: bool = False


METRICS: dict[str, Callable[[MetricOptions], Metric]] = {
    "bleu": lambda options: BleuMetric(options.tokenize, lowercase=options.lowercase),
    "chrf": lambda options: ChrfMetric(lowercase=options.lowercase),
    "chrf++": lambda options: ChrfMetric(word_order=2, lowercase=options.lowercase),
    "ter": lambda options: TerMetric(characters=options.characters),
    "multi-bleu": lambda options: MultiBleuMetric(
        lowercase=options.lowercase, split_hyphens=options.split_hyphens
    ),
}
plugins.reserve("metric", list(METRICS))


def make_metric(name: str, options: MetricOptions | None = None) -> Metric:
    """Make a metric from its name.

    Args:
        name: A key of ``METRICS``: bleu, chrf, chrf++, ter or multi-bleu.
        options: Its settings; the usual ones when left out.

    Raises:
        UsageError: The name or the tokenizer is unknown, or the tokenizer cannot be used here.
    """
    make = METRICS.get(name) or _of_plugin(name)
    if make is None:
        others = plugins.names("metric")
        raise UsageError(f"unknown metric {name!r}", f"choose one of {', '.join([*METRICS, *others])}")
    return make(options or MetricOptions())


def _of_plugin(name: str) -> Callable[[MetricOptions], Metric] | None:
    """What `deepwire.plugins.register_metric` or an installed package says of a name."""
    try:
        return cast("Callable[[MetricOptions], Metric] | None", plugins.find("metric", name))
    except plugins.PluginError as error:
        raise UsageError(f"metric {name!r}: {error}") from None


def corpus_score(
    metric: str | Metric,
    hypotheses: Sequence[str],
    references: References,
    options: MetricOptions | None = None,
) -> Score:
    """Score a text.

    Args:
        metric: A name such as ``bleu``, or a metric that was made before.
        hypotheses: N lines of detokenised text (tokenised for multi-bleu).
        references: N lines, or several lists of N lines each.
        options: Settings for a metric given by name.

    Raises:
        UsageError: The metric is unknown.
        DataError: The line counts differ, or there are no lines.
    """
    chosen = make_metric(metric, options) if isinstance(metric, str) else metric
    return chosen.score(hypotheses, references)


def sentence_scores(metric: str | Metric, hypotheses: Sequence[str], references: References) -> Floats:
    """Score every sentence by itself; returns ``[N]``.

    Raises:
        UsageError: The metric is unknown.
        DataError: The line counts differ, or there are no lines.
    """
    chosen = make_metric(metric) if isinstance(metric, str) else metric
    return chosen.sentence_values(chosen.statistics(hypotheses, references))
