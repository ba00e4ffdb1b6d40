"""Learning SentencePiece models from a random sample of the training text."""

from __future__ import annotations

import io
import re
from collections.abc import Iterable, Iterator, Sequence

import sentencepiece

from deepwire.data.subwords.base import BOS, EOS, PAD, UNK, Vocabulary
from deepwire.data.subwords.sentencepiece import (
    BpeVocabulary,
    SentencePieceVocabulary,
    UnigramVocabulary,
    escaped,
)
from deepwire.data.text.pairs import Pair
from deepwire.data.text.reservoir import Reservoir
from deepwire.data.vocabulary_config import BpeConfig, UnigramConfig
from deepwire.errors import DataError

_THREADS = 8
"""Fixed, because the model that SentencePiece learns depends on it."""
_SAMPLE_SEED = 20_190
_QUIET = 5
_LONGEST_LINE_BYTES = 16_384


class SentencePieceLearner:
    """Learns from a random sample of the training pairs, chosen while they pass by."""

    def __init__(self, config: BpeConfig | UnigramConfig) -> None:
        self._config = config
        self._sample = Reservoir(config.max_training_sentences, _SAMPLE_SEED)

    def add(self, pairs: Sequence[Pair]) -> None:
        """Show the next pairs."""
        self._sample.extend(pairs)

    def finish(self) -> tuple[Vocabulary, Vocabulary]:
        """Train one model for both sides, or one for each.

        Raises:
            DataError: the size asked for is not possible with this text.
        """
        if self._config.joint:
            both = train_model(self._config, _both_sides(self._sample.pairs), "the text of both sides")
            return both, both
        return (
            train_model(self._config, (pair.source for pair in self._sample.pairs), "the source text"),
            train_model(self._config, (pair.target for pair in self._sample.pairs), "the target text"),
        )


def train_model(config: BpeConfig | UnigramConfig, lines: Iterable[str], what: str) -> Vocabulary:
    """Learn a SentencePiece model from lines, which errors call `what`.

    Raises:
        DataError: the size asked for is not possible with this text.
    """
    model = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=map(escaped, lines),
            model_writer=model,
            model_type=config.type,
            vocab_size=config.size,
            character_coverage=config.character_coverage,
            byte_fallback=config.byte_fallback,
            normalization_rule_name=config.normalization,
            pad_id=PAD,
            bos_id=BOS,
            eos_id=EOS,
            unk_id=UNK,
            unk_surface="\u2047",
            num_threads=_THREADS,
            max_sentence_length=_LONGEST_LINE_BYTES,
            minloglevel=_QUIET,
        )
    except RuntimeError as fault:
        raise _size_error(str(fault), config.size, what) from None
    vocabulary: type[SentencePieceVocabulary] = BpeVocabulary if config.type == "bpe" else UnigramVocabulary
    return vocabulary(model.getvalue())


def _both_sides(pairs: Sequence[Pair]) -> Iterator[str]:
    """Source and target lines in turn."""
    for pair in pairs:
        yield pair.source
        yield pair.target


def _size_error(message: str, size: int, what: str) -> DataError:
    """SentencePiece's message about an impossible size, in words that help."""
    largest = re.search(r"set it to a value <= (\d+)", message)
    if largest:
        return DataError(
            f"data.vocabulary.size: {what} supports at most {largest[1]} pieces, not {size}",
            f"set data.vocabulary.size={largest[1]} or less, or add text",
        )
    smallest = re.search(r"smaller than required_chars\. \d+ vs (\d+)", message)
    if smallest:
        return DataError(
            f"data.vocabulary.size: {what} needs at least {smallest[1]} pieces to spell it, not {size}",
            f"set data.vocabulary.size={smallest[1]} or more, or a smaller character_coverage",
        )
    return DataError(f"no vocabulary can be learned from {what}: {message.splitlines()[0]}")
