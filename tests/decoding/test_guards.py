from __future__ import annotations

import pytest

from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.search import generate
from deepwire.decoding.second_search import is_degenerate, loops
from deepwire.decoding.translation_io import EmptyTranslations
from deepwire.decoding.translator import Translator


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


def test_nearly_only_empty_translations_are_warned_about():
    def said(pairs):
        warnings: list[str] = []
        noted = EmptyTranslations(warnings.append)
        for source, translation in pairs:
            noted.see(source, translation)
        noted.end()
        return warnings

    (warning,) = said([("a b", "")] * 9 + [("a", "b"), ("", ""), (" ", "")])
    assert warning.startswith("9 of 10 translations are empty: ")
    assert said([("a", "")] * 8 + [("a", "b")] * 2) == []
    assert said([("", "")] * 20) == []
    assert said([("a", "")] * 4) == []


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


def test_a_second_try_keeps_a_stricter_setting(toys, monkeypatch):
    """`no_repeat_ngram: 2` became 3 there."""
    asked: list[int] = []

    def noted(model, batch, config):
        asked.append(config.no_repeat_ngram)
        return generate(model, batch, config)

    monkeypatch.setattr("deepwire.decoding.line_steps.generate", noted)
    monkeypatch.setattr("deepwire.decoding.second_search.is_degenerate", lambda *_: True)
    settings = {"max_length_ratio": 1, "max_length_extra": 9, "beam": 1, "guards": True}
    for own, again in ((0, 3), (2, 2), (5, 3)):
        config = DecodingConfig.model_validate({**settings, "no_repeat_ngram": own})
        Translator([toys.Model(12)], toys.vocabularies(12), config).translate(["abc"])
        assert asked[-1] == again
