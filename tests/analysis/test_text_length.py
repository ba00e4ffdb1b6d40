"""What lengths are counted in."""

from __future__ import annotations

import pytest

from deepwire.analysis.text_length import text_lengths, unit_of


@pytest.mark.parametrize(
    ("lines", "unit", "lengths"),
    [
        (["A dog sleeps.", "", "Yes"], "words", [3, 0, 1]),
        (["犬は公園を走った。 そうです", "はい"], "characters", [13, 2]),
        (["สุนัขวิ่ง"], "characters", [9]),
        (["개가 잔다."], "words", [2]),
        ([], "words", []),
    ],
)
def test_words_stand_between_spaces_where_the_script_has_any(lines, unit, lengths) -> None:
    assert unit_of(lines) == unit
    assert text_lengths(lines, unit) == lengths
