"""Blocks: every decoder layer reads a block of encoder layers of its own.

Wei et al. 2020 (Multiscale Collaborative Deep Models for Neural Machine Translation), block-scale
collaboration: the k-th decoder layer attends to the output of the k-th encoder block.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import ClassVar, Literal

from torch import Tensor

from deepwire.model.context import Context
from deepwire.model.fusions.fusion import Fusion, FusionSection
from deepwire.model.stack_spec import Side, StackSpec


class BlocksConfig(FusionSection):
    """As many blocks of encoder layers as there are decoder layers."""

    normalises: ClassVar[bool] = False
    type: Literal["blocks"] = "blocks"
    sides: ClassVar[frozenset[Side]] = frozenset({"encoder"})
    per_decoder_layer: ClassVar[bool] = True

    def check(self, spec: StackSpec) -> None:
        """Blocks of equal size."""
        block_size(spec)

    def build(self, spec: StackSpec) -> Fusion:
        """The fusion of a whole stack; nothing to learn."""
        return Blocks(spec)


class Blocks(Fusion):
    """One result for each decoder layer: the last layer of its block, normalised as the connection does."""

    def __init__(self, spec: StackSpec) -> None:
        super().__init__()
        size = block_size(spec)
        self.keeps = frozenset(range(size, spec.layers + 1, size))

    def forward(
        self, kept: Sequence[Tensor], normalise: Callable[[Tensor], Tensor], context: Context
    ) -> tuple[Tensor, ...]:
        """Results `[B, S, d]`, lowest block first."""
        return tuple(normalise(block) for block in kept)


def block_size(spec: StackSpec) -> int:
    """Encoder layers in a block, when there are as many blocks as decoder layers.

    Raises:
        ValueError: The blocks would not be equally long.
    """
    size, rest = divmod(spec.layers, spec.other_layers)
    if rest:
        raise ValueError(
            f"{spec.layers} encoder layers do not fall into {spec.other_layers} equal blocks, one for "
            "each decoder layer; make encoder.layers a multiple of decoder.layers"
        )
    return size
