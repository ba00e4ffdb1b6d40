"""Mixers that read in one direction, and pairs of them that read an encoder's sentences from both ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from deepwire.model.context import Context
from deepwire.model.mixers.mixer import EncoderMixer, Mixer, MixerSection
from deepwire.model.stack_spec import StackSpec


class DirectionalSection(MixerSection, ABC):
    """Settings of a mixer that reads from left to right.

    In an encoder one half of the features is that of such a mixer, and the other half that of a mixer of its
    own that reads from right to left.
    """

    reads_any_width: ClassVar[bool] = True

    def build(self, spec: StackSpec) -> Mixer:
        """One mixer of a decoder, or one in each direction of an encoder."""
        if spec.causal:
            return self.one_way(spec)
        half = self.each_way(spec)
        return BothDirections(self.one_way(half), self.one_way(half))

    @staticmethod
    def each_way(spec: StackSpec) -> StackSpec:
        """The spec of a mixer of one direction: it gives half of the features in an encoder."""
        return spec if spec.causal else replace(spec, dim=spec.dim // 2)

    @abstractmethod
    def one_way(self, spec: StackSpec) -> Mixer:
        """A mixer that reads vectors of width `spec.mixer_width` and gives those of width `spec.dim`.

        It sees the past alone, on either side.
        """


class BothDirections(EncoderMixer):
    """[ahead | back]: what two mixers of an encoder give that read each sentence from either end.

    Each gives one half of the features. The second turns each sentence around within its own length, so that
    padding comes last for both and is never seen.
    """

    def __init__(self, ahead: Mixer, back: Mixer) -> None:
        super().__init__()
        self.ahead, self.back = ahead, back

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Run over `[B, T, d_in]` in both directions, giving `[B, T, d]`."""
        order = backward_order(x, context.padding)
        back = self.back(turn(x, order), context)
        return torch.cat((self.ahead(x, context), turn(back, order)), -1)


def backward_order(x: Tensor, padding: Tensor | None) -> Tensor:
    """For every row of `[B * T, ...]` the row that takes its place when each sentence is turned around.

    Padding stays where it is, on the right: whoever reads on from the last word's place never sees it. The
    order is its own inverse.

    Args:
        x: The sentences, `[B, T, ...]`.
        padding: `[B, 1, 1, T]`, 0 at words; None where there is no padding.
    """
    rows, length = x.shape[:2]
    position = torch.arange(length, device=x.device)
    if padding is None:
        turned = (length - 1 - position).expand(rows, -1)
    else:
        words = (padding == 0).sum(-1).view(-1, 1)
        turned = torch.where(position < words, words - 1 - position, position)
    return (turned + length * torch.arange(rows, device=x.device).unsqueeze(1)).flatten()


def turn(x: Tensor, order: Tensor) -> Tensor:
    """Sentences `[B, T, n]` in a `backward_order`."""
    turned: Tensor = _Turn.apply(x.flatten(0, 1), order)  # type: ignore[no-untyped-call]
    return turned.view(x.shape)


class _Context(FunctionCtx):
    saved_tensors: tuple[Tensor]


class _Turn(torch.autograd.Function):
    """Rows in an order that is its own inverse: nothing needs to be scattered in the backward pass."""

    @staticmethod
    def forward(ctx: _Context, x: Tensor, order: Tensor) -> Tensor:
        ctx.save_for_backward(order)
        return x.index_select(0, order)

    @staticmethod
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor, None]:
        (order,) = ctx.saved_tensors
        return grad.index_select(0, order), None
