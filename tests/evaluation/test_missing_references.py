"""Lines that a reference or the source lacks."""

from __future__ import annotations

import numpy as np
import pytest

from deepwire.evaluation.comparison import PairedTest, compare
from deepwire.evaluation.metric_choice import make_metric
from deepwire.evaluation.texts import Text

_METRICS = ("bleu", "chrf", "chrf++", "ter", "multi-bleu")
_HYPOTHESES = ["the small cat sat on the mat", "a dog runs in the park today"]
_FULL = [
    "the small cat sat on the mat and looked at all of us",
    "a dog runs in the park and barks at the ducks in the pond",
]
_OTHER = ["a cat sits there", "one dog is running in a park"]


@pytest.mark.parametrize("metric", _METRICS)
@pytest.mark.parametrize("gap", ["", "   ", "\u00a0", "\u3000\t", "\u200b", "\ufeff"])
def test_an_empty_line_of_one_reference_counts_as_missing(metric, gap):
    counted = make_metric(metric).score(_HYPOTHESES, [_FULL, [gap, gap]])
    assert counted.value == make_metric(metric).score(_HYPOTHESES, _FULL).value


@pytest.mark.parametrize("metric", _METRICS)
def test_the_other_lines_keep_all_their_references(metric):
    made = make_metric(metric)
    with_gap = made.statistics(_HYPOTHESES, [_FULL, ["", _OTHER[1]], [_OTHER[0], ""]])
    alone = [
        made.statistics(_HYPOTHESES[:1], [_FULL[:1], _OTHER[:1]]),
        made.statistics(_HYPOTHESES[1:], [_FULL[1:], _OTHER[1:]]),
    ]
    assert np.array_equal(with_gap, np.concatenate(alone))


def test_a_significance_test_counts_gaps_as_missing_and_a_report_warns_of_them():
    systems = [Text("a", _HYPOTHESES), Text("b", ["cat", "a dog runs"])]
    paired = PairedTest("randomization")
    metrics = [make_metric("bleu")]
    alone = compare(systems, [Text("r", _FULL)], metrics, paired)
    gaps = compare(systems, [Text("r", _FULL), Text("holes", ["", ""])], metrics, paired)
    assert gaps.systems[1].comparisons == alone.systems[1].comparisons
    assert not alone.warnings
    (warning,) = gaps.warnings
    assert warning.startswith("holes is empty in 2 lines, first in line 1")


def test_lines_without_any_reference_or_without_a_source_are_warned_of():
    system, metrics = Text("a", _HYPOTHESES), [make_metric("bleu")]
    (warning,) = compare([system], [Text("holes", [_FULL[0], ""])], metrics).warnings
    assert warning.startswith("holes is empty in 1 line, first in line 2")
    (warning,) = compare([system], [Text("r", _FULL)], metrics, source=Text("s", ["x", " "])).warnings
    assert warning.startswith("s is empty in 1 line, first in line 2")
