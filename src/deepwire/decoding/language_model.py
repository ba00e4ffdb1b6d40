"""Language models: they continue prompts to texts, and score documents.

Of a text the end of a document is made, which begins with a prompt. Long documents are scored in windows.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from itertools import chain, islice
from threading import Event
from typing import Any, NamedTuple, TypeAlias

import torch
from torch import Tensor

from deepwire.config.counts import require_int
from deepwire.data.data_config import TextConfig
from deepwire.data.prepare.packing import LINE_BREAK, document_ids, words_and_bytes
from deepwire.data.subwords.base import EOS
from deepwire.data.text.pairs import joined, plain
from deepwire.data.vocabulary import Vocabulary
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.model_inputs import batches_by_length, map_batches, pad_batch
from deepwire.decoding.models import DecodingModel, StepModel
from deepwire.decoding.search import Batch, Hypothesis, generate
from deepwire.decoding.translator import Translator
from deepwire.errors import UsageError

_Continued: TypeAlias = tuple[float, Hypothesis]
"""The log-probability of a prompt, and what follows it."""


@dataclass(frozen=True)
class GeneratedText:
    """A text that begins with a prompt."""

    prompt: str
    text: str
    """The prompt and what follows it."""
    log_probability: float
    """Natural logarithm, summed over all subwords of the text and its end."""
    ended: bool
    """Whether the model ended the text, and not the limit of its length."""


class LineBreaks:
    """A language model with one more subword: a line break, which has the number behind the last one.

    In documents a line break is BOS, which no search lets a model predict.
    """

    def __init__(self, model: StepModel, line_break: int) -> None:
        self._model, self._break = model, line_break

    def start(self, source: Tensor, *, languages: Tensor | None = None, prompt: Tensor | None = None) -> Any:
        """A state for each row of empty sources `[N, 0]`, behind prompts `[N, P]`."""
        return self._model.start(source, languages=languages, prompt=prompt)

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Log-probabilities `[rows, V + 1]` of what follows `tokens` `[rows]`."""
        log_probs, state = self._model.step(tokens.masked_fill(tokens == self._break, LINE_BREAK), state)
        return torch.cat((log_probs, log_probs[:, LINE_BREAK : LINE_BREAK + 1]), 1), state


@dataclass(frozen=True)
class TextGenerator:
    """Continues prompts, in batches, in their order."""

    model: DecodingModel
    vocabulary: Vocabulary
    text: TextConfig
    config: DecodingConfig
    limit: int
    """Most subwords behind a prompt."""
    device: torch.device
    positions: int | None = None
    """Tokens whose positions the model has learned; None: there is no end."""

    def texts(self, prompts: Iterable[str], *, first: int = 1) -> Iterator[GeneratedText]:
        """A text for each prompt; `first` is the number of the first one, which seeds random draws.

        Raises:
            UsageError: A prompt has several lines, and the documents of the model have one; or prompt and
                limit need more positions than the model has learned.
        """
        prompts, number = iter(prompts), first
        while read := list(islice(prompts, self.config.window)):
            yield from self._window(read, number)
            number += len(read)

    def _window(self, prompts: Sequence[str], first: int) -> list[GeneratedText]:
        ids = [self._ids(number, prompt) for number, prompt in enumerate(prompts, first)]

        def search(rows: Sequence[int], stop: Event) -> list[_Continued]:
            prompt_ids = [ids[row] for row in rows]
            batch = Batch(
                torch.zeros(len(rows), 0, dtype=torch.int64, device=self.device),
                [self.limit] * len(rows),
                [first + row for row in rows],
                # A document begins behind the end of another one.
                prompts=[[EOS, *each] for each in prompt_ids],
                context_ids=[[self._shown(token) for token in each] for each in prompt_ids],
                stop=stop,
            )
            hypotheses = generate(LineBreaks(self.model, self.vocabulary.size), batch, self.config)
            return [*zip(self._probabilities(prompt_ids), (best[0] for best in hypotheses), strict=True)]

        tokens = max(1, self.config.batch_tokens // self.config.width)
        batches = batches_by_length([len(row) + self.limit for row in ids], tokens)
        continuations = map_batches(search, batches, self.device)
        return [self._text(prompt, ids[row], continuations[row]) for row, prompt in enumerate(prompts)]

    @torch.inference_mode()
    def _probabilities(self, prompts: Sequence[Sequence[int]]) -> list[float]:
        if not any(prompts):
            return [0.0] * len(prompts)
        read = pad_batch([[EOS, *each[:-1]] if each else [] for each in prompts], self.device)
        source = torch.zeros(len(prompts), 0, dtype=torch.int64, device=self.device)
        sums: list[float] = self.model.score(source, read, pad_batch(prompts, self.device)).sum(1).tolist()
        return sums

    def _shown(self, token: int) -> int:
        """A subword of a document as a search has it."""
        return self.vocabulary.size if token == LINE_BREAK else token

    def _ids(self, number: int, prompt: str) -> list[int]:
        if self.text.unit == "lines":
            if joined(prompt) != prompt:
                raise UsageError(
                    f"prompt {number}: has several lines, and the model was trained on documents of one line",
                    "give one line",
                )
            ids = self.vocabulary.encode(plain(prompt))
        else:
            ids = document_ids([plain(line) for line in prompt.split("\n")], self.vocabulary)[:-1]
        left = self.limit if self.positions is None else self.positions - len(ids)
        if left < self.limit:
            raise UsageError(
                f"prompt {number}: has {len(ids)} subwords, and {self.limit} more do not fit into the "
                f"{self.positions} positions that the model has learned",
                f"set max_length to {left} or less" if left > 0 else "give a shorter prompt",
            )
        return ids

    def _text(self, prompt: str, ids: Sequence[int], continued: _Continued) -> GeneratedText:
        before, hypothesis = continued
        ids = [self._shown(token) for token in ids]
        head, whole = self._decoded(ids), self._decoded([*ids, *hypothesis.ids])
        text = prompt + whole[len(head) :] if whole.startswith(head) else whole
        return GeneratedText(
            prompt, text, before + hypothesis.log_probability, len(hypothesis.ids) < self.limit
        )

    def _decoded(self, ids: Sequence[int]) -> str:
        lines, line = [], list[int]()
        for token in (*ids, self.vocabulary.size):
            if token == self.vocabulary.size:
                # The vocabulary may spell a line break byte by byte, which is none.
                lines.append(plain(self.vocabulary.decode(line)))
                line = []
            else:
                line.append(token)
        return "\n".join(lines)


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
        return TextScore(*(getattr(self, part.name) + getattr(other, part.name) for part in fields(self)))

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
        made = ("perplexity", "word_perplexity", "byte_perplexity", "bits_per_byte")
        return {name: getattr(self, name) for name in (*made, *(part.name for part in fields(self)))}


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
    """

    model: DecodingModel
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
    model: Translator,
    text: TextConfig,
    context: int | None = None,
    stride: int | None = None,
    positions: int | None = None,
) -> TextScorer:
    """The scorer of documents of a language model as it was loaded.

    Args:
        model: The model, or several as an ensemble.
        text: What its documents are.
        context: Most tokens that it reads at once; default: the block that it was trained with.
        stride: Tokens by which windows advance; default: half of `context`.
        positions: Tokens whose positions the model has learned; None: there is no end.
    """
    context = text.block if context is None else require_int(context, "context", 1)
    stride = max(1, context // 2) if stride is None else require_int(stride, "stride", 1)
    if stride > context:
        raise UsageError(f"stride must be from 1 to the context of {context} tokens, not {stride}")
    if positions is not None and context > positions:
        raise UsageError(
            f"context of {context} tokens: the model has learned {positions} positions",
            f"set context to {positions} or less",
        )
    tokens = model.config.batch_tokens
    return TextScorer(model.model, model.vocabularies.target, text, context, stride, tokens, model.device)
