"""The models that a search steps: their protocol, and several models as one."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Any, Protocol, Self

import torch
from torch import Tensor

from deepwire.config.counts import as_float, shown
from deepwire.data.vocabulary import PAD
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.errors import UsageError
from deepwire.model.cross_attention import Layers


class StepState(Protocol):
    """A decoder between two steps: a value with `width` rows for each sentence, sentence by sentence."""

    def expand(self, width: int) -> Self:
        """Each row repeated `width` times; only right after `start` or a step with one row per sentence."""

    def reorder(self, rows: Tensor) -> Self:
        """The beam reorder: new row i continues old row `rows[i]` of the same sentence."""

    def keep(self, sentences: Tensor) -> Self:
        """Only these sentences, with all their rows."""


class StepModel(Protocol):
    """A model that continues hypotheses one subword at a time; its states are `StepState` s."""

    def start(self, source: Tensor, *, languages: Tensor | None = None, prompt: Tensor | None = None) -> Any:
        """Encode `source` `[N, S]`; a state of one row per sentence.

        `languages` `[N]` are the target languages, in a model of several, and `prompt` `[N, P]` target tokens
        that are read first, padded on the right with PAD, perhaps none in some rows.
        """

    def step(self, tokens: Tensor, state: Any) -> tuple[Tensor, Any]:
        """Log-probabilities `[rows, V]` (float32) of what follows `tokens` `[rows]`; `state` is used up."""


class DecodingModel(StepModel, Protocol):
    """A model that can search and score."""

    def score(
        self, source: Tensor, target_input: Tensor, target_output: Tensor, *, languages: Tensor | None = None
    ) -> Tensor:
        """Log-probability of each token of `target_output`, `[B, T]` float32, 0 at PAD."""

    def log_probs(self, source: Tensor, target_input: Tensor, *, languages: Tensor | None = None) -> Tensor:
        """Log-probabilities `[B, T, V]` of what follows each prefix of `target_input` `[B, T]`."""

    def select(self, tokens: Tensor, allowed: Tensor | None = None) -> Self:
        """The model that steps to `tokens` `[k]` alone, with log-probabilities `[rows, k]`.

        With `allowed` `[L, k]` each row has those of its target language alone.
        """


class EnsembleMember(DecodingModel, Protocol):
    """A single model, which can also predict with some of its groups and say what it looks at."""

    def restrict(self, first: int, last: int) -> Self:
        """The model with groups `first` to `last` of its decoder alone; ValueError where there are none."""

    def with_rounds(self, rounds: int) -> Self:
        """The model whose encoder runs its middle so often; ValueError where it has no recurrent depth."""

    def source_weights(
        self, source: Tensor, target_input: Tensor, layers: Layers = None, *, languages: Tensor | None = None
    ) -> Mapping[int, Tensor]:
        """How much each target position looks at each of the source, `[B, H, T, S]` by decoder layer, from 0.

        `layers` None: all that look. A model without an encoder raises ModelError.
        """


def as_one(models: Sequence[EnsembleMember], weights: Sequence[float] | None = None) -> DecodingModel:
    """A model alone as it is, several as an ensemble; weights and errors are those of `Ensemble`."""
    if len(models) == 1 and weights is None:
        return models[0]
    ensemble = Ensemble(models, weights)
    return models[0] if len(models) == 1 else ensemble


@dataclass
class EnsembleState:
    """The states of all models, row by row the same hypotheses."""

    states: tuple[StepState, ...]

    def expand(self, width: int) -> EnsembleState:
        """Each row repeated `width` times."""
        return EnsembleState(tuple(state.expand(width) for state in self.states))

    def reorder(self, rows: Tensor) -> EnsembleState:
        """New row i continues old row `rows[i]`."""
        return EnsembleState(tuple(state.reorder(rows) for state in self.states))

    def keep(self, sentences: Tensor) -> EnsembleState:
        """Only these sentences, with all their rows."""
        return EnsembleState(tuple(state.keep(sentences) for state in self.states))


class Ensemble:
    """A `DecodingModel`: the weighted arithmetic mean of the probabilities of several models.

    log p(y | x) = log sum_m w_m p_m(y | x), token by token, with weights that sum to one.

    Args:
        models: Models with the same target vocabulary.
        weights: One positive number per model, scaled to sum to one; equal when left out.

    Raises:
        UsageError: The weights do not fit the models.
    """

    def __init__(self, models: Sequence[EnsembleMember], weights: Sequence[float] | None = None) -> None:
        given: object = [1.0] * len(models) if weights is None else weights
        numbers = [as_float(weight) for weight in given] if isinstance(given, Iterable) else []
        if not numbers or not all(math.isfinite(number) and number > 0 for number in numbers):
            raise UsageError(f"weights: models need one positive number for each, not {shown(given)}")
        if len(numbers) != len(models):
            raise UsageError(f"{len(models)} models, but {len(numbers)} weights")
        self._models = tuple(models)
        self._log_weights = [math.log(number / sum(numbers)) for number in numbers]

    def select(self, tokens: Tensor, allowed: Tensor | None = None) -> Self:
        """The same models, which step to `tokens` `[k]` alone."""
        ensemble = copy(self)
        ensemble._models = tuple(model.select(tokens, allowed) for model in self._models)
        return ensemble

    def start(
        self, source: Tensor, *, languages: Tensor | None = None, prompt: Tensor | None = None
    ) -> EnsembleState:
        """Encode `source` `[N, S]` with every model."""
        return EnsembleState(
            tuple(model.start(source, languages=languages, prompt=prompt) for model in self._models)
        )

    def step(self, tokens: Tensor, state: EnsembleState) -> tuple[Tensor, EnsembleState]:
        """Log of the mean probabilities of what follows `tokens` `[rows]`: `[rows, V]` float32."""
        steps = [model.step(tokens, part) for model, part in zip(self._models, state.states, strict=True)]
        return self._mean([log_probs for log_probs, _ in steps]), EnsembleState(tuple(s for _, s in steps))

    def score(
        self, source: Tensor, target_input: Tensor, target_output: Tensor, *, languages: Tensor | None = None
    ) -> Tensor:
        """Log of the mean probability of each token of `target_output`: `[B, T]` float32, 0 at PAD."""
        scores = [
            model.score(source, target_input, target_output, languages=languages) for model in self._models
        ]
        return self._mean(scores).masked_fill(target_output == PAD, 0.0)

    def log_probs(self, source: Tensor, target_input: Tensor, *, languages: Tensor | None = None) -> Tensor:
        """Log of the mean probabilities of what follows each prefix, `[B, T, V]`."""
        return self._mean(
            [model.log_probs(source, target_input, languages=languages) for model in self._models]
        )

    def _mean(self, log_probs: Sequence[Tensor]) -> Tensor:
        total = log_probs[0] + self._log_weights[0]
        for of_member, log_weight in zip(log_probs[1:], self._log_weights[1:], strict=True):
            total = torch.logaddexp(total, of_member + log_weight)
        return total


def as_configured(models: Sequence[EnsembleMember], config: DecodingConfig) -> Sequence[EnsembleMember]:
    """The models with the groups and rounds that the configuration chooses."""
    changed = []
    for number, member in enumerate(models, 1):
        which, model, setting = f", model {number}" if len(models) > 1 else "", member, ""
        try:
            if config.group_range is not None:
                setting = f"groups {config.groups}"
                model = model.restrict(*config.group_range)
            if config.rounds is not None:
                setting = f"rounds {config.rounds}"
                model = model.with_rounds(config.rounds)
        except ValueError as error:
            raise UsageError(f"{setting}{which}: {error}") from None
        changed.append(model)
    return changed
