"""Several models that act as one."""

from __future__ import annotations

import math
from collections.abc import Sequence
from copy import copy
from dataclasses import dataclass
from typing import Generic, Protocol, Self

import torch
from torch import Tensor

from deepwire.data.vocabulary import PAD
from deepwire.decoding.contract import ScoreModel, StateT, StepModel
from deepwire.errors import UsageError


class Member(StepModel[StateT], ScoreModel, Protocol[StateT]):
    """A model that can search and score, and predict with some of its groups where it has any."""

    def start(self, source: Tensor, max_length: int, *, languages: Tensor | None = None) -> StateT:
        """Encode `source` `[N, S]`; `languages` `[N]` are the target languages, in a model of several."""
        ...

    def score(
        self, source: Tensor, target_input: Tensor, target_output: Tensor, *, languages: Tensor | None = None
    ) -> Tensor:
        """Log-probability of each token of `target_output`, `[B, T]` float32, 0 at PAD."""
        ...

    def restrict(self, first: int, last: int) -> Self:
        """The model with groups `first` to `last` of its decoder alone; ValueError where there are none."""
        ...

    def select(self, tokens: Tensor, allowed: Tensor | None = None) -> Self:
        """The model that steps to `tokens` `[k]` alone, with log-probabilities `[rows, k]`.

        With `allowed` `[L, k]` each row has those of its target language alone.
        """
        ...


@dataclass
class EnsembleState(Generic[StateT]):
    """The states of all models, row by row the same hypotheses."""

    states: tuple[StateT, ...]

    def expand(self, width: int) -> EnsembleState[StateT]:
        """Each row repeated `width` times."""
        return EnsembleState(tuple(state.expand(width) for state in self.states))

    def reorder(self, rows: Tensor) -> EnsembleState[StateT]:
        """New row i continues old row `rows[i]`."""
        return EnsembleState(tuple(state.reorder(rows) for state in self.states))

    def keep(self, sentences: Tensor) -> EnsembleState[StateT]:
        """Only these sentences, with all their rows."""
        return EnsembleState(tuple(state.keep(sentences) for state in self.states))


class Ensemble(Generic[StateT]):
    """The weighted arithmetic mean of the probabilities of several models; one model costs nothing extra.

    log p(y | x) = log sum_m w_m p_m(y | x), token by token, with weights that sum to one.

    Args:
        models: Models with the same target vocabulary.
        weights: One positive number per model, scaled to sum to one; equal when left out.

    Raises:
        UsageError: the weights do not fit the models.
    """

    def __init__(self, models: Sequence[Member[StateT]], weights: Sequence[float] | None = None) -> None:
        weights = [1.0] * len(models) if weights is None else weights
        if len(weights) != len(models):
            raise UsageError(f"{len(models)} models, but {len(weights)} weights")
        if not all(math.isfinite(weight) and weight > 0 for weight in weights):
            raise UsageError(f"the weights of models must be positive numbers, not {list(weights)}")
        self.models = tuple(models)
        self._log_weights = [math.log(weight / sum(weights)) for weight in weights]

    def select(self, tokens: Tensor, allowed: Tensor | None = None) -> Ensemble[StateT]:
        """The same models, which step to `tokens` `[k]` alone; `allowed` as in `Member`."""
        ensemble = copy(self)
        ensemble.models = tuple(model.select(tokens, allowed) for model in self.models)
        return ensemble

    def start(
        self, source: Tensor, max_length: int, *, languages: Tensor | None = None
    ) -> EnsembleState[StateT]:
        """Encode `source` `[N, S]` with every model; `languages` `[N]` as in `Member`."""
        return EnsembleState(
            tuple(model.start(source, max_length, languages=languages) for model in self.models)
        )

    def step(self, tokens: Tensor, state: EnsembleState[StateT]) -> tuple[Tensor, EnsembleState[StateT]]:
        """Log of the mean probabilities of what follows `tokens` `[rows]`: `[rows, V]` float32."""
        steps = [model.step(tokens, part) for model, part in zip(self.models, state.states, strict=True)]
        return self._mean([log_probs for log_probs, _ in steps]), EnsembleState(tuple(s for _, s in steps))

    def score(
        self, source: Tensor, target_input: Tensor, target_output: Tensor, *, languages: Tensor | None = None
    ) -> Tensor:
        """Log of the mean probability of each token of `target_output`: `[B, T]` float32, 0 at PAD."""
        scores = [
            model.score(source, target_input, target_output, languages=languages) for model in self.models
        ]
        return self._mean(scores).masked_fill(target_output == PAD, 0.0)

    def _mean(self, log_probs: Sequence[Tensor]) -> Tensor:
        if len(log_probs) == 1:
            return log_probs[0]
        total = log_probs[0] + self._log_weights[0]
        for one, log_weight in zip(log_probs[1:], self._log_weights[1:], strict=True):
            total = torch.logaddexp(total, one + log_weight)
        return total
