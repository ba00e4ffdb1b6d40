"""Post-norm with a number on one of the two paths: DeepNorm, Keel and BranchNorm."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.config.counts import Count
from deepwire.model.connections.connection import Connection, ConnectionSection, DepthState, Droppable
from deepwire.model.connections.residual import PostNorm, PostNormConfig
from deepwire.model.context import Context
from deepwire.model.stack_spec import NormStyle, Side, StackSpec


class DeepNormConfig(ConnectionSection):
    """Post-norm whose residual path has a constant that grows with the depth of both stacks."""

    drops: ClassVar[Droppable] = "sublayers"
    norm_style: ClassVar[NormStyle] = "output"
    initialization: ClassVar[str | None] = "deepnorm"

    type: Literal["deepnorm"] = "deepnorm"
    residual_scale: float | None = Field(
        None, gt=0, le=1e6, description="alpha; that of the paper for these numbers of layers without it"
    )

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        paper = deepnorm_residual_scale(spec.side, spec.layers, spec.other_layers)
        return ScaledPostNorm(spec, self.residual_scale or paper)


class KeelConfig(ConnectionSection):
    """Post-norm with a constant on the residual path and one more norm in front of each sub-layer."""

    drops: ClassVar[Droppable] = "sublayers"
    norm_style: ClassVar[NormStyle] = "output"

    type: Literal["keel"] = "keel"
    residual_scale: float | None = Field(
        None, gt=0, le=1e6, description="alpha; the number of sub-layers of the stack without it"
    )

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return Keel(spec, self.residual_scale or float(len(self.calls(spec))))


class BranchNormConfig(ConnectionSection):
    """Post-norm whose sub-layers are let in little by little while training begins."""

    drops: ClassVar[Droppable] = "sublayers"
    norm_style: ClassVar[NormStyle] = "output"
    scales_branches: ClassVar[bool] = True

    type: Literal["branch_norm"] = "branch_norm"
    updates: Count = Field(4000, ge=1, description="T; from this update on it is post-norm")

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return BranchNorm(spec, self.updates)


class ScaledPostNorm(PostNorm):
    """x <- LN(alpha x + drop(F(x))) (DeepNorm; Wang et al. 2022, DeepNet)."""

    def __init__(self, spec: StackSpec, scale: float) -> None:
        super().__init__(PostNormConfig(), spec)
        self.scale = scale

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Add the scaled stream to the output and normalise the sum."""
        added = torch.add(self.dropout(output), state[0], alpha=self.scale)
        return (self.norms[index](added, context),)


class Keel(ScaledPostNorm):
    """x <- LN_out(alpha x + drop(F(LN_in(x)))) (Chen and Wei 2026, Post-LayerNorm Is Back)."""

    def __init__(self, spec: StackSpec, scale: float) -> None:
        super().__init__(spec, scale)
        self.input_norms = nn.ModuleList(spec.norm() for _ in self.calls)

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """The normalised stream."""
        read: Tensor = self.input_norms[index](state[0], context)
        return read


class BranchNorm(PostNorm):
    """x <- LN(x + a_t drop(F(x))), a_t = min(1, t / T) in update t (Liu et al. 2023, BranchNorm).

    Attributes:
        factor: a_t of the latest update, a scalar that is saved with the model; 1 before any training.
    """

    factor: Tensor

    def __init__(self, spec: StackSpec, updates: int) -> None:
        super().__init__(PostNormConfig(), spec)
        self.updates = updates
        self.register_buffer("factor", torch.ones(()))

    def begin_update(self, number: int) -> None:
        """Set a_t."""
        self.factor.fill_(min(1.0, number / self.updates))

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Add as much of the output as this update lets in, and normalise the sum."""
        return (self.norms[index](state[0] + self.factor * self.dropout(output), context),)


def deepnorm_residual_scale(side: Side, layers: int, other_layers: int) -> float:
    """alpha of DeepNorm (Wang et al. 2022, DeepNet).

    0.81 (N^4 M)^(1/16) in an encoder with N layers before a decoder with M; (3 N)^(1/4) in a decoder with N;
    (2 N)^(1/4) in a stack alone.
    """
    if not other_layers:
        return float((2 * layers) ** 0.25)
    if side == "decoder":
        return float((3 * layers) ** 0.25)
    return float(0.81 * (layers**4 * other_layers) ** 0.0625)
