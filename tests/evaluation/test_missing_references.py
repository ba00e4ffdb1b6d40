"""Lines that a reference or the source lacks."""

from __future__ import annotations

import numpy as np
import pytest

from deepwire.evaluation.comparison import compare
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
@pytest.mark.parametrize("gap", ["", "   ", "\u3000\t", "\u200b"])
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


def test_gaps_are_warned_of():
    system, metrics, full = Text("a", _HYPOTHESES), [make_metric("bleu")], Text("r", _FULL)
    assert not compare([system], [full], metrics).warnings
    for references in ([full, Text("holes", ["", ""])], [Text("holes", ["", ""])]):
        (warning,) = compare([system], references, metrics).warnings
        assert warning.startswith("holes is empty in 2 lines, first in line 1")
