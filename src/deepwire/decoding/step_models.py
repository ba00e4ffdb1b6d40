"""The models that a search steps: their protocols, and models that are made of other models.

A search needs little of a model: `StepModel.start` encodes the source, `StepModel.step` reads a token per row
and gives the log-probabilities of the next. `Ensemble` makes one model of several; the models below it
change what is read or predicted, so that no search has to know of languages, shortlists or cancellation.
"""

from __future__ import annotations

import math
import threading
from collections.abc import Iterable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass
from typing import Generic, Protocol, Self, TypeVar

import torch
from torch import Tensor

from deepwire.config.counts import number_argument, shown
from deepwire.data.vocabulary import PAD
from deepwire.decoding.decoding_config import DecodingConfig
from deepwire.decoding.model_inputs import Cancelled, TargetLanguage, pad_batch, target_language_ids
from deepwire.errors import UsageError
from deepwire.model.cross_attention_recorder import Layers


class StepState(Protocol):
    """A decoder between two steps: a value with `width` rows for each sentence, sentence by sentence."""

    def expand(self, width: int) -> Self:
        """Each row repeated `width` times; only right after `start` or a step with one row per sentence."""
        ...

    def reorder(self, rows: Tensor) -> Self:
        """The beam reorder: new row i continues old row `rows[i]` of the same sentence."""
        ...

    def keep(self, sentences: Tensor) -> Self:
        """Only these sentences, with all their rows."""
        ...


StateT = TypeVar("StateT", bound=StepState)


class StepModel(Protocol[StateT]):
    """A model that continues hypotheses one subword at a time."""

    def start(self, source: Tensor) -> StateT:
        """Encode `source` `[N, S]`; a state of one row per sentence."""
        ...

    def step(self, tokens: Tensor, state: StateT) -> tuple[Tensor, StateT]:
        """Log-probabilities `[rows, V]` (float32) of what follows `tokens` `[rows]`; `state` is used up."""
        ...


class ScoringModel(Protocol):
    """A model that gives the probability of a translation."""

    def score(
        self, source: Tensor, target_input: Tensor, target_output: Tensor, *, languages: Tensor | None = None
    ) -> Tensor:
        """Log-probability of each token of `target_output`, `[B, T]` float32, 0 at PAD.

        `languages` `[B]` are the target languages, in a model of several.
        """
        ...


class ReadingModel(ScoringModel, Protocol):
    """A model that gives the probability of every subword behind each beginning of a translation."""

    def log_probs(self, source: Tensor, target_input: Tensor, *, languages: Tensor | None = None) -> Tensor:
        """Log-probabilities `[B, T, V]` of what follows each prefix of `target_input` `[B, T]`."""
        ...


class EnsembleMember(StepModel[StateT], ReadingModel, Protocol[StateT]):
    """A model that can search and score, and predict with some of its groups where it has any."""

    def start(
        self,
        source: Tensor,
        *,
        languages: Tensor | None = None,
        prompt: Tensor | None = None,
    ) -> StateT:
        """Encode `source` `[N, S]`.

        `languages` `[N]` are the target languages, in a model of several, and `prompt` `[N, P]` target tokens
        that are read first, padded on the right with PAD, perhaps none in some rows.
        """
        ...

    def restrict(self, first: int, last: int) -> Self:
        """The model with groups `first` to `last` of its decoder alone; ValueError where there are none."""
        ...

    def with_rounds(self, rounds: int) -> Self:
        """The model whose encoder runs its middle so often; ValueError where it has no recurrent depth."""
        ...

    def source_weights(
        self, source: Tensor, target_input: Tensor, layers: Layers = None, *, languages: Tensor | None = None
    ) -> Mapping[int, Tensor]:
        """How much each target position looks at each of the source, `[B, H, T, S]` by decoder layer, from 0.

        `layers` None: all that look. A model without an encoder raises ModelError.
        """
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
        UsageError: The weights do not fit the models.
    """

    def __init__(
        self, models: Sequence[EnsembleMember[StateT]], weights: Sequence[float] | None = None
    ) -> None:
        given: object = [1.0] * len(models) if weights is None else weights
        numbers = [number_argument(weight) for weight in given] if isinstance(given, Iterable) else []
        if not numbers or not all(math.isfinite(number) and number > 0 for number in numbers):
            raise UsageError(f"weights: models need one positive number for each, not {shown(given)}")
        if len(numbers) != len(models):
            raise UsageError(f"{len(models)} models, but {len(numbers)} weights")
        self.models = tuple(models)
        self._log_weights = [math.log(number / sum(numbers)) for number in numbers]

    def select(self, tokens: Tensor, allowed: Tensor | None = None) -> Ensemble[StateT]:
        """The same models, which step to `tokens` `[k]` alone; `allowed` as in `EnsembleMember`."""
        ensemble = copy(self)
        ensemble.models = tuple(model.select(tokens, allowed) for model in self.models)
        return ensemble

    def start(
        self,
        source: Tensor,
        *,
        languages: Tensor | None = None,
        prompt: Tensor | None = None,
    ) -> EnsembleState[StateT]:
        """Encode `source` `[N, S]` with every model; arguments as in `EnsembleMember`."""
        return EnsembleState(
            tuple(model.start(source, languages=languages, prompt=prompt) for model in self.models)
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

    def log_probs(self, source: Tensor, target_input: Tensor, *, languages: Tensor | None = None) -> Tensor:
        """Log of the mean probabilities of what follows each prefix, `[B, T, V]`."""
        every = [model.log_probs(source, target_input, languages=languages) for model in self.models]
        return self._mean(every)

    def _mean(self, log_probs: Sequence[Tensor]) -> Tensor:
        if len(log_probs) == 1:
            return log_probs[0]
        total = log_probs[0] + self._log_weights[0]
        for of_member, log_weight in zip(log_probs[1:], self._log_weights[1:], strict=True):
            total = torch.logaddexp(total, of_member + log_weight)
        return total


@dataclass
class PromptedState(Generic[StateT]):
    """The state of a model, and the tokens that its rows read in the first step."""

    state: StateT
    first_tokens: Tensor | None
    """`[rows]`; None after the first step."""

    def expand(self, width: int) -> PromptedState[StateT]:
        """Each row repeated `width` times."""
        first = None if self.first_tokens is None else self.first_tokens.repeat_interleave(width)
        return PromptedState(self.state.expand(width), first)

    def reorder(self, rows: Tensor) -> PromptedState[StateT]:
        """New row i continues old row `rows[i]`."""
        first = None if self.first_tokens is None else self.first_tokens.index_select(0, rows)
        return PromptedState(self.state.reorder(rows), first)

    def keep(self, sentences: Tensor) -> PromptedState[StateT]:
        """Only these sentences; after the first step."""
        return PromptedState(self.state.keep(sentences), self.first_tokens)


class PromptedModel(Generic[StateT]):
    """A model that begins the translation of each sentence of one batch in a way of its own.

    The decoder reads a prompt: BOS or the tag of the target language, and perhaps previous sentences with
    separators. Tags and separators are never predicted.

    Args:
        model: The models.
        prompts: What the decoder reads first, for each sentence; the search takes its last token for BOS.
        pieces: Entries of the target vocabulary; what comes after them are tags and a separator.
        targets: The target language of each sentence; None with one direction.
    """

    def __init__(
        self,
        model: Ensemble[StateT],
        prompts: Sequence[Sequence[int]],
        pieces: int,
        targets: Sequence[TargetLanguage] | None = None,
    ) -> None:
        self._model, self._prompts, self._pieces, self._targets = model, prompts, pieces, targets

    def start(self, source: Tensor) -> PromptedState[EnsembleState[StateT]]:
        """Encode `source` `[N, S]`, whose sentences are those of `prompts`."""
        device = source.device
        languages = None if self._targets is None else target_language_ids(self._targets, device)
        prompt = None
        if any(len(tokens) > 1 for tokens in self._prompts):
            prompt = pad_batch([tokens[:-1] for tokens in self._prompts], device)
        state = self._model.start(source, languages=languages, prompt=prompt)
        return PromptedState(state, torch.tensor([tokens[-1] for tokens in self._prompts], device=device))

    def step(
        self, tokens: Tensor, state: PromptedState[EnsembleState[StateT]]
    ) -> tuple[Tensor, PromptedState[EnsembleState[StateT]]]:
        """Log-probabilities `[rows, V]` of what follows `tokens` `[rows]`."""
        read = tokens if state.first_tokens is None else state.first_tokens
        log_probs, following = self._model.step(read, state.state)
        log_probs[:, self._pieces :] = -torch.inf
        return log_probs, PromptedState(following, None)


class ShortlistModel(Generic[StateT]):
    """Lets a search count in indices of the shortlist: a model reads subwords and predicts indices.

    The shortlist is ascending and begins with PAD, BOS, EOS and UNK, so these four have the same number on
    both sides, and no search has to know of it.

    Args:
        model: A model whose log-probabilities are those of `shortlist`.
        shortlist: `[k]` the subwords of the shortlist.
    """

    def __init__(self, model: StepModel[StateT], shortlist: Tensor) -> None:
        self._model, self._shortlist = model, shortlist

    def start(self, source: Tensor) -> StateT:
        """Encode `source` `[N, S]`."""
        return self._model.start(source)

    def step(self, tokens: Tensor, state: StateT) -> tuple[Tensor, StateT]:
        """Log-probabilities `[rows, k]` of what follows the subwords at the indices `tokens` `[rows]`."""
        return self._model.step(self._shortlist[tokens], state)


class CancellableModel(Generic[StateT]):
    """A model whose next step raises `Cancelled` once `stop` is set."""

    def __init__(self, model: StepModel[StateT], stop: threading.Event) -> None:
        self._model, self._stop = model, stop

    def start(self, source: Tensor) -> StateT:
        """Encode `source` `[N, S]`."""
        return self._model.start(source)

    def step(self, tokens: Tensor, state: StateT) -> tuple[Tensor, StateT]:
        """Log-probabilities `[rows, V]` of what follows `tokens` `[rows]`."""
        if self._stop.is_set():
            raise Cancelled
        return self._model.step(tokens, state)


def as_configured(
    models: Sequence[EnsembleMember[StateT]], config: DecodingConfig
) -> Sequence[EnsembleMember[StateT]]:
    """The models with the groups and rounds that the configuration chooses.

    Raises:
        UsageError: They do not have them.
    """
    changed = []
    for number, member in enumerate(models, 1):
        which, model = f", model {number}" if len(models) > 1 else "", member
        setting = ""
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
