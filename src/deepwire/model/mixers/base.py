"""The contract of a token mixer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

from torch import Tensor, nn

from deepwire.config.base import Section
from deepwire.model.context import Side, StackContext

State = tuple[Tensor, ...]


class TokenMixer(nn.Module, ABC):
    """How a position sees the others; bare, without residual and norm.

    `parallel(x)[:, t]` equals the t-th `step`. The state is a tuple of tensors whose first axis is the row,
    so that selecting rows (beam reorder, sentences that leave) is one indexing of every leaf.
    """

    @abstractmethod
    def parallel(self, x: Tensor, padding: Tensor | None) -> Tensor:
        """Mix a whole sequence: `[B, T, d]` to `[B, T, d]`.

        Args:
            x: The sequence, padded on the right.
            padding: `[B, 1, 1, T]`, 0 at words and -inf at padding; None for a decoder, whose causal order
                keeps padding from being seen.
        """

    @abstractmethod
    def init_state(self, rows: int, like: Tensor) -> State:
        """The state before the first position; type and device as `like`."""

    @abstractmethod
    def step(self, x: Tensor, state: State, position: int) -> tuple[Tensor, State]:
        """Mix position number `position` (from 0), `[rows, 1, d]`; consumes the state, returns the next."""


class MixerSection(Section, ABC):
    """Base of a mixer's settings."""

    sides: ClassVar[frozenset[Side]] = frozenset({"encoder", "decoder"})
    absorbs_cross_attention: ClassVar[bool] = False

    @abstractmethod
    def build(self, context: StackContext) -> TokenMixer:
        """One mixer for one layer of the stack."""
