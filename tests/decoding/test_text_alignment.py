"""Subwords found in texts, and links between words."""

from __future__ import annotations

import pytest

from deepwire.data.subwords.text_tokens import TextTokens
from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import BpeConfig
from deepwire.decoding.text_alignment import TextAlignment, composed, joined


@pytest.fixture(scope="module")
def subwords():
    lines = ["Ein Hund läuft.", "Der Hund des Mannes läuft weg.", "Hunde laufen, Männer laufen."]
    pairs = [Pair(line, text, text, 0) for line, text in enumerate(lines * 3)]
    return Vocabularies.learn_from_blocks(BpeConfig(size=300), [pairs]).source


def tokens(vocabulary, text, shown=None):
    return TextTokens.of(vocabulary, vocabulary.encode(text), text if shown is None else shown)


@pytest.mark.parametrize(
    "text", ["Ein Hund läuft.", "  Der   Hund läuft 😀 weg. ", "𝔄 日本語 x", "", "e\u0301"]
)
def test_subwords_stand_where_the_text_has_them(subwords, text):
    """All that is no space is covered, in order."""
    found = tokens(subwords, text)
    assert len(found.spans) == len(found.tokens) == len(subwords.encode(text))
    covered = {place for begin, end in found.spans for place in range(begin, end)}
    assert {text[place] for place in covered if text[place].isspace()} <= {" "}
    assert covered >= {place for place, letter in enumerate(text) if not letter.isspace()}
    seen = [span for span in found.spans if span[0] < span[1]]
    assert seen == sorted(seen)


def test_words_are_linked_if_their_subwords_are():
    source = TextTokens("ab c", ("a", "b", " c"), ((0, 1), (1, 2), (2, 4)))
    target = TextTokens("x yz", ("x", " y", "z"), ((0, 1), (1, 3), (3, 4)))
    alignment = TextAlignment(source, target, ((0, 2), (1, 0), (2, 1)))
    assert alignment.links == ((0, 0), (0, 1), (1, 1))
    assert alignment.pharaoh() == "0-0 0-1 1-1"


def test_a_word_that_both_have_once_is_linked_where_nothing_else_is():
    source, target = (TextTokens(text, (), ()) for text in ("a {n} b {n} 7", "7 x {n}"))
    assert TextAlignment(source, target, ()).links == ((4, 0),)


def test_parts_are_joined_and_legs_composed():
    one = TextAlignment.copied("a b")
    whole = joined("a b\na b", "(a b)\n a b", [(one, 0, 1), (one, 4, 7)])
    assert whole.links == ((0, 0), (1, 1), (2, 2), (3, 3))
    words = [TextTokens("p q", (), ((0, 1), (2, 3))), TextTokens("r s t", (), ((0, 1), (2, 3), (4, 5)))]
    first = TextAlignment(words[0], words[1], ((0, 1), (1, 0), (1, 2)))
    second = TextAlignment(words[1], words[0], ((0, 0), (2, 1)))
    assert composed(first, second).links == ((1, 0), (1, 1))
