from __future__ import annotations

import pytest

from deepwire.serve.libretranslate.language_codes import LanguageCodes, language_name, written_code
from deepwire.serve.libretranslate.translating import corrected


@pytest.mark.parametrize(
    ("source", "translation", "expected"),
    [
        ("Ein Hund", "A dog.", "A dog"),
        ("Ein Hund.", "A dog", "A dog."),
        ("你好。", "Hello.", "Hello."),
        ("ein hund", "A Dog", "a dog"),
        ("EIN HUND", "A dog", "A DOG"),
        ("Ein Hund", "a dog", "A dog"),
        ("Hallo", "Hello hello Hello", "Hello"),
        ("a & b Hund", "A &amp; b", "a & b"),
        ("&amp; Hund", "&amp; Dog", "&amp; Dog"),
        ("Hund", f"Dog &#{'9' * 5000};", "Dog \ufffd"),
        ("", "", ""),
        ("Ein Hund …", "A dog ...", "A dog ..."),
        ("你好。", "안녕", "안녕。"),
        ("यह कुत्ता है।", "This is a dog.", "This is a dog."),
        ("هل هذا كلب؟", "Is it a dog?", "Is it a dog?"),
        ("Είναι σκύλος;", "Is it a dog?", "Is it a dog?"),
        ("Is it a dog?", "Είναι σκύλος;", "Είναι σκύλος;"),
    ],
)
def test_what_the_source_suggests(source, translation, expected):
    assert corrected(source, translation) == expected


def test_codes_are_written_as_clients_know_them():
    codes = LanguageCodes(["de", "zh_CN", "zh_TW", "pt_BR", "pt"])
    for code, label in {"DE": "de", "zh": "zh_CN", "zh-Hans": "zh_CN", "zt": "zh_TW", "zh-hant": "zh_TW",
                        "pb": "pt_BR", "pt-br": "pt_BR", "pt": "pt", "fr": None}.items():  # fmt: skip
        assert codes.label(code) == label
    others = LanguageCodes(["pt_BR", "zh_TW", "sr-Latn"])
    assert [others.label(code) for code in ("pt", "sr", "zh", "en-GB")] == ["pt_BR", "sr-Latn", None, None]
    assert [written_code(label) for label in ("zh_CN", "zh_TW", "pt_BR", "deu")] == [
        "zh-Hans",
        "zh-Hant",
        "pt-BR",
        "de",
    ]
    assert language_name("pt_BR") == "Portuguese (Brazil)"
    assert language_name("qqq") == "qqq"
