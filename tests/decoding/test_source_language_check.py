"""Text in another language than the model translates from: warned about once, and only where it is clear."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest

from deepwire.data.text.language_profiles import LanguageProfiles
from deepwire.decoding.source_language_check import SourceLanguage

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


@pytest.mark.parametrize(
    ("language", "line", "script"),
    [
        ("de", "Привет, мир", "cyrillic"),
        ("de", "東京は大きい", "cjk"),
        ("ru", "Καλημέρα κόσμε", "greek"),
        ("en", "नमस्ते दुनिया", "devanagari"),
        ("ja", "안녕하세요", "hangul"),
        ("de", "hund", ""),
        ("ja", "iPhone 15 Pro", ""),
        ("ja", "東京", ""),
        ("de", "Das Wort мир heißt Frieden", ""),
        ("de", "12 + 3", ""),
    ],
)
def test_one_line_in_another_script_is_enough(language: str, line: str, script: str) -> None:
    said = warnings(language, [[line]])
    assert len(said) == bool(script)
    assert all(script in each or "looks like" in each for each in said)


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


def test_profiles_of_the_model_tell_languages_that_no_table_has():
    texts = {"xx": ["szczerze ptak na drzewie szczeka"] * 4, "yy": ["aloha mahalo keiki moana pua"] * 4}
    profiles, said = LanguageProfiles.learn(texts), list[str]()
    SourceLanguage("xx", ["yy"], said.append).look(texts["yy"] * 2)
    SourceLanguage("xx", ["yy"], said.append, profiles).look(texts["xx"] * 2)
    SourceLanguage("xx", ["yy"], said.append, profiles).look(texts["yy"][:1])  # too short
    assert said == []
    SourceLanguage("xx", ["yy"], said.append, profiles).look(texts["yy"] * 2)
    assert said == ["the text looks like 'yy', but the model translates from 'xx'"]
