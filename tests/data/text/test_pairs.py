from __future__ import annotations

import pytest

from deepwire.data.text.pairs import is_blank


@pytest.mark.parametrize(
    ("text", "expected"), [("", True), (" \t", True), ("\u3000", True), ("a", False), ("\u200b.", False)]
)
def test_blank_is_what_is_empty_or_only_spaces(text: str, expected: bool) -> None:
    assert is_blank(text) is expected
