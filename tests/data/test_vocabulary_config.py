from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter, ValidationError

from deepwire.data.vocabulary_config import (
    BpeConfig,
    SubwordNmtConfig,
    UnigramConfig,
    VocabularyConfig,
    WordsConfig,
)

read = TypeAdapter(VocabularyConfig).validate_python


@pytest.mark.parametrize(
    ("written", "expected"),
    [
        ("bpe", BpeConfig()),
        ("unigram", UnigramConfig()),
        ("words", WordsConfig()),
        ({"size": "4k"}, BpeConfig(size=4000)),
        ({"type": "unigram", "joint": False}, UnigramConfig(joint=False)),
        ({"type": "subword_nmt", "codes": "codes.txt"}, SubwordNmtConfig(codes=Path("codes.txt"))),
        ({"type": "words", "max_size": "10k", "joiner": "@@"}, WordsConfig(max_size=10_000, joiner="@@")),
    ],
)
def test_short_and_long_forms_mean_the_same(written: object, expected: object) -> None:
    assert read(written) == expected


@pytest.mark.parametrize(
    ("written", "message"),
    [
        ("sentencepiece", "does not match any of the expected tags"),
        ({"size": 4}, "greater than or equal to 8"),
        ({"sampling": 1.0}, "less than 1"),
        ({"type": "unigram", "sampling": -1}, "greater than or equal to 0"),
        ({"type": "subword_nmt"}, "Field required"),
        ({"type": "words", "sampling": 0.1}, "Input should be 0"),
        (17, "valid dictionary"),
    ],
)
def test_impossible_settings_are_refused(written: object, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        read(written)
