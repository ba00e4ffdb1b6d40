"""Translations drawn at random from the model: temperature, top-k, top-p (Holtzman et al. 2020)."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import torch
from torch import Tensor

from deepwire.decoding.config import DecodingConfig, SamplingConfig
from deepwire.decoding.constraints import Constraints
from deepwire.decoding.contract import StateT, StepModel
from deepwire.decoding.hypotheses import Hypothesis
from deepwire.decoding.rollout import roll_out
from deepwire.decoding.top import top


def sample(
    model: StepModel[StateT],
    source: Tensor,
    limits: Sequence[int],
    config: DecodingConfig,
    sampling: SamplingConfig,
    numbers: Sequence[int],
    prefixes: Sequence[Sequence[int]] | None = None,
) -> list[list[Hypothesis]]:
    """`n_best` random translations of each sentence `[N, S]`, the best score first; they may be equal.

    Args:
        numbers: A number for each sentence, its line: with the seed it determines its random numbers, so
            that a translation does not depend on the batch.
    """
    constraints = Constraints(config, limits, prefixes, source.device)
    lengths = [int(limit) + 1 for limit in constraints.limits.tolist()]
    uniform = _uniform(sampling.seed, numbers, config.n_best, lengths).to(source.device)
    return roll_out(model, source, config.n_best, config, constraints, _Draw(sampling, uniform))


class _Draw:
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
        cumulative = probabilities.cumsum(1)
        goal = cumulative[:, -1:] * self.uniform[:, :, step].reshape(-1, 1)
        index = torch.searchsorted(cumulative, goal, right=True).clamp_(max=values.size(1) - 1)
        return (index if columns is None else columns.gather(1, index)).squeeze(1)

    def _candidates(self, log_probs: Tensor) -> tuple[Tensor, Tensor | None]:
        """What may be drawn: values and their columns (None = every column in order)."""
        if self._sampling.top_k:
            return top(log_probs, min(self._sampling.top_k, log_probs.size(1)))
        if self._sampling.top_p < 1.0:
            return log_probs.sort(dim=1, descending=True, stable=True)
        return log_probs, None


def _uniform(seed: int, numbers: Sequence[int], samples: int, lengths: Sequence[int]) -> Tensor:
    """Uniform numbers in [0, 1) per sentence, sample and step: `[N, samples, longest]`, float64."""
    uniform = np.zeros((len(numbers), samples, max(lengths)))
    for row, (number, length) in enumerate(zip(numbers, lengths, strict=True)):
        generator = np.random.Generator(np.random.Philox(key=np.array([seed, number], dtype=np.uint64)))
        # 24 bits each: times a float64 sum they stay below it, so the search in the sums stays inside.
        uniform[row, :, :length] = generator.random((samples, length), dtype=np.float32)
    return torch.from_numpy(uniform)
