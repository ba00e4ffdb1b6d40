from __future__ import annotations

import json
import math

import pytest

from deepwire.io.json_lines import json_line


@pytest.mark.parametrize("number", [math.nan, math.inf, -math.inf])
def test_numbers_that_json_does_not_have_are_null(number: float) -> None:
    line = json_line({"a": [1.5, (number,)], "b": {"c": number}, "d": "NaN"})
    assert json.loads(line, parse_constant=pytest.fail) == {"a": [1.5, [None]], "b": {"c": None}, "d": "NaN"}


def test_halves_of_surrogate_pairs_are_escaped() -> None:
    assert json_line("ü") == '"ü"'
    assert json_line("ü\ud800") == r'"\u00fc\ud800"'
