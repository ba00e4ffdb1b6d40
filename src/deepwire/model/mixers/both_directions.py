"""Mixers that read in one direction, and pairs of them that read an encoder's sentences from both ends."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import replace
from typing import ClassVar

import torch
from torch import Tensor

from deepwire.model.context import Context
from deepwire.model.mixers.backward_order import backward_order, turn
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
