"""Pre-norm with one thing more: norms behind sub-layers, learned scales, or scales that fall with depth."""

from __future__ import annotations

import math
from typing import Annotated, ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.model.connections.connection import Connection, ConnectionSection, DepthState, Droppable
from deepwire.model.connections.residual import PreNorm, PreNormConfig
from deepwire.model.context import Context
from deepwire.model.introspection import DepthWeights, single
from deepwire.model.stack_spec import StackSpec


class PreNormVariantSection(ConnectionSection):
    """Settings that these connections share."""

    drops: ClassVar[Droppable] = "sublayers"
    final_norm: bool = Field(True, description="one more norm after the stack")

    @property
    def pre_norm(self) -> PreNormConfig:
        """The settings of pre-norm itself."""
        return PreNormConfig(final_norm=self.final_norm)


class PeriLNConfig(PreNormVariantSection):
    """Norms before and behind each sub-layer (Peri-LN)."""

    scales_branches: ClassVar[bool] = True
    adds_in_proportion: ClassVar[bool] = False  # the norm behind a sub-layer takes every factor out

    type: Literal["peri_ln"] = "peri_ln"
    embedding_norm: bool = Field(False, description="also normalise the embedding")
    output_gain: Literal["auto"] | Annotated[float, Field(gt=0, le=100)] = Field(
        "auto",
        description="gain of the norms behind sub-layers before training; auto: (2 K)^(-1/2) with K "
        "sub-layers in the stack, paper: 1",
    )

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return PeriLN(self, spec)


class PeriLN(PreNorm):
    """x <- x + drop(LN_out(F(LN_in(x)))), with a final norm (Kim et al. 2025, Peri-LN)."""

    def __init__(self, config: PeriLNConfig, spec: StackSpec) -> None:
        super().__init__(config.pre_norm, spec)
        self.output_norms = nn.ModuleList(spec.norm() for _ in self.calls)
        gain = config.output_gain
        if gain == "auto":  # with a parametrisation as in its base, as sums are divided already
            gain = 1 / math.sqrt(2 * len(self.calls) / spec.scaling.depth)
        for norm in self.output_norms:
            nn.init.constant_(norm.get_parameter("weight"), gain)
        self.embedding_norm = spec.norm() if config.embedding_norm else None

    def start(self, x: Tensor, context: Context) -> DepthState:
        """Begin with the embedding, normalised where asked for."""
        return (x if self.embedding_norm is None else self.embedding_norm(x, context),)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Add the normalised output to the stream."""
        return super().write(state, index, read, self.output_norms[index](output, context), context)


class LayerScaleConfig(PreNormVariantSection):
    """Pre-norm whose outputs are scaled, feature by feature, by learned numbers that begin small."""

    scales_branches: ClassVar[bool] = True

    type: Literal["layer_scale"] = "layer_scale"
    initial: float | None = Field(
        None,
        gt=0,
        le=100,
        description="the numbers before training; without it those of the paper: 0.1 up to 18 layers, "
        "1e-5 up to 24, 1e-6 above",
    )

    def check(self, spec: StackSpec) -> None:
        """With a parametrisation, no numbers that depend on the layers by themselves."""
        if spec.scaling.depth != 1 and self.initial is None:
            raise ValueError(
                f"{spec.side}.connection: layer_scale begins with numbers that depend on the depth, "
                "which complete_p divides by already; set initial"
            )

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return LayerScale(self, spec)


class LayerScale(PreNorm):
    """x <- x + g_k * drop(F_k(LN(x))), g_k a vector of width d (Touvron et al. 2021, CaiT).

    Attributes:
        scales: The vectors g, `[d]` each, one for each call.
    """

    def __init__(self, config: LayerScaleConfig, spec: StackSpec) -> None:
        super().__init__(config.pre_norm, spec)
        paper = 0.1 if spec.layers <= 18 else 1e-5 if spec.layers <= 24 else 1e-6
        self.scales = nn.ParameterList(torch.full((spec.dim,), config.initial or paper) for _ in self.calls)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Add the scaled output to the stream."""
        # Wider numbers would widen all that follows.
        scale = self.scales[index].to(output.dtype)
        return (torch.addcmul(state[0], scale, self.dropout(output)),)

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """The mean size of each vector g, for `deepwire analyze weights`."""
        names = [f"{call.layer + 1} {call.kind}" for call in self.calls]
        means = torch.stack([scale.detach().abs().mean() for scale in self.scales])
        return (single("layer-scale", "Scale of what is added (mean size)", means, names, "sub-layer"),)


class LayerNormScalingConfig(PreNormVariantSection):
    """Pre-norm whose norms give less from layer to layer."""

    type: Literal["layer_norm_scaling"] = "layer_norm_scaling"

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return LayerNormScaling(self.pre_norm, spec)


class LayerNormScaling(PreNorm):
    """x <- x + drop(F(LN(x) / sqrt(l))) in layer l, from 1 (Sun et al. 2025, The Curse of Depth)."""

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """The normalised stream, the less the higher the layer."""
        read = super().read(state, index, context)
        return read * float((self.calls[index].layer + 1) ** -0.5)
