"""Texts that a language model makes: the end of a document that begins with a prompt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Event
from typing import Generic

import torch
from torch import Tensor

from deepwire.data.subwords.base import BOS, EOS
from deepwire.data.text.pairs import joined, plain
from deepwire.data.text_config import TextConfig
from deepwire.data.text_documents import LINE_BREAK, document_ids
from deepwire.data.vocabulary import Vocabulary
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.generate import generate
from deepwire.decoding.hypotheses import Hypothesis
from deepwire.decoding.model_inputs import batches_by_length, ordered_map
from deepwire.decoding.step_models import CancellableModel, Ensemble, EnsembleState, StateT
from deepwire.errors import UsageError


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


class _DocumentModel(Generic[StateT]):
    """A language model as a search steps translation models.

    A search begins with BOS and forbids it afterwards. Here a document begins behind the end of another one,
    and BOS is a line break, which is predicted as one more subword, with the number behind the last one.
    """

    def __init__(self, model: Ensemble[StateT], subwords: int) -> None:
        self._model, self._break = model, subwords

    def start(self, source: Tensor, max_length: int) -> EnsembleState[StateT]:
        """A state for each row of empty sources `[N, 0]`."""
        return self._model.start(source, max_length)

    def step(self, tokens: Tensor, state: EnsembleState[StateT]) -> tuple[Tensor, EnsembleState[StateT]]:
        """Log-probabilities `[rows, V + 1]` of what follows `tokens` `[rows]`."""
        read = tokens.masked_fill(tokens == BOS, EOS).masked_fill(tokens == self._break, LINE_BREAK)
        log_probs, state = self._model.step(read, state)
        return torch.cat((log_probs, log_probs[:, LINE_BREAK : LINE_BREAK + 1]), 1), state


@dataclass(frozen=True)
class TextGenerator(Generic[StateT]):
    """Continues prompts, in batches, in their order.

    Args:
        model: A language model, or several as one.
        vocabulary: Its vocabulary.
        text: What its documents are.
        config: How to search, or to draw.
        limit: Most subwords behind a prompt.
        device: Where the model is.
    """

    model: Ensemble[StateT]
    vocabulary: Vocabulary
    text: TextConfig
    config: DecodingConfig
    limit: int
    device: torch.device

    def texts(self, prompts: Iterable[str], *, first: int = 1) -> Iterator[GeneratedText]:
        """A text for each prompt; `first` is the number of the first one, which seeds random draws.

        Raises:
            UsageError: A prompt has several lines, and the documents of the model have one.
        """
        prompts, number = iter(prompts), first
        while read := list(islice(prompts, self.config.window)):
            yield from self._window(read, number)
            number += len(read)

    def _window(self, prompts: Sequence[str], first: int) -> list[GeneratedText]:
        ids = [self._ids(number, prompt) for number, prompt in enumerate(prompts, first)]
        model = _DocumentModel(self.model, self.vocabulary.size)

        def search(rows: Sequence[int], stop: Event) -> list[list[Hypothesis]]:
            source = torch.zeros(len(rows), 0, dtype=torch.int64, device=self.device)
            limits = [len(ids[row]) + self.limit for row in rows]
            numbers, prefixes = [first + row for row in rows], [ids[row] for row in rows]
            return generate(CancellableModel(model, stop), source, limits, self.config, numbers, prefixes)

        tokens = max(1, self.config.batch_tokens // self.config.width)
        batches = batches_by_length([len(row) + self.limit for row in ids], tokens)
        found: dict[int, Hypothesis] = {}
        for batch, hypotheses in zip(batches, ordered_map(search, batches, self.device), strict=True):
            found |= {row: best[0] for row, best in zip(batch, hypotheses, strict=True)}
        return [self._text(prompt, ids[row], found[row]) for row, prompt in enumerate(prompts)]

    def _ids(self, number: int, prompt: str) -> list[int]:
        """The subwords of a prompt, its line breaks as a search has them."""
        if self.text.unit == "lines":
            if joined(prompt) != prompt:
                raise UsageError(
                    f"prompt {number}: has several lines, and the model was trained on documents of one line",
                    "give one line",
                )
            return self.vocabulary.encode(plain(prompt))
        ids = document_ids([plain(line) for line in prompt.split("\n")], self.vocabulary)[:-1]
        return [self.vocabulary.size if token == LINE_BREAK else token for token in ids]

    def _text(self, prompt: str, ids: Sequence[int], found: Hypothesis) -> GeneratedText:
        head, whole = self._decoded(ids), self._decoded(found.ids)
        text = prompt + whole[len(head) :] if whole.startswith(head) else whole
        return GeneratedText(prompt, text, found.log_probability, len(found.ids) < len(ids) + self.limit)

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
