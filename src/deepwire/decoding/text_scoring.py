"""The probability that a language model gives to documents, of which long ones are read in windows."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain, islice
from typing import TYPE_CHECKING, NamedTuple

import torch

from deepwire.config.counts import whole_argument
from deepwire.data.data_config import TextConfig
from deepwire.data.subwords.base import EOS
from deepwire.data.text_documents import document_ids, words_and_bytes
from deepwire.data.vocabulary import Vocabulary
from deepwire.decoding.model_inputs import batches_by_length, pad_batch
from deepwire.decoding.step_models import ScoringModel
from deepwire.errors import UsageError

if TYPE_CHECKING:
    from deepwire.decoding.translator import Translator
    from deepwire.model.decoder_state import DecoderState


@dataclass(frozen=True)
class TextScore:
    """The probability of text, and what it is counted by.

    Attributes:
        log_probability: Natural logarithm, summed over all tokens, line breaks and ends of documents too.
        tokens: How many these are.
        words: What stands between spaces.
        bytes: Of the text as it was read, in UTF-8, with one byte for each line end and an empty line behind
            each document of several lines.
        documents: How many.
    """

    log_probability: float = 0.0
    tokens: int = 0
    words: int = 0
    bytes: int = 0
    documents: int = 0

    def __add__(self, other: TextScore) -> TextScore:
        return TextScore(
            self.log_probability + other.log_probability,
            self.tokens + other.tokens,
            self.words + other.words,
            self.bytes + other.bytes,
            self.documents + other.documents,
        )

    @property
    def perplexity(self) -> float:
        """Per token; it depends on the vocabulary."""
        return self._per(self.tokens)

    @property
    def word_perplexity(self) -> float:
        """Per word; models with different vocabularies can be compared by it."""
        return self._per(self.words)

    @property
    def byte_perplexity(self) -> float:
        """Per byte."""
        return self._per(self.bytes)

    @property
    def bits_per_byte(self) -> float:
        """The binary logarithm of the perplexity per byte."""
        return -self.log_probability / max(self.bytes, 1) / math.log(2)

    def _per(self, count: int) -> float:
        try:
            return math.exp(-self.log_probability / max(count, 1))
        except OverflowError:
            return math.inf

    def to_dict(self) -> dict[str, float]:
        """All of it, for JSON."""
        return {
            "perplexity": self.perplexity,
            "word_perplexity": self.word_perplexity,
            "byte_perplexity": self.byte_perplexity,
            "bits_per_byte": self.bits_per_byte,
            "log_probability": self.log_probability,
            "tokens": self.tokens,
            "words": self.words,
            "bytes": self.bytes,
            "documents": self.documents,
        }


class _Window(NamedTuple):
    """A stretch of the tokens of a document, of which the last ones are scored."""

    document: int
    start: int
    scored: int
    """The first token that is scored here; those from `start` on are its context."""
    stop: int


@dataclass(frozen=True)
class TextScorer:
    """Scores documents in batches, in their order.

    The model reads at most `context` tokens at once. A longer document is read in windows that advance by
    `stride` tokens: but for the first `context` ones, each token has from `context - stride` to `context - 1`
    tokens before it. A small stride gives lower perplexities and takes longer.

    Args:
        model: A language model, or several as one.
        vocabulary: Its vocabulary.
        text: What its documents are.
        context: Most tokens at once; 1 or more.
        stride: Tokens that a window scores; from 1 to `context`.
        batch_tokens: Padded tokens in a batch.
        device: Where the model is.
    """

    model: ScoringModel
    vocabulary: Vocabulary
    text: TextConfig
    context: int
    stride: int
    batch_tokens: int
    device: torch.device

    def scores(self, documents: Iterable[Sequence[str]], at_once: int = 1024) -> Iterator[TextScore]:
        """The score of each document, whose lines are given; so many are read ahead."""
        documents = iter(documents)
        while read := list(islice(documents, at_once)):
            ids = [document_ids(lines, self.vocabulary) for lines in read]
            for lines, tokens, total in zip(read, ids, self._totals(ids), strict=True):
                yield TextScore(total, len(tokens), *words_and_bytes(lines, self.text.unit), 1)

    def joined(self, documents: Iterable[Sequence[str]]) -> TextScore:
        """The score of all documents as one stream, in which they see those before them, as in training."""
        counts, ids = TextScore(), list[int]()
        for lines in documents:
            subwords = document_ids(lines, self.vocabulary)
            counts += TextScore(0.0, len(subwords), *words_and_bytes(lines, self.text.unit), 1)
            ids += subwords
        return counts + TextScore(sum(self._totals([ids] if ids else [])))

    @torch.inference_mode()
    def _totals(self, ids: Sequence[Sequence[int]]) -> list[float]:
        """The log-probability of the tokens of each document behind an end symbol."""
        windows = list(chain.from_iterable(self._windows(number, len(row)) for number, row in enumerate(ids)))
        totals = [0.0] * len(ids)
        for batch in batches_by_length([each.stop - each.start for each in windows], self.batch_tokens):
            chosen = [windows[index] for index in batch]
            rows = [ids[each.document][each.start : each.stop] for each in chosen]
            before = [ids[each.document][each.start - 1] if each.start else EOS for each in chosen]
            values = (
                self.model.score(
                    torch.zeros(len(rows), 0, dtype=torch.int64, device=self.device),
                    pad_batch(
                        [[first, *row[:-1]] for first, row in zip(before, rows, strict=True)], self.device
                    ),
                    pad_batch(rows, self.device),
                )
                .double()
                .tolist()
            )
            for each, row in zip(chosen, values, strict=True):
                scored = row[each.scored - each.start : each.stop - each.start]
                totals[each.document] += math.fsum(scored)
        return totals

    def _windows(self, document: int, tokens: int) -> Iterator[_Window]:
        stop = min(tokens, self.context)
        yield _Window(document, 0, 0, stop)
        while stop < tokens:
            scored, stop = stop, min(tokens, stop + self.stride)
            yield _Window(document, max(0, stop - self.context), scored, stop)


def text_scorer(
    model: Translator[DecoderState],
    text: TextConfig,
    context: int | None = None,
    stride: int | None = None,
    positions: int | None = None,
) -> TextScorer:
    """What scores documents with a language model as it was loaded.

    Args:
        model: The model, or several as an ensemble.
        text: What its documents are.
        context: Most tokens that it reads at once; default: the block that it was trained with.
        stride: Tokens by which windows advance; default: half of `context`.
        positions: Tokens whose positions the model has learned; None: there is no end.

    Raises:
        UsageError: A setting is impossible.
    """
    context = text.block if context is None else whole_argument(context, "context", 1)
    stride = max(1, context // 2) if stride is None else whole_argument(stride, "stride", 1)
    if stride > context:
        raise UsageError(f"stride must be from 1 to the context of {context} tokens, not {stride}")
    if positions is not None and context > positions:
        raise UsageError(
            f"context of {context} tokens: the model has learned {positions} positions",
            f"set context to {positions} or less",
        )
    tokens = model.config.batch_tokens
    return TextScorer(model.model, model.vocabularies.target, text, context, stride, tokens, model.device)
