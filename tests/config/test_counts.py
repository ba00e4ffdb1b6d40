from __future__ import annotations

import pytest
from pydantic import ValidationError

from deepwire.config.counts import Count, Duration, parse_count
from deepwire.config.section import Section


class Limits(Section):
    tokens: Count = 1
    length: Duration = Duration(1)


@pytest.mark.parametrize(
    ("written", "number"),
    [
        (7, 7),
        ("4k", 4000),
        ("4K", 4000),
        ("1.5M", 1_500_000),
        ("1.1k", 1100),
        ("100_000", 100_000),
        ("2G", 2 * 10**9),
        (4.0, 4),
        ("-3", -3),
    ],
)
def test_counts(written: object, number: int) -> None:
    assert parse_count(written) == number


@pytest.mark.parametrize(
    "written", ["", "k", "4kk", "1.5", 1.5, "4 k", True, None, [4], "٤", "1e3", "4" * 100, float("inf")]
)
def test_what_is_no_count_is_refused(written: object) -> None:
    with pytest.raises(ValidationError):
        Limits.model_validate({"tokens": written})


@pytest.mark.parametrize(
    ("written", "length"),
    [
        ("20ku", Duration(20_000, "updates")),
        ("20Ku", Duration(20_000, "updates")),
        (500, Duration(500, "updates")),
        ("30e", Duration(30, "epochs")),
        ("1Gt", Duration(10**9, "tokens")),
        ("1.5Mt", Duration(1_500_000, "tokens")),
    ],
)
def test_lengths(written: object, length: Duration) -> None:
    assert Limits.model_validate({"length": written}).length == length
