from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepwire.data.config import FilterConfig
from deepwire.data.corpus import Pair
from deepwire.data.duplicates import DigestSet
from deepwire.data.filters import REASONS, PairFilter


def reason(source: str, target: str, **filters: object) -> str | None:
    return PairFilter(FilterConfig.model_validate(filters)).reason(Pair(1, source, target, 0))


@pytest.mark.parametrize(
    ("source", "target", "filters", "expected"),
    [
        ("Ein Hund.", "A dog.", {}, None),
        ("", "A dog.", {}, "one_side_empty"),
        ("Ein Hund.", " \u00a0\u3000\t", {}, "one_side_empty"),
        ("", "", {}, "both_empty"),
        (" ", "\u2028", {}, "both_empty"),
        ("x" * 2000, "y" * 2000, {}, None),
        ("x" * 2001, "y" * 2000, {}, "too_long"),
        ("x" * 10**6, "y", {}, "too_long"),
        ("ab", "abc", {"min_characters": 3}, "too_short"),
        ("x" * 400, "y" * 100, {}, None),
        ("x" * 401, "y" * 100, {}, "ratio"),
        ("y" * 100, "x" * 401, {}, "ratio"),
        ("ja", "of course it is", {}, None),
        ("x" * 200, "y" * 100, {"max_ratio": 1.5}, "ratio"),
        ("Berlin", "Berlin", {}, None),
        ("Berlin", "Berlin", {"drop_copies": True}, "copy"),
        ("</s> <pad> ▁a@@ <2en>", "</s> <pad> ▁a@@", {}, None),
    ],
)
def test_each_reason(source: str, target: str, filters: dict[str, object], expected: str | None) -> None:
    assert reason(source, target, **filters) == expected
    assert expected is None or expected in REASONS


@pytest.mark.parametrize(
    ("source", "target"),
    [
        (
            "我们明天早上八点钟在火车站见面好吗",
            "Shall we meet at the railway station tomorrow morning at eight o'clock?",
        ),
        (
            "明日の朝八時に駅で会いましょう",
            "Let's meet at the station tomorrow morning at eight o'clock, shall we?",
        ),
        ("내일 아침 여덟 시에 역에서 만나자", "Let's meet at the station tomorrow morning at eight o'clock"),
        ("พรุ่งนี้เช้าแปดโมงเจอกันที่สถานีรถไฟนะ", "See you at the railway station at eight tomorrow morning"),
        ("Встретимся завтра в восемь утра на вокзале", "Let's meet at the station at eight tomorrow morning"),
    ],
)
def test_scripts_without_spaces_pass_the_usual_ratio(source: str, target: str) -> None:
    assert reason(source, target) is None
    assert reason(target, source) is None


def test_an_ideograph_counts_as_three_letters() -> None:
    assert reason("火" * 20, "x" * 240) is None
    assert reason("火" * 20, "x" * 241) == "ratio"
    assert reason("火" * 80, "x" * 59) == "ratio"


@pytest.mark.parametrize("fault", ["nul", "bad_utf8", "too_long"])
def test_a_fault_of_reading_is_the_reason(fault: str) -> None:
    assert PairFilter(FilterConfig()).reason(Pair(1, "a", "b", 0, fault)) == fault
    assert fault in REASONS


def test_duplicates_are_equal_pairs_not_equal_sides() -> None:
    pair_filter = PairFilter(FilterConfig())
    pairs = [("a", "b"), ("a", "c"), ("b", "a"), ("a", "b"), ("", "b"), ("", "b")]
    reasons = [pair_filter.reason(Pair(1, *pair, 0)) for pair in pairs]
    assert reasons == [None, None, None, "duplicate", "one_side_empty", "one_side_empty"]
    assert pair_filter.seen(Pair(9, "a", "c", 1))
    assert not pair_filter.seen(Pair(9, "c", "a", 1))


def test_duplicates_may_be_kept() -> None:
    pair_filter = PairFilter(FilterConfig(drop_duplicates=False))
    assert [pair_filter.reason(Pair(1, "a", "b", 0)) for _ in range(2)] == [None, None]


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 3000), max_size=3000), st.integers(1, 12))
def test_the_digest_set_is_a_set(numbers: list[int], bits: int) -> None:
    digests, expected = DigestSet(bits), set[str]()
    for text in map(str, numbers):
        assert digests.add(text) == (text not in expected)
        expected.add(text)
    assert len(digests) == len(expected)
    assert all(text in digests for text in expected)
    assert not any(f"-{text}" in digests for text in expected)


def test_the_digest_set_stays_small() -> None:
    digests = DigestSet()
    for number in range(200_000):
        digests.add(str(number))
    assert digests.nbytes / len(digests) <= 28


@settings(max_examples=300, deadline=None)
@given(st.text(max_size=60), st.text(max_size=60))
def test_the_reason_does_not_depend_on_the_direction(source: str, target: str) -> None:
    assert reason(source, target) == reason(target, source)
