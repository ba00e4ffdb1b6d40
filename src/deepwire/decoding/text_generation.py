"""Texts that a language model makes: the end of a document that begins with a prompt."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from threading import Event
from typing import Generic, TypeAlias

import torch
from torch import Tensor

from deepwire.data.data_config import TextConfig
from deepwire.data.subwords.base import EOS
from deepwire.data.text.pairs import joined, plain
from deepwire.data.text_documents import LINE_BREAK, document_ids
from deepwire.data.vocabulary import Vocabulary
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.generate import generate
from deepwire.decoding.hypotheses import Hypothesis
from deepwire.decoding.model_inputs import batches_by_length, ordered_map, pad_batch
from deepwire.decoding.step_models import CancellableModel, Ensemble, PromptedModel, StateT, StepModel
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


class LineBreaks(Generic[StateT]):
    """A language model with one more subword: a line break, which has the number behind the last one.

    In documents a line break is BOS, which no search lets a model predict.

    Args:
        model: The model.
        line_break: The number.
    """

    def __init__(self, model: StepModel[StateT], line_break: int) -> None:
        self._model, self._break = model, line_break

    def start(self, source: Tensor) -> StateT:
        """A state for each row of empty sources `[N, 0]`."""
        return self._model.start(source)

    def step(self, tokens: Tensor, state: StateT) -> tuple[Tensor, StateT]:
        """Log-probabilities `[rows, V + 1]` of what follows `tokens` `[rows]`."""
        log_probs, state = self._model.step(tokens.masked_fill(tokens == self._break, LINE_BREAK), state)
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
        positions: Tokens whose positions it has learned; None: there is no end.
    """

    model: Ensemble[StateT]
    vocabulary: Vocabulary
    text: TextConfig
    config: DecodingConfig
    limit: int
    device: torch.device
    positions: int | None = None

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
            # A document begins behind the end of another one.
            prompted = PromptedModel(self.model, [[EOS, *each] for each in prompt_ids], self.vocabulary.size)
            model = CancellableModel(LineBreaks(prompted, self.vocabulary.size), stop)
            source = torch.zeros(len(rows), 0, dtype=torch.int64, device=self.device)
            limits, numbers = [self.limit] * len(rows), [first + row for row in rows]
            before = [[self._shown(token) for token in each] for each in prompt_ids]
            hypotheses = generate(model, source, limits, self.config, numbers, before=before)
            return [*zip(self._probabilities(prompt_ids), (best[0] for best in hypotheses), strict=True)]

        tokens = max(1, self.config.batch_tokens // self.config.width)
        batches = batches_by_length([len(row) + self.limit for row in ids], tokens)
        continuations: dict[int, _Continued] = {}
        for batch, continued in zip(batches, ordered_map(search, batches, self.device), strict=True):
            continuations |= zip(batch, continued, strict=True)
        return [self._text(prompt, ids[row], continuations[row]) for row, prompt in enumerate(prompts)]

    @torch.inference_mode()
    def _probabilities(self, prompts: Sequence[Sequence[int]]) -> list[float]:
        """Log-probability of each prompt."""
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
        """The subwords of a prompt, as in a document."""
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
