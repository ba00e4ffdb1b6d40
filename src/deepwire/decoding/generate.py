"""Translations of a batch by the search that a configuration asks for; greedy search and sampling.

Sampling draws from the model with a temperature, from the k most probable subwords (top-k) or from those that
together reach probability p (top-p, Holtzman et al. 2020).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

import numpy as np
import torch
from torch import Tensor

from deepwire.data.vocabulary import BOS, EOS, PAD
from deepwire.decoding.beam_search import beam_search
from deepwire.decoding.decoding_config import DecodingConfig, SamplingConfig
from deepwire.decoding.hypotheses import Constraints, Hypothesis, LengthPenalty, chunked_top_k, require_finite
from deepwire.decoding.model_inputs import batch_compaction
from deepwire.decoding.required_phrases import Phrase
from deepwire.decoding.step_models import ShortlistModel, StateT, StepModel


def greedy_search(
    model: StepModel[StateT],
    source: Tensor,
    limits: Sequence[int],
    config: DecodingConfig,
    prefixes: Sequence[Sequence[int]] | None = None,
    before: Sequence[Sequence[int]] | None = None,
    preferred: Sequence[Sequence[Phrase]] | None = None,
) -> list[list[Hypothesis]]:
    """The translation of each sentence `[N, S]` that takes the most probable subword at every step."""
    constraints = Constraints(config, limits, prefixes, source.device, before, preferred)
    return _continue_rows(model, source, 1, config, constraints, _Argmax())


def sample(
    model: StepModel[StateT],
    source: Tensor,
    limits: Sequence[int],
    config: DecodingConfig,
    sampling: SamplingConfig,
    numbers: Sequence[int],
    prefixes: Sequence[Sequence[int]] | None = None,
    before: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """`config.width` random translations of each sentence `[N, S]`, the best score first; some may be equal.

    Args:
        numbers: A number for each sentence: with the seed it determines its random numbers, so that a
            translation does not depend on the batch.
    """
    constraints = Constraints(config, limits, prefixes, source.device, before)
    lengths = [int(limit) + 1 for limit in constraints.limits.tolist()]
    uniform = _uniform_numbers(sampling.seed, numbers, config.width, lengths).to(source.device)
    return _continue_rows(model, source, config.width, config, constraints, _Sampler(sampling, uniform))


class _TokenChoice(Protocol):
    """How a row continues."""

    def choose(self, log_probs: Tensor, step: int) -> Tensor:
        """A token for each row of `log_probs` `[rows, V]`: `[rows]`."""
        ...

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences stay."""
        ...


class _Argmax:
    """The most probable subword."""

    def choose(self, log_probs: Tensor, step: int) -> Tensor:  # noqa: ARG002 - the same at every step
        """A token for each row of `log_probs` `[rows, V]`: `[rows]`."""
        return chunked_top_k(log_probs, 1)[1].squeeze(1)

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences stay: nothing is kept per sentence."""


class _Sampler:
    """Draws by inverting the distribution function at one uniform number per row and step."""

    def __init__(self, sampling: SamplingConfig, uniform: Tensor) -> None:
        self._sampling, self.uniform = sampling, uniform

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences stay."""
        self.uniform = self.uniform.index_select(0, sentences)

    def choose(self, log_probs: Tensor, step: int) -> Tensor:
        """A token for each row of `log_probs` `[rows, V]`: `[rows]`."""
        values, columns = self._candidates(log_probs)
        probabilities = torch.softmax(values.double() / self._sampling.temperature, dim=1)
        if self._sampling.top_p < 1.0:
            before = probabilities.cumsum(1) - probabilities
            probabilities = probabilities.masked_fill(before >= self._sampling.top_p, 0.0)
        if self._sampling.epsilon:
            # The likeliest stays in any case.
            least = probabilities.amax(1, keepdim=True).clamp(max=self._sampling.epsilon)
            probabilities = probabilities.masked_fill(probabilities < least, 0.0)
        cumulative = probabilities.cumsum(1)
        threshold = cumulative[:, -1:] * self.uniform[:, :, step].reshape(-1, 1)
        index = torch.searchsorted(cumulative, threshold, right=True).clamp_(max=values.size(1) - 1)
        return (index if columns is None else columns.gather(1, index)).squeeze(1)

    def _candidates(self, log_probs: Tensor) -> tuple[Tensor, Tensor | None]:
        """What may be drawn: values and their columns (None = every column in order)."""
        if self._sampling.top_k:
            return chunked_top_k(log_probs, min(self._sampling.top_k, log_probs.size(1)))
        if self._sampling.top_p < 1.0:
            return log_probs.sort(dim=1, descending=True, stable=True)
        return log_probs, None


def _uniform_numbers(seed: int, numbers: Sequence[int], samples: int, lengths: Sequence[int]) -> Tensor:
    """Uniform numbers in [0, 1) per sentence, sample and step: `[N, samples, longest]`, float64."""
    uniform = np.zeros((len(numbers), samples, max(lengths)))
    for row, (number, length) in enumerate(zip(numbers, lengths, strict=True)):
        generator = np.random.Generator(np.random.Philox(key=np.array([seed, number], dtype=np.uint64)))
        # 24 bits each: times a float64 sum they stay below it, so the search in the sums stays inside.
        uniform[row, :, :length] = generator.random((samples, length), dtype=np.float32)
    return torch.from_numpy(uniform)


@torch.inference_mode()
def _continue_rows(
    model: StepModel[StateT],
    source: Tensor,
    width: int,
    config: DecodingConfig,
    constraints: Constraints,
    choice: _TokenChoice,
) -> list[list[Hypothesis]]:
    """Continue `width` hypotheses per sentence by one chosen token a step until all have ended."""
    state = model.start(source)
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
        leaving, staying = batch_compaction(ended)
        if leaving:
            rows.collect(leaving)
            sentences = torch.tensor(staying, device=source.device)
            state = state.keep(sentences)
            constraints.keep(sentences)
            rows.keep(sentences)
            choice.keep(sentences)
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
        """Which sentences have no open row; the one synchronisation of a step with the device."""
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
            hypotheses = []
            for total, ids in zip(totals, samples, strict=True):
                length = ids.index(EOS) if EOS in ids else len(ids)
                score = total / self.penalty.divisor(length + 1)
                hypotheses.append(Hypothesis(tuple(ids[:length]), total, score))
            hypotheses.sort(key=lambda hypothesis: -hypothesis.score)
            self.results[self.numbers[row]] = require_finite(hypotheses)

    def keep(self, sentences: Tensor) -> None:
        """Only these sentences stay in the batch."""
        self.numbers = [self.numbers[row] for row in sentences.tolist()]
        self.tokens = self.tokens.index_select(0, sentences)
        self.history = self.history.index_select(0, sentences)
        self.sums = self.sums.index_select(0, sentences)
        self.open = self.open.index_select(0, sentences)


def generate(
    model: StepModel[StateT],
    source: Tensor,
    limits: Sequence[int],
    config: DecodingConfig,
    numbers: Sequence[int],
    prefixes: Sequence[Sequence[int]] | None = None,
    *,
    before: Sequence[Sequence[int]] | None = None,
    shortlist: Tensor | None = None,
    preferred: Sequence[Sequence[Phrase]] | None = None,
) -> list[list[Hypothesis]]:
    """Hypotheses of each sentence of `source` `[N, S]`, best first: sampled, greedy or by beam search.

    Args:
        model: The model.
        source: Subword ids, padded with PAD.
        limits: Most subwords of each translation, EOS not counted.
        config: How to search.
        numbers: One for each sentence, from which its random numbers follow.
        prefixes: Subwords that each translation must begin with.
        before: Subwords that the model has read before each: no n-gram of theirs is repeated.
        shortlist: `[k]` ascending, the subwords whose log-probabilities the model gives; None = all.
        preferred: Phrases that each translation should rather have; random draws do not heed them.
    """
    if shortlist is not None:
        return _generate_from(shortlist, model, source, limits, config, numbers, prefixes, preferred)
    if config.sampling is not None:
        return sample(model, source, limits, config, config.sampling, numbers, prefixes, before)
    if config.beam == 1:
        return greedy_search(model, source, limits, config, prefixes, before, preferred)
    return beam_search(model, source, limits, config, prefixes, before, preferred)


def _generate_from(
    shortlist: Tensor,
    model: StepModel[StateT],
    source: Tensor,
    limits: Sequence[int],
    config: DecodingConfig,
    numbers: Sequence[int],
    prefixes: Sequence[Sequence[int]] | None,
    preferred: Sequence[Sequence[Phrase]] | None,
) -> list[list[Hypothesis]]:
    """`generate` in indices of the shortlist, and back to subwords."""
    subwords = shortlist.tolist()
    index_of = {subword: index for index, subword in enumerate(subwords)}
    if prefixes is not None:
        prefixes = [[index_of[subword] for subword in prefix] for prefix in prefixes]
    if preferred is not None:
        preferred = [
            [phrase.renumbered(index_of) for phrase in sentence_phrases] for sentence_phrases in preferred
        ]
    by_sentence = generate(
        ShortlistModel(model, shortlist), source, limits, config, numbers, prefixes, preferred=preferred
    )
    return [
        [replace(hypothesis, ids=tuple(subwords[index] for index in hypothesis.ids)) for hypothesis in best]
        for best in by_sentence
    ]
