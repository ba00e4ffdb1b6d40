"""Relatives of post-norm: DeepNorm, Keel and BranchNorm scale a path, B2T and ResiDual have one more."""

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
        return self.input_norms[index](state[0], context)


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


class B2TConfig(ConnectionSection):
    """Post-norm with a path around all norms of a layer but the last."""

    # Whole layers: the last norm of a layer adds what the layer began with.
    drops: ClassVar[Droppable] = "layers"
    norm_style: ClassVar[NormStyle] = "output"
    initialization: ClassVar[str | None] = "b2t"
    scales_branches: ClassVar[bool] = True

    type: Literal["b2t"] = "b2t"

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return B2T(PostNormConfig(), spec)


class B2T(PostNorm):
    """z <- LN(z + drop(F(z))), but LN(z + drop(F(z)) + x) at the end of a layer whose input is x.

    Takase et al. 2023, B2T Connection: Serving Stability and Performance in Deep Transformers.
    Between layers the state is the stream, within a layer also its input. The path goes around all norms of
    a layer but the last, so a layer of one sub-layer has none and is that of post-norm.
    """

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Add the output to the stream, at the end of a layer also its input, and normalise the sum."""
        added = state[0] + self.dropout(output)
        if not self.calls[index].closes:
            return (self.norms[index](added, context), state[-1])
        if len(state) > 1:
            added = added + state[1]
        return (self.norms[index](added, context),)


class ResiDualConfig(ConnectionSection):
    """A post-norm and a pre-norm residual stream at once."""

    # Every sub-layer is an addition to both streams.
    drops: ClassVar[Droppable] = "sublayers"
    norm_style: ClassVar[NormStyle] = "output"
    scales_branches: ClassVar[bool] = True

    type: Literal["resi_dual"] = "resi_dual"
    dual_scale: float = Field(
        1.0, gt=0, le=1e6, description="q, by which all that enters the second stream is multiplied"
    )
    output_scale: float = Field(1.0, gt=0, le=1e6, description="a, the weight of the first stream at the end")
    dual_eps: float = Field(1e-7, gt=0, le=0.1, description="epsilon of the second stream's norm")

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return ResiDual(self, spec)


class ResiDual(PostNorm):
    """f = drop(F(x)), x <- LN(x + f), r <- r + q f; in the end a x + LN(r) (Xie et al. 2023).

    The state is (x, r), which begins with the embedding and q times it.
    """

    def __init__(self, config: ResiDualConfig, spec: StackSpec) -> None:
        super().__init__(PostNormConfig(), spec)
        self.dual_scale, self.output_scale = config.dual_scale, config.output_scale
        self.dual_norm = spec.norm(eps=config.dual_eps)

    def start(self, x: Tensor, context: Context) -> DepthState:
        """Both streams begin with the embedding."""
        return (x, x * self.dual_scale)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Add the output to both streams; the first one is normalised."""
        output = self.dropout(output)
        added = torch.add(state[1], output, alpha=self.dual_scale)
        return (self.norms[index](state[0] + output, context), added)

    def result(self, state: DepthState, context: Context) -> Tensor:
        """The first stream and the normalised second one together."""
        return torch.add(self.dual_norm(state[1], context), state[0], alpha=self.output_scale)


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
