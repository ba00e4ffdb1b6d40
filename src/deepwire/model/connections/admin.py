"""Admin: post-norm with learned vectors on the residual path, which begin with what one batch shows."""

from __future__ import annotations

from math import log
from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.model.connections.connection import Connection, ConnectionSection, DepthState, Droppable
from deepwire.model.connections.residual import PostNorm, PostNormConfig
from deepwire.model.context import Context
from deepwire.model.introspection import DepthWeights, single
from deepwire.model.stack_spec import NormStyle, StackSpec


class AdminConfig(ConnectionSection):
    """Post-norm with learned vectors on the residual path."""

    drops: ClassVar[Droppable] = "sublayers"
    norm_style: ClassVar[NormStyle] = "output"

    type: Literal["admin"] = "admin"
    initial: Literal["profiled", "logarithmic", "square_root", "one"] = Field(
        "profiled",
        description="the numbers before training: from one pass over the first batch; "
        "sqrt((K + 1) / ln(K + 1) - 1) or sqrt(K) for K sub-layers, or 1, as post-norm (the authors' later "
        "package has these three)",
    )

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return Admin(self, spec)


class Admin(PostNorm):
    """x <- LN(w_k * x + drop(F_k(x))), w_k a vector of width d (Liu et al. 2020, Admin).

    Profiling sets w_1 = 1 and w_{k+1} = sqrt(Var(w_k * x_k) + Var(drop(F_k(x_k)))). The variances are taken
    over all numbers of the batch, padding included, as in the authors' code.

    Attributes:
        scales: The vectors w, `[d]` each, one for each call.
    """

    def __init__(self, config: AdminConfig, spec: StackSpec) -> None:
        super().__init__(PostNormConfig(), spec)
        count = len(self.calls)
        squares = {"logarithmic": (count + 1) / log(count + 1) - 1, "square_root": count}
        start = squares.get(config.initial, 1) ** 0.5
        self.scales = nn.ParameterList(torch.full((spec.dim,), start) for _ in self.calls)
        self.needs_profile = config.initial == "profiled"

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Add the scaled stream to the output and normalise the sum."""
        output = self.dropout(output)
        # Wider numbers would widen all that follows.
        residual = state[0] * self.scales[index].to(state[0].dtype)
        if self.profiling and index + 1 < len(self.scales):
            variances = residual.float().var(correction=0) + output.float().var(correction=0)
            self.scales[index + 1].fill_(variances.sqrt())
        return (self.norms[index](residual + output, context),)

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """The mean of each vector w, for `deepwire analyze weights`."""
        names = [f"{call.layer + 1} {call.kind}" for call in self.calls]
        means = torch.stack([scale.detach().mean() for scale in self.scales])
        return (single("admin", "Scale of the residual path (mean)", means, names, "sub-layer"),)
