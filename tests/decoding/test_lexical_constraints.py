"""Placeholders and terms that translations must have, with random models that know nothing of them."""

from __future__ import annotations

import pytest

from deepwire.data.text.pairs import Pair
from deepwire.data.text.placeholders import count_placeholders
from deepwire.data.vocabulary import Vocabularies
from deepwire.data.vocabulary_config import BpeConfig
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.terms import Term, Terminology
from deepwire.decoding.translation_io import Request
from deepwire.decoding.translator import Translator
from deepwire.errors import UsageError

LINES = [
    "ein Hund läuft",
    "7 Hunde und 12 Katzen",
    "<b>ein Hund</b> sieht {name} (https://a.de/b?c=1)",
    "%s",
    "",
    "12 : 12",
    "Schreib an a@b.de, {name} %d!",
    " ".join(str(number) for number in range(100, 120)) + " Hunde",
]


@pytest.fixture(scope="module")
def learned():
    texts = ["ein Hund läuft durch das Gras", "a dog runs through the grass", "a cat & 0123456789 signs"] * 3
    pairs = [Pair(line, text, text[::-1], 0) for line, text in enumerate(texts, 1)]
    return Vocabularies.learn_from_blocks(BpeConfig(size=420), [pairs])


def translator(toys, vocabularies, terms=None, **config):
    return Translator(
        [toys.Model(size=vocabularies.target.size, sharpness=1.0)],
        vocabularies,
        DecodingConfig.model_validate({"max_length_ratio": 1, "max_length_extra": 3, "beam": 2, **config}),
        terms=terms,
    )


@pytest.mark.parametrize("search", [{"beam": 1}, {"beam": 3, "n_best": 2}, {"beam": 3, "no_repeat_ngram": 2}])
def test_every_placeholder_is_kept(toys, learned, search):
    answers = list(translator(toys, learned, placeholders=True, **search).translations(LINES))
    for line, answer in zip(LINES, answers, strict=True):
        for candidate in answer.candidates:
            lost = count_placeholders(line) - count_placeholders(candidate.text)
            assert not lost, (line, candidate.text)
    assert answers[4].text == ""
    assert answers[3].text == "%s"
    assert answers[5].text == "12 : 12"


def test_samples_keep_placeholders(toys, learned):
    tool = translator(toys, learned, placeholders=True, n_best=3, sampling={})
    for line, answer in zip(LINES, tool.translations(LINES), strict=True):
        for candidate in answer.candidates:
            assert not count_placeholders(line) - count_placeholders(candidate.text)


def test_terms_are_in_every_translation(toys, learned):
    terms = Terminology((Term("Hund*", ("hound", "dog*")), Term("Katzen", ("cat*",))))
    tool = translator(toys, learned, terms, n_best=2)
    for line, answer in zip(LINES, tool.translations(LINES), strict=True):
        for candidate in answer.candidates:
            for term in terms.find(line):
                assert term.count(candidate.text) >= 1, (line, candidate.text)


@pytest.mark.parametrize("settings", [{"placeholders": True}, {"guards": True}, {"guards": True, "beam": 1}])
def test_nothing_stands_in_front_of_a_prefix(toys, learned, settings):
    """No placeholder of the source, and no line that would be its own translation."""
    lines = ["12:30", "%s", "({name}) ein Hund", "https://a.de ein Hund %s"]
    requests = [Request(line, prefix="a dog") for line in lines]
    for answer in translator(toys, learned, **settings).translations(requests):
        assert answer.text.startswith("a dog")
        kept = count_placeholders(answer.request.text) if "placeholders" in settings else {}
        assert all(placeholder in answer.text for placeholder in kept)


def test_terms_and_samples_exclude_each_other(toys, learned):
    with pytest.raises(UsageError, match="sampling"):
        translator(toys, learned, Terminology((Term("Hund", ("dog",)),)), sampling={})
