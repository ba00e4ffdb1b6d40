from __future__ import annotations

from collections.abc import Iterable

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepwire.data.data_config import FilterConfig
from deepwire.data.filters import (
    REASON_NAMES,
    REASONS,
    Digests,
    DigestSet,
    pair_reasons,
)
from deepwire.data.text.corpus import Lines
from deepwire.data.text.pairs import Texts


def reason(source: str, target: str, **filters: object) -> str | None:
    found = pair_reasons(Lines(1, [source], [target], {}), FilterConfig.model_validate(filters))
    return REASON_NAMES[found[0]] or None


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


SIZES = st.lists(st.integers(1, 200), min_size=1, max_size=20)


def digests(numbers: Iterable[int], mark: str = "") -> Digests:
    return Texts.of_strings([f"{mark}{number}" for number in numbers]).hashes()


@settings(max_examples=30, deadline=None)
@given(st.lists(st.integers(0, 3000), max_size=3000), SIZES)
def test_the_digest_set_is_a_set(numbers: list[int], blocks: list[int]) -> None:
    known, expected, start = DigestSet(), set[int](), 0
    for turn in range(len(numbers)):
        block = numbers[start : (start := start + blocks[turn % len(blocks)])]
        first = [number not in expected and number not in block[:place] for place, number in enumerate(block)]
        assert known.add(digests(block)).tolist() == first
        expected.update(block)
    assert known.contains(digests(expected)).all()
    assert not known.add(digests(expected)).any()
    assert not known.contains(digests(expected, "-")).any()
