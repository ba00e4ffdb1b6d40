from __future__ import annotations

from pathlib import Path

import pytest
from pydantic import TypeAdapter

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
