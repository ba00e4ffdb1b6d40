"""Ways to cut text into subwords; the one table of them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import assert_never

from deepwire.data.subwords.base import Learner, Vocabulary
from deepwire.data.subwords.sentencepiece import (
    BpeVocabulary,
    PieceTableVocabulary,
    SentencePieceLearner,
    UnigramVocabulary,
)
from deepwire.data.subwords.subword_nmt import SubwordNmtLearner, SubwordNmtVocabulary
from deepwire.data.subwords.words import WordLearner, WordVocabulary
from deepwire.data.vocabulary_config import (
    BpeConfig,
    LearnedConfig,
    SubwordNmtConfig,
    UnigramConfig,
    WordsConfig,
)

Loader = Callable[[Mapping[str, bytes], str], Vocabulary]

LOADERS: dict[str, tuple[tuple[str, ...], Loader]] = {
    "bpe": (("model",), BpeVocabulary.from_files),
    "unigram": (("model",), UnigramVocabulary.from_files),
    "subword_nmt": (("codes", "pieces.json", "allowed.json"), SubwordNmtVocabulary.from_files),
    "words": (("pieces.json", "settings.json"), WordVocabulary.from_files),
    "piece_table": (("model", "pieces.json"), PieceTableVocabulary.from_files),
}
"""The endings of the files of each type of vocabulary, and how it is made of their contents and a name."""


def learner(config: LearnedConfig) -> Learner:
    """The learner of the type of vocabulary that `config` asks for."""
    match config:
        case BpeConfig() | UnigramConfig():
            return SentencePieceLearner(config)
        case SubwordNmtConfig():
            return SubwordNmtLearner(config)
        case WordsConfig():
            return WordLearner(config)
        case _:
            assert_never(config)
