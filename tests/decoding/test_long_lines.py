"""Lines that are too long for a model: which are cut, and what their pieces are asked for."""

from __future__ import annotations

from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.decoding.line_steps import Item, LongLines
from deepwire.decoding.translation_io import Request

LONG = "Donaudampfschifffahrt"


def pieces_of(text, longest):
    pairs = [Pair(1, f"{LONG} ab cd", "ef", 0)]
    vocabulary = Vocabularies.learn(WordsConfig(), pairs).source
    lines = LongLines(vocabulary, longest, ("de", "en"), lambda _text: None)
    return lines.cut([Item(1, Request(text), text)])


def test_a_line_that_fits_is_never_cut_however_long_its_words_are():
    text = f"{LONG}. {LONG}. {LONG}."
    (whole,) = pieces_of(text, 3)
    assert (whole.text, whole.cut) == (text, None)
    assert len(pieces_of(text, 2)) > 1


def test_a_prefix_is_that_of_the_first_piece_that_is_translated(toys):
    vocabulary = toys.vocabularies(12).source
    warnings: list[str] = []
    lines = LongLines(vocabulary, 5, ("de", "en"), warnings.append)
    text = "abcdefgh ab cafe"
    kept, *pieces = lines.cut([Item(1, Request(text, prefix="b"), text, "b")])
    assert (kept.copied, kept.prefix) == (True, "")
    assert [piece.prefix for piece in pieces] == ["b", *[""] * (len(pieces) - 1)]
    assert "abcdefgh" in warnings[0]
