"""Ways to cut text into subwords; the one table of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import assert_never

from deepwire.data.subwords.base import Learner, Vocabulary
from deepwire.data.subwords.piece_table import PieceTableVocabulary
from deepwire.data.subwords.sentencepiece import BpeVocabulary, SentencePieceLearner, UnigramVocabulary
from deepwire.data.subwords.subword_nmt import SubwordNmtLearner, SubwordNmtVocabulary
from deepwire.data.subwords.words import WordLearner, WordVocabulary
from deepwire.data.vocabulary_config import (
    BpeConfig,
    LearnedConfig,
    SubwordNmtConfig,
    UnigramConfig,
    WordsConfig,
)

LOADERS: dict[str, Callable[[Path, str], Vocabulary]] = {
    "bpe": BpeVocabulary.load,
    "unigram": UnigramVocabulary.load,
    "subword_nmt": SubwordNmtVocabulary.load,
    "words": WordVocabulary.load,
    "piece_table": PieceTableVocabulary.load,
}
"""How each type of vocabulary is read from the files `NAME.*` of a folder."""


def learner(config: LearnedConfig, symbols: Sequence[str] = ()) -> Learner:
    """What learns the type of vocabulary that `config` asks for; `symbols` are for SentencePiece alone."""
    match config:
        case BpeConfig() | UnigramConfig():
            return SentencePieceLearner(config, symbols)
        case SubwordNmtConfig():
            return SubwordNmtLearner(config)
        case WordsConfig():
            return WordLearner(config)
        case _:
            assert_never(config)
