"""The contract of a fusion: what leaves the stack."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

from torch import Tensor, nn

from deepwire.model.context import Context
from deepwire.model.introspection import DepthWeights, GateProbe
from deepwire.model.stack_spec import SocketSection, StackSpec
from deepwire.plugins import Kind

Probabilities = Literal["arithmetic", "geometric"]


class Fusion(nn.Module, ABC):
    """Turns layer outputs into one result of the stack, or several.

    Attributes:
        keeps: The layers whose outputs it wants, counted from 1; 0 is the embedding.
    """

    keeps: frozenset[int]
    probabilities: Probabilities = "arithmetic"

    @abstractmethod
    def forward(
        self, kept: Sequence[Tensor], normalise: Callable[[Tensor], Tensor], context: Context
    ) -> tuple[Tensor, ...]:
        """The results, each `[B, T, d]`: one, or in an encoder one for each decoder layer.

        Args:
            kept: Outputs of the layers in `keeps`, lowest first, each `[B, T, d]`.
            normalise: The connection's final norm.
            context: Of the pass.
        """

    def log_weights(self, languages: Tensor | None = None) -> Tensor | None:
        """Log of the weights `[G]` of a decoder's G results in the prediction; None when there is one.

        Args:
            languages: The target languages of the rows, `[B]`; where each has weights of its own, they are
                `[G, B]`.
        """
        return None

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """The weights of layers in the results, for analyses; none as a rule."""
        return ()

    def gate_probes(self) -> tuple[GateProbe, ...]:
        """Where weights that depend on the text can be seen, for analyses; nowhere as a rule."""
        return ()

    def restrict(self, first: int, last: int) -> Fusion:
        """The fusion of results `first` to `last` alone, counted from 1; parameters are shared.

        Raises:
            ValueError: There is one result only, or there are not so many.
        """
        raise ValueError("the decoder does not predict with a mixture of groups")

    def lowest(self, layers: int) -> Fusion:
        """The fusion of a stack that ends after its lowest `layers` layers; parameters are shared.

        Raises:
            ValueError: It needs them all.
        """
        raise ValueError("its fusion needs all of them")


class FusionSection(SocketSection):
    """Base of a fusion's settings."""

    kind: ClassVar[Kind] = "fusion"
    # Whether an encoder with it has a result of its own for every decoder layer.
    per_decoder_layer: ClassVar[bool] = False

    @abstractmethod
    def build(self, spec: StackSpec) -> Fusion:
        """The fusion of a whole stack."""
