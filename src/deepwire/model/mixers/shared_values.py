"""Self-attention whose values, or keys and values, are mixed with those of the layers below.

Zhou et al. 2024 (Value Residual Learning: ResFormer, SVFormer); Gerasimov et al. 2025 (You Do Not Fully
Utilize Transformer's Representation Capacity: LIMe).
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.model.context import Context
from deepwire.model.mixers.mixer import Mixer, SideMixer, SideState, State
from deepwire.model.mixers.self_attention import (
    RelativeKeys,
    RelativeValues,
    SelfAttention,
    SelfAttentionSection,
)
from deepwire.model.stack_spec import StackSpec


class BelowMix(nn.Module, ABC):
    """Mixes the keys and values of a layer with those of the layers below, before attention and cache.

    Attributes:
        own_values: Whether the layer makes values of its own.
    """

    own_values: bool = True

    @abstractmethod
    def forward(self, key: Tensor, value: Tensor | None, side: SideState) -> tuple[Tensor, Tensor, SideState]:
        """The keys and values to use, `[B, H, T, h]`, and what the layer above gets.

        Args:
            key, value: The layer's own, `[B, H, T, h]`; no values without `own_values`.
            side: What the layer below left.
        """

    def weights(self) -> Tensor | None:
        """See `Mixer.depth_weights`."""
        return None


class SharedValuesSection(SelfAttentionSection):
    """Settings that both share."""

    reads_below: ClassVar[bool] = True

    def check(self, spec: StackSpec) -> None:
        """More than one layer."""
        super().check(spec)
        if spec.layers < 2:
            raise ValueError(
                f"{spec.side}.mixer: {self.type} mixes values of several layers, and there is only one; "
                "use self_attention"
            )

    @abstractmethod
    def below(self, spec: StackSpec) -> BelowMix:
        """How they are mixed."""

    def build(self, spec: StackSpec) -> Mixer:
        """One self-attention of the stack."""
        relative = self.relative_positions(spec)
        return SharedValueAttention(spec, *relative, self.below(spec))


class SharedValueAttention(SideMixer, SelfAttention):
    """Self-attention to keys and values that `below` has mixed with those of the layers below."""

    def __init__(
        self,
        spec: StackSpec,
        relative: RelativeKeys | None,
        relative_values: RelativeValues | None,
        below: BelowMix,
    ) -> None:
        super().__init__(spec, relative, relative_values, own_values=below.own_values)
        self.below = below

    def forward_beside(self, x: Tensor, side: SideState, context: Context) -> tuple[Tensor, SideState]:
        """Attend within `[B, T, d]`."""
        query, key, value, side = self._mixed(x, side, None)
        return self.attend(query, key, value, context.padding, context), side

    def step_beside(
        self, x: Tensor, state: State, side: SideState, context: Context
    ) -> tuple[Tensor, State, SideState]:
        """Attend from `[rows, T, d]`."""
        index = context.positions
        query, key, value, side = self._mixed(index.grouped(x), side, index.query_position)
        return *self.attend_cached(query, key, value, state, x, context), side

    def depth_weights(self) -> Tensor | None:
        """How keys and values are mixed."""
        return self.below.weights()

    def _mixed(
        self, x: Tensor, side: SideState, position: int | Tensor | None
    ) -> tuple[Tensor, Tensor, Tensor, SideState]:
        query, key, *own = self.normalised(*self.maps(x))
        key, value, side = self.below(key, own[0] if own else None, side)
        return *self.turned(query, key, position), value, side


class ValueResidualConfig(SharedValuesSection):
    """Self-attention to values in which those of layer 1 have a share."""

    type: Literal["value_residual"] = "value_residual"
    form: Literal["fixed", "learned", "first"] = Field(
        "fixed",
        description="half and half (ResFormer, released code); two learned numbers a layer that begin "
        "there; or first: the values of layer 1 alone, so that other layers make none (SVFormer)",
    )

    def below(self, spec: StackSpec) -> BelowMix:
        """Values of layer 1."""
        return ValueResidual(spec.layer, self.form)


class ValueResidual(BelowMix):
    """v_l <- a_l v_1 + b_l v_l for l > 1, with both 0.5 at first; or v_l <- v_1 (Zhou et al. 2024).

    Args:
        layer: From 0.
        form: As in `ValueResidualConfig`.
    """

    def __init__(self, layer: int, form: Literal["fixed", "learned", "first"]) -> None:
        super().__init__()
        self.layer, self.own_values = layer, form != "first" or not layer
        self.share: nn.Parameter | None = None
        if layer and form == "learned":
            self.share = nn.Parameter(torch.full((2,), 0.5))

    def forward(self, key: Tensor, value: Tensor | None, side: SideState) -> tuple[Tensor, Tensor, SideState]:
        """The values of layer 1 go up; see the base class."""
        if not self.layer:
            assert value is not None
            return key, value, (value,)
        (first,) = side
        if value is None:
            return key, first, side
        if self.share is None:
            return key, torch.lerp(value, first, 0.5), side
        of_first, of_own = self.share.to(value.dtype)
        return key, torch.addcmul(of_first * first, of_own, value), side

    def weights(self) -> Tensor | None:
        """The two numbers, where they are learned."""
        if self.share is None:
            return None
        between = self.share.detach().new_zeros(self.layer - 1)
        return torch.cat((self.share.detach()[:1], between, self.share.detach()[1:]))


class LIMeConfig(SharedValuesSection):
    """Self-attention to keys and values that are learned mixes of those of all heads and layers below."""

    type: Literal["lime"] = "lime"

    def below(self, spec: StackSpec) -> BelowMix:
        """Keys and values of all layers below."""
        return LayerIntegratedMemory(spec.layer, spec.key_heads)


class LayerIntegratedMemory(BelowMix):
    """(K, V)_h <- sum_{m <= l, g} R_l[h, (m, g)] (K, V)^own_(m, g), one R for keys and values (LIMe).

    R begins at the identity on the own layer and uniform in +-sqrt(3 / (l H)) elsewhere, l from 1.

    Attributes:
        router: R_l, `[H, l H]`, the lowest layer first; None in layer 1, which uses its own.
    """

    def __init__(self, layer: int, heads: int) -> None:
        super().__init__()
        self.layer, self.heads = layer, heads
        self.router: nn.Parameter | None = None
        if layer:
            older, bound = torch.empty(heads, layer * heads), (3 / ((layer + 1) * heads)) ** 0.5
            nn.init.uniform_(older, -bound, bound)
            self.router = nn.Parameter(torch.cat((older, torch.eye(heads)), 1))

    def forward(self, key: Tensor, value: Tensor | None, side: SideState) -> tuple[Tensor, Tensor, SideState]:
        """The own keys and values of all layers go up; see the base class."""
        assert value is not None
        # In one piece, which every layer above reads.
        side = (*side[: 2 * self.layer], key.flatten(2), value.flatten(2))
        if self.router is None:
            return key, value, side
        of_layers = torch.split(self.router.to(value.dtype), self.heads, 1)
        mixed_key, mixed_value = self._mix(of_layers, side[::2]), self._mix(of_layers, side[1::2])
        return mixed_key.view(key.shape), mixed_value.view(value.shape), side

    def weights(self) -> Tensor | None:
        """The mean size of the numbers that read each layer."""
        if self.router is None:
            return None
        return self.router.detach().abs().view(self.heads, -1, self.heads).mean((0, 2))

    @staticmethod
    def _mix(of_layers: tuple[Tensor, ...], vectors: SideState) -> Tensor:
        """Sum over layers of `[H, H]` times `[B, H, T h]`, one at a time: stacking would copy them all."""
        total = of_layers[0] @ vectors[0]
        for matrix, vector in zip(of_layers[1:], vectors[1:], strict=True):
            total = total + matrix @ vector
        return total
