"""A warning where text is not in the language that a model translates from, and none elsewhere."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest

from deepwire.decoding.source_language import SourceLanguage

WARNING = "the text looks like 'en', but the model translates from 'de'"


def warnings(language: str, parts: Iterable[Sequence[str]], other: str = "en") -> list[str]:
    said: list[str] = []
    check = SourceLanguage(language, [other], said.append)
    for lines in parts:
        check.look(lines)
    return said


@pytest.mark.parametrize("window", [1, 7, 1000])
def test_the_other_language_is_said_once(multi30k: Mapping[str, Sequence[str]], window: int) -> None:
    lines = multi30k["en"][:1000]
    parts = [lines[first : first + window] for first in range(0, len(lines), window)]
    assert warnings("de", parts) == [WARNING]


@pytest.mark.parametrize("language", ["de", "en"])
def test_nothing_is_said_of_real_text_cut_anywhere(
    multi30k: Mapping[str, Sequence[str]], language: str
) -> None:
    lines = multi30k[language]
    for first in range(0, 2000, 20):
        assert warnings(language, [lines[first : first + 20]], {"de": "en", "en": "de"}[language]) == []


def test_nothing_is_said_of_short_text(multi30k: Mapping[str, Sequence[str]]) -> None:
    for line in multi30k["en"][:200]:
        if len(line.split()) < 20:
            assert warnings("de", [[line]]) == []
    assert warnings("de", [["New York Times", "Star Wars", "The Beatles", "iPhone 15 Pro Max"]]) == []


@pytest.mark.parametrize("language", ["source", "qaa", "src", ""])
def test_nothing_is_said_where_the_language_is_not_known(
    multi30k: Mapping[str, Sequence[str]], language: str
) -> None:
    assert warnings(language, [multi30k["en"][:100]], "target") == []


def test_scripts_tell_languages_without_frequent_words(multi30k: Mapping[str, Sequence[str]]) -> None:
    japanese = ["老人は川のそばに座っていたが、三日間魚が一匹も釣れなかった。"]
    assert warnings("ja", [multi30k["en"][:20]]) == [WARNING.replace("'de'", "'ja'")]
    assert warnings("ja", [japanese]) == []
    assert warnings("en", [japanese], "de") == [
        "the text looks like 'ja', but the model translates from 'en'"
    ]


def test_mixed_text_and_the_dialect_of_the_label_are_left_alone(
    multi30k: Mapping[str, Sequence[str]],
) -> None:
    mixed = [line for pair in zip(multi30k["de"][:50], multi30k["en"][:50], strict=True) for line in pair]
    assert warnings("de", [mixed]) == []
    assert warnings("deu_Latn", [multi30k["de"][:50]], "eng_Latn") == []
    assert warnings("de-AT", [multi30k["de"][:50]]) == []
