"""One hypothesis per row, continued subword by subword: greedy search, and the loop of sampling."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Protocol

import torch
from torch import Tensor

from deepwire.data.vocabulary import BOS, EOS, PAD
from deepwire.decoding.config import DecodingConfig
from deepwire.decoding.constraints import Constraints
from deepwire.decoding.contract import StateT, StepModel
from deepwire.decoding.hypotheses import Hypothesis, LengthPenalty, checked
from deepwire.decoding.shrinking import parting
from deepwire.decoding.top import top


class Choice(Protocol):
    """How a row continues."""

    def choose(self, log_probs: Tensor, step: int) -> Tensor:
        """A token for each row of `log_probs` `[rows, V]`: `[rows]`."""
        ...

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences stay."""
        ...


class Best:
    """The most probable subword."""

    def choose(self, log_probs: Tensor, step: int) -> Tensor:  # noqa: ARG002 - the same at every step
        """A token for each row of `log_probs` `[rows, V]`: `[rows]`."""
        return top(log_probs, 1)[1].squeeze(1)

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences stay: nothing is kept per sentence."""


def greedy_search(
    model: StepModel[StateT],
    source: Tensor,
    limits: Sequence[int],
    config: DecodingConfig,
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """The translation of each sentence `[N, S]` that takes the most probable subword at every step."""
    constraints = Constraints(config, limits, prefixes, source.device)
    return roll_out(model, source, 1, config, constraints, Best())


@torch.inference_mode()
def roll_out(
    model: StepModel[StateT],
    source: Tensor,
    width: int,
    config: DecodingConfig,
    constraints: Constraints,
    choice: Choice,
) -> list[list[Hypothesis]]:
    """Continue `width` hypotheses per sentence by one chosen token a step until all have ended."""
    state = model.start(source, constraints.longest + 1)
    state = state.expand(width) if width > 1 else state
    rows = _Rows(source.size(0), width, constraints.longest + 1, config, source.device)
    for step in range(constraints.longest + 1):
        log_probs, state = model.step(rows.tokens.view(-1), state)
        log_probs = constraints.apply(log_probs.view(*rows.tokens.shape, -1), rows.history[:, :, :step])
        flat = log_probs.view(-1, log_probs.size(2))
        tokens = choice.choose(flat, step)
        rows.append(tokens, flat.gather(1, tokens.unsqueeze(1)).squeeze(1), step)
        ended = rows.ended()
        if all(ended):
            break
        leaving, staying = parting(ended)
        if leaving:
            rows.collect(leaving)
            going = torch.tensor(staying, device=source.device)
            state = state.keep(going)
            constraints.keep(going)
            rows.keep(going)
            choice.keep(going)
    rows.collect(range(len(rows.numbers)))
    return rows.results


class _Rows:
    """The hypotheses of a batch, `width` rows per sentence; a row that has ended goes on with PAD."""

    def __init__(
        self, sentences: int, width: int, steps: int, config: DecodingConfig, device: torch.device
    ) -> None:
        self.penalty = LengthPenalty.of(config)
        self.results: list[list[Hypothesis]] = [[] for _ in range(sentences)]
        self.numbers = list(range(sentences))
        self.tokens = torch.full((sentences, width), BOS, dtype=torch.int64, device=device)
        self.history = torch.full((sentences, width, steps), PAD, dtype=torch.int64, device=device)
        self.sums = torch.zeros(sentences, width, device=device)
        self.open = torch.ones(sentences, width, dtype=torch.bool, device=device)

    def append(self, tokens: Tensor, log_probs: Tensor, step: int) -> None:
        """Continue the open rows with `tokens` `[rows]` of log-probability `log_probs`."""
        closed = ~self.open
        self.sums = self.sums + log_probs.view_as(self.sums).masked_fill(closed, 0.0)
        self.tokens = tokens.view_as(self.sums).masked_fill(closed, PAD)
        self.history[:, :, step] = self.tokens
        self.open = self.open & (self.tokens != EOS)

    def ended(self) -> list[bool]:
        """Which sentences have no open row; the one host sync of a step."""
        flags: list[bool] = (~self.open.any(1)).tolist()
        return flags

    def collect(self, rows: Sequence[int]) -> None:
        """Move the hypotheses of these sentences of the batch to the results."""
        index = torch.tensor(list(rows), device=self.sums.device)
        sums, history = (
            self.sums.index_select(0, index).tolist(),
            self.history.index_select(0, index).tolist(),
        )
        for row, totals, samples in zip(rows, sums, history, strict=True):
            found = []
            for total, ids in zip(totals, samples, strict=True):
                length = ids.index(EOS) if EOS in ids else len(ids)
                score = total / self.penalty.divisor(length + 1)
                found.append(Hypothesis(tuple(ids[:length]), total, score))
            found.sort(key=lambda hypothesis: -hypothesis.score)
            self.results[self.numbers[row]] = checked(found)

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences stay in the batch."""
        self.numbers = [self.numbers[row] for row in sentences.tolist()]
        self.tokens = self.tokens.index_select(0, sentences)
        self.history = self.history.index_select(0, sentences)
        self.sums = self.sums.index_select(0, sentences)
        self.open = self.open.index_select(0, sentences)
