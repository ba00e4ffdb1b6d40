from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from deepwire.serve.request import Limits, RequestBody, RequestError, TextLines, read_body_of


@pytest.mark.parametrize(
    ("text", "lines", "breaks"),
    [
        ("", ("",), ()),
        ("ein hund", ("ein hund",), ()),
        ("a\nb\r\nc\rd", ("a", "b", "c", "d"), ("\n", "\r\n", "\r")),
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


LIMITS = Limits(texts=3, characters=10)


def test_text_and_texts() -> None:
    assert read_body_of(RequestBody, b'{"text": "a\\nb"}', LIMITS).all == ["a\nb"]
    found = read_body_of(RequestBody, b'{"texts": ["a", ""], "target": "de", "beam": 2, "n_best": 1}', LIMITS)
    assert (found.all, found.target, found.beam, found.n_best) == (["a", ""], "de", 2, 1)
    assert read_body_of(RequestBody, b'{"texts": []}', LIMITS).all == []


def test_lines_are_limited_as_texts_are() -> None:
    """Whoever sends lines in one text has the model do as much; empty lines are no work."""
    assert read_body_of(RequestBody, b'{"texts": ["a\\n\\r\\n \\n\\nb", "c"]}', LIMITS)
    with pytest.raises(RequestError, match="4 lines of text, but at most 3 at a time"):
        read_body_of(RequestBody, b'{"texts": ["a\\nb", "c\\rd"]}', LIMITS)


@pytest.mark.parametrize(
    ("body", "code", "said", "index"),
    [
        (b"", "bad_json", "Invalid JSON", None),
        (b'{"text": "a"', "bad_json", "EOF while parsing", None),
        (b"[" * 100_000, "bad_json", "recursion limit", None),
        (b'{"text": "a", "beam": ' + b"9" * 5000 + b"}", "bad_json", "out of range", None),
        (b'{"text": "a", "beam": "2"}', "invalid", "beam: ", None),
        (b'{"text": "a", "model": "b"}', "invalid", "model: ", None),
        (b'{"text": "a", "texts": ["a"]}', "invalid", "either text or texts", None),
        (b"{}", "invalid", "either text or texts", None),
        (b"[]", "invalid", "object", None),
        (b'{"Text": "a"}', "invalid", "Text: ", None),
        (b'{"texts": "a"}', "invalid", "texts: ", None),
        (b'{"texts": ["a", 3]}', "invalid", "text 1: ", 1),
        (b'{"texts": ["a", "b", "c", "d"]}', "invalid", "4 texts, but at most 3", None),
        (b'{"texts": ["a", "12345678901"]}', "invalid", "text 1: 11 characters, at most 10", 1),
        (b'{"texts": ["a", "\\ud800"]}', "bad_json", "hex escape", None),
    ],
)
def test_wrong_bodies_are_refused_with_a_reason(body: bytes, code: str, said: str, index: int | None) -> None:
    with pytest.raises(RequestError) as caught:
        read_body_of(RequestBody, body, LIMITS)
    assert (caught.value.code, caught.value.index) == (code, index)
    assert said in caught.value.message
    caught.value.message.encode()


TEXT = st.text("ab \n\0\ud800é\U0001f600\u2028", max_size=12)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXT,
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(TEXT, inner, max_size=4),
    max_leaves=8,
)
KEYS = st.sampled_from(["text", "texts", "target", "source", "beam", "n_best", "x"])
BODIES = st.binary(max_size=40) | st.dictionaries(KEYS, JSON, max_size=4).map(
    lambda it: json.dumps(it).encode()
)


@settings(max_examples=60, deadline=None)
@given(BODIES)
def test_whatever_comes_is_read_or_refused(body: bytes) -> None:
    found = refused = None
    try:
        found = read_body_of(RequestBody, body, LIMITS)
    except RequestError as error:
        refused = error
    if found is not None:
        assert len(found.all) <= 3
        assert all(len(text) <= 10 for text in found.all)
    else:
        assert refused.status in (400, 422)
        assert len(refused.message) < 300
