"""Sentences and their translations, as analyses read them."""

from __future__ import annotations

from deepwire.evaluation.texts import Text
from deepwire.lab.subject import ParallelText


def test_pairs_that_are_left_out_are_counted() -> None:
    german = Text("a.de", ["Ein Mann.", "", "Zwei Hunde."])
    pairs = ParallelText(german, Text("a.en", ["A man.", "x", " "]))
    assert pairs.description == "a.de and a.en, 3 pairs"
    assert pairs.read == "a.de and a.en, 3 pairs, 2 of them left out, with an empty side"
    assert ParallelText(german, german).read.endswith("3 pairs, 1 of them left out, with an empty side")
