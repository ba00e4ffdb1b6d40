"""The steps of a line: ordinary case, pieces of long lines, guards."""

from __future__ import annotations

from pathlib import Path

import pytest

from deepwire.data.text.pairs import Pair
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import WordsConfig
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.line_steps import Item, LineCasing, LongLines
from deepwire.decoding.second_search import is_degenerate, loops
from deepwire.decoding.terms import Terminology
from deepwire.decoding.translation_io import Candidate, Request
from deepwire.decoding.translator import Translator

CAPITALS = ["abcdef abc", "ABCDEF, ABC", "abc", "ABC %s DEFAB"]


@pytest.fixture
def tool(toys):
    def make(**settings):
        config = DecodingConfig.model_validate({"beam": 3, "n_best": 2, **settings})
        return Translator([toys.Model(12)], toys.vocabularies(12), config)

    return make


def test_capitals_are_translated_as_sentences_and_come_back(tool):
    plain, casing = tool(), tool(casing=True)
    ordinary = ["abcdef abc", "Abcdef, abc", "abc", "Abc %s defab"]
    expected = list(plain.translations(ordinary))
    found = list(casing.translations(CAPITALS))
    assert plain.translate(CAPITALS) != plain.translate(ordinary), "capitals must make a difference"
    assert [one.request.text for one in found] == CAPITALS
    for line, own, other in zip(CAPITALS, found, expected, strict=True):
        texts = [candidate.text for candidate in other.candidates]
        wanted = texts if line == line.lower() else [text.upper() for text in texts]
        assert [candidate.text for candidate in own.candidates] == wanted
        assert own.score == other.score


def test_terms_in_mixed_case_stay(toys, tmp_path: Path):
    (tmp_path / "terms").write_text("abc\tfEd\n")
    terms = Terminology.read(tmp_path / "terms", print)

    casing = LineCasing(toys.vocabularies(12).source, terms, "en")
    (item,) = casing.lower([Item(1, Request("ABC DEFABC"), "ABC DEFABC")])
    item.candidates = (Candidate("Press fEd now", (), 0.0, 0.0),)
    assert casing.restore([item])[0].candidates[0].text == "PRESS fEd NOW"


LONG = "Donaudampfschifffahrt"


def pieces_of(text, longest):
    pairs = [Pair(1, f"{LONG} ab cd", "ef", 0)]
    vocabulary = Vocabularies.learn_from_blocks(WordsConfig(), [pairs]).source
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


@pytest.mark.parametrize(
    ("ids", "expected"),
    [
        ([], False),
        ([7, 7, 7, 7], False),
        ([5, 7, 7, 7, 7, 7], True),
        ([5, 6, 5, 6, 5, 6, 9], False),
        ([9, 5, 6, 5, 6, 5, 6, 5, 6], True),
        ([4, 5, 6, 7, 8, 9, 10, 11] * 4, True),
        (list(range(40)), False),
    ],
)
def test_what_repeats_itself(ids, expected):
    assert loops(ids) is expected


def test_a_source_may_repeat_itself():
    assert not is_degenerate([5] * 9, [6] * 9, 20)
    assert is_degenerate([5, 6], [6] * 9, 20)
    assert is_degenerate([5, 6], [6, 7, 8], 3)


def test_a_translation_that_repeats_itself_gets_a_second_try(toys):
    def translated(**config):
        settings = {"max_length_ratio": 1, "max_length_extra": 9, "beam": 1, **config}
        tool = Translator([toys.Model(12)], toys.vocabularies(12), DecodingConfig.model_validate(settings))
        return tool.translate(["123 – 4", *toys_lines])

    toys_lines = ["".join(chr(ord("a") + (one * place) % 8) for one in range(1, 8)) for place in range(1, 40)]
    plain, guarded = translated(), translated(guards=True)
    assert guarded[0] == "123 – 4" != plain[0]
    looping = [place for place, text in enumerate(plain) if loops(list(map(ord, text)))]
    assert looping
    assert sum(loops(list(map(ord, guarded[place]))) for place in looping) < len(looping)
    same = [place for place in range(1, len(plain)) if place not in looping and len(plain[place]) < 7]
    assert [guarded[place] for place in same] == [plain[place] for place in same]
