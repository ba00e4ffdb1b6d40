from __future__ import annotations

from pathlib import Path

import pytest

from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.line_steps import Item, LineCasing
from deepwire.decoding.terms import Terminology
from deepwire.decoding.translation_io import Candidate, Request
from deepwire.decoding.translator import Translator

LINES = ["abcdef abc", "ABCDEF, ABC", "abc", "ABC %s DEFAB"]


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
    found = list(casing.translations(LINES))
    assert plain.translate(LINES) != plain.translate(ordinary), "capitals must make a difference"
    assert [one.request.text for one in found] == LINES
    for line, own, other in zip(LINES, found, expected, strict=True):
        texts = [candidate.text for candidate in other.candidates]
        wanted = texts if line == line.lower() else [text.upper() for text in texts]
        assert [candidate.text for candidate in own.candidates] == wanted
        assert own.score == other.score


def test_a_given_beginning_is_kept(tool):
    request = Request("ABCDEF ABC", prefix="ab")
    (found,) = tool(casing=True).translations([request])
    assert found.text.startswith("ab")
    assert found == next(iter(tool().translations([request])))


def test_terms_in_mixed_case_stay(toys, tmp_path: Path):
    (tmp_path / "terms").write_text("abc\tfEd\n")
    terms = Terminology.read(tmp_path / "terms", print)

    casing = LineCasing(toys.vocabularies(12).source, terms, "en")
    (item,) = casing.lower([Item(1, Request("ABC DEFABC"), "ABC DEFABC")])
    item.candidates = (Candidate("Press fEd now", (), 0.0, 0.0),)
    assert casing.restore([item])[0].candidates[0].text == "PRESS fEd NOW"
