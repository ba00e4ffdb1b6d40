"""Lines that are too long for a model: which are cut, and what their pieces are asked for."""

from __future__ import annotations

from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.decoding.long_lines import LongLines
from deepwire.decoding.translation_io import Request

LONG = "Donaudampfschifffahrt"


def pieces_of(request, longest):
    pairs = [Pair(1, f"{LONG} ab cd", "ef", 0)]
    vocabulary = Vocabularies.learn(WordsConfig(), pairs).source
    _, pieces, _ = LongLines(vocabulary, longest, ("de", "en"), lambda _text: None).expanded([1], [request])
    return pieces


def test_a_line_that_fits_is_never_cut_however_long_its_words_are():
    request = Request(f"{LONG}. {LONG}. {LONG}.")
    assert pieces_of(request, 3) == [request]
    assert len(pieces_of(request, 2)) > 1


def test_a_prefix_is_that_of_the_first_piece_that_is_translated(toys):
    vocabulary = toys.vocabularies(12).source
    warnings: list[str] = []
    lines = LongLines(vocabulary, 5, ("de", "en"), warnings.append)
    _, pieces, _ = lines.expanded([1], [Request("abcdefgh ab cafe", prefix="b")])
    assert [piece.prefix for piece in pieces] == ["b", *[""] * (len(pieces) - 1)]
    assert "abcdefgh" in warnings[0]
