"""The contract of a companion: what travels beside the stream, from the mixer of one layer to the next."""

from __future__ import annotations

from abc import ABC, abstractmethod

from torch import Tensor, nn

Carried = tuple[Tensor, ...]
"""What a companion carries, the sentence as first axis of every tensor; `()` where nothing is carried."""


class Companion(nn.Module, ABC):
    """Residuals and norms of what mixers carry, as a connection has those of the stream.

    In an encoder it goes along with the layers: each mixer reads it and gives what it is moved by. What so
    leaves the encoder is received by the companion of a decoder, if there is one. There it never reads the
    target, so it goes through all layers once for each sentence, before the first step.
    All methods get the target languages of the sentences, `[B]` or `[1]`, to hand on to norms.
    """

    @abstractmethod
    def start(self, padding: Tensor, received: Carried) -> Carried:
        """The value carried into the first layer.

        Args:
            padding: Of the source, `[B, 1, 1, S]`, 0 at words and -inf at padding.
            received: What the other stack's companion has carried to its end; `()` in an encoder, and where
                the encoder has none.
        """

    @abstractmethod
    def read(self, carried: Carried, layer: int, languages: Tensor | None = None) -> Carried:
        """The input of the mixer of a layer, counted from 0."""

    @abstractmethod
    def write(self, carried: Carried, layer: int, moved: Tensor, languages: Tensor | None = None) -> Carried:
        """The value carried on after a layer gave `moved`."""

    @abstractmethod
    def result(self, carried: Carried, languages: Tensor | None = None) -> Carried:
        """The value that leaves the stack."""
