from __future__ import annotations

import pytest

from deepwire.recipes.notes import PublishedSize


def verdict_of(printed: str, counted: int, differs: str = "") -> str:
    return PublishedSize(printed=printed, vocabulary=100, differs=differs).verdict(counted)


@pytest.mark.parametrize(
    ("printed", "counted", "verdict"),
    [
        ("70.25M", 70_250_795, "fits"),
        ("70.25M", 70_254_999, "fits"),
        ("70.25M", 70_245_000, "fits"),
        ("70.25M", 70_255_001, "differs"),
        ("70.25M", 70_244_999, "differs"),
        ("62M", 61_566_976, "fits"),
        ("62M", 61_499_999, "differs"),
        ("102.1M", 102_149_999, "fits"),
        ("102.1M", 102_150_001, "differs"),
    ],
)
def test_a_count_fits_if_it_rounds_to_the_printed_digits(printed: str, counted: int, verdict: str) -> None:
    assert verdict_of(printed, counted) == verdict


def test_a_known_difference_is_told_apart_and_a_fit_is_a_fit() -> None:
    assert verdict_of("62.37M", 63_143_424, "a misprint") == "known"
    assert verdict_of("62.37M", 62_374_187, "a misprint") == "fits"


def test_one_vocabulary_stands_for_both_sides() -> None:
    assert PublishedSize(printed="1M", vocabulary=100).vocabularies == (100, 100)
    assert PublishedSize(printed="1M", vocabulary=100, source_vocabulary=70).vocabularies == (70, 100)
