"""Hints in a source: where they stand, which words get some, and that they go without a trace."""

from __future__ import annotations

import pytest

from deepwire.data.text.term_hints import HINT_BEGIN, HINT_END, Hint, drawn_hints, with_hints, without_hints

SOURCE = "Ein großer Hund, der über die „Wiese“ läuft ."
TARGET = "Big dog, which runs across the “meadow” ."
LINKS = [(1, 0), (2, 1), (3, 2), (4, 4), (5, 5), (6, 6), (7, 3), (8, 7)]


def seen(text):
    return text.replace(HINT_BEGIN, "<").replace(HINT_END, ">")


def test_a_hint_stands_behind_its_words_and_can_be_taken_away():
    text = with_hints(SOURCE, [Hint(15, "dog"), Hint(10, "big")])
    assert seen(text) == "Ein großer< big> Hund< dog>, der über die „Wiese“ läuft ."
    assert without_hints(text) == SOURCE
    # What looks like a mark is none.
    assert seen(with_hints(f"a{HINT_BEGIN} b{HINT_END}", [Hint(4, "c")])) == "a b< c>"


def test_only_words_that_are_translations_of_each_other_get_hints():
    allowed = {
        "großer": {"big"}, "Hund": {"dog"}, "großer Hund": {"big dog"}, "Wiese": {"meadow"},
        "über": {"across"},
        "der": {"which"}, "die": {"the"}, "läuft": {"runs"}, "die „Wiese": {"the “meadow"},
        "über die": {"across the"}, "über die „Wiese": {"across the “meadow"}, "Hund, der": {"dog, which"},
        "großer Hund, der": {"big dog, which"},
    }  # fmt: skip
    found = set()
    for seed in range(400):
        hints = drawn_hints(SOURCE, TARGET, LINKS, seed)
        assert len(hints) <= 3
        assert hints == drawn_hints(SOURCE, TARGET, LINKS, seed)
        for hint in hints:
            assert any(
                hint.text in texts and SOURCE[: hint.end].endswith(words) for words, texts in allowed.items()
            ), hint
            found.add(hint.text)
    assert {"big", "dog", "meadow", "across", "runs", "the “meadow"} <= found


@pytest.mark.parametrize(
    ("source", "target", "links"),
    [
        ("eins zwei", "one two", []),
        ("eins zwei", "one two", [(0, 0), (0, 1), (1, 1)]),  # neither alone, nor both and nothing else
        ("eins zwei", "one and two", [(0, 0), (0, 2)]),  # not beside each other
        ("- -", "a b", [(0, 0), (1, 1)]),  # no word to stand behind
        ("eins zwei", "a b", [(0, 0), (1, 1)]),  # too short to say anything
        ("", "", []),
    ],
)
def test_without_such_words_there_are_no_hints(source, target, links):
    found = {hint.text for seed in range(60) for hint in drawn_hints(source, target, links, seed)}
    assert found <= {"one two"}
    assert not found or links[:2] == [(0, 0), (0, 1)]


def test_words_of_languages_without_spaces_may_be_short():
    assert any(drawn_hints("Hund da", "犬 いる", [(0, 0)], seed) for seed in range(20))
