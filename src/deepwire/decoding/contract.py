"""What the search needs of a model: the small part of a translation model that it calls."""

from __future__ import annotations

from typing import Protocol, Self, TypeVar

from torch import Tensor


class State(Protocol):
    """A decoder between two steps: a value with `width` rows for each sentence, sentence by sentence."""

    def expand(self, width: int) -> Self:
        """Each row repeated `width` times; only right after `start` or a step with one row per sentence."""
        ...

    def reorder(self, rows: Tensor) -> Self:
        """New row i continues old row `rows[i]` of the same sentence."""
        ...

    def keep(self, sentences: Tensor) -> Self:
        """Only these sentences, with all their rows."""
        ...


StateT = TypeVar("StateT", bound=State)


class StepModel(Protocol[StateT]):
    """A model that continues hypotheses one subword at a time."""

    def start(self, source: Tensor, max_length: int) -> StateT:
        """Encode `source` `[N, S]`; a state of one row per sentence for at most `max_length` steps."""
        ...

    def step(self, tokens: Tensor, state: StateT) -> tuple[Tensor, StateT]:
        """Log-probabilities `[rows, V]` (float32) of what follows `tokens` `[rows]`; `state` is used up."""
        ...


class ScoreModel(Protocol):
    """A model that gives the probability of a translation."""

    def score(
        self, source: Tensor, target_input: Tensor, target_output: Tensor, *, languages: Tensor | None = None
    ) -> Tensor:
        """Log-probability of each token of `target_output`, `[B, T]` float32, 0 at PAD.

        `languages` `[B]` are the target languages, in a model of several.
        """
        ...
