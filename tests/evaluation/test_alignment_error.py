"""The alignment error rate of a small set, by hand, and gold files that are refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepwire.errors import DataError
from deepwire.evaluation.alignment_error import AlignmentCounts, read_gold

WORDS = [(3, 3), (2, 2), (1, 1)]


def test_the_error_rate_by_hand(tmp_path: Path) -> None:
    path = tmp_path / "gold"
    path.write_text("0-0 1-1 2?1 2p2\n0-1\n\n")
    gold = read_gold(path, WORDS)
    assert gold[0].sure == {(0, 0), (1, 1)}
    assert gold[0].possible == {(0, 0), (1, 1), (2, 1), (2, 2)}
    found = [[(0, 0), (2, 1), (0, 2)], [(0, 1)], [(0, 0)]]
    total = sum((AlignmentCounts.of(*pair) for pair in zip(found, gold, strict=True)), AlignmentCounts())
    # A has 5 links, 2 of them sure and 3 possible; S has 3.
    assert total == AlignmentCounts(5, 3, 2, 3)
    assert total.error_rate == pytest.approx(1 - (2 + 3) / (5 + 3))
    assert (total.precision, total.recall) == pytest.approx((3 / 5, 2 / 3))
    perfect = AlignmentCounts.of(gold[0].sure, gold[0])
    assert perfect.error_rate == 0


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("0-0\n0:1\n\n", r"gold:2: no link: '0:1'"),
        ("0-0\n\n0-1\n", r"gold:3: 0-1, but the pair has 1 and 1 words"),
        ("0-0\n\n", r"gold: 2 lines, but the text has 3"),
    ],
)
def test_what_is_wrong_is_named(tmp_path: Path, text: str, said: str) -> None:
    (tmp_path / "gold").write_text(text)
    with pytest.raises(DataError, match=said):
        read_gold(tmp_path / "gold", WORDS)
