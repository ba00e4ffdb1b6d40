from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from deepwire.serving.text_lines import TextLines, has_words


@pytest.mark.parametrize(
    ("text", "lines", "breaks"),
    [
        ("", ("",), ()),
        ("ein hund", ("ein hund",), ()),
        ("a\nb\r\nc\rd", ("a", "b", "c", "d"), ("\n", "\r\n", "\r")),
        ("\n\na\n", ("", "", "a", ""), ("\n", "\n", "\n")),
        (
            "a\u2028b\x85c\x0bd\x0ce\u2029",
            ("a", "b", "c", "d", "e", ""),
            ("\u2028", "\x85", "\v", "\f", "\u2029"),
        ),
        ("a\0b", ("a b",), ()),
    ],
)
def test_a_text_is_cut_at_its_line_breaks(text: str, lines: tuple[str, ...], breaks: tuple[str, ...]) -> None:
    assert TextLines.of(text) == (lines, breaks)


@given(st.text("ab \n\r\v\f\x85\u2028\u2029\x1c\t", max_size=30))
def test_nothing_is_lost_between_the_lines(text: str) -> None:
    cut = TextLines.of(text)
    assert cut.joined(cut.lines) == text
    assert not any(mark in line for line in cut.lines for mark in "\n\r\v\f\x85\u2028\u2029")


def test_blank_lines_have_no_words() -> None:
    assert [has_words(line) for line in ("", " \t", "\u3000", "a", "\u200b.")] == [
        False,
        False,
        False,
        True,
        True,
    ]
