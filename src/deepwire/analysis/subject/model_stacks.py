"""The two stacks of a model, by name, and models with another one."""

from __future__ import annotations

from deepwire.errors import UsageError
from deepwire.model.context import Side
from deepwire.model.encoder_decoder import TranslationModel
from deepwire.model.stack import Stack

SIDES: tuple[Side, Side] = ("encoder", "decoder")


def part(model: TranslationModel, side: Side) -> Stack:
    """Encoder or decoder."""
    return model.encoder if side == "encoder" else model.decoder


def with_stack(model: TranslationModel, side: Side, stack: Stack) -> TranslationModel:
    """The model with another encoder or decoder; everything else is shared."""
    return model.with_stacks(encoder=stack) if side == "encoder" else model.with_stacks(decoder=stack)


def check_layer(stack: Stack, side: Side, layer: int) -> None:
    """See that a stack has layer number `layer`, counted from 1.

    Raises:
        UsageError: There is no such layer.
    """
    if not 1 <= layer <= stack.depth:
        raise UsageError(f"the {side} has layers 1 to {stack.depth}, not {layer}")
