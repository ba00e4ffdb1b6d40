"""LAuReL: pre-norm whose residual path is learned, by two weights, a map of low rank, or both.

Menghani, Kumar, Kumar 2025 (LAuReL: Learned Augmented Residual Layer).
"""

from __future__ import annotations

from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from deepwire.config.counts import MAX_SIZE
from deepwire.model.connections.connection import Connection, ConnectionSection, DepthState, Droppable
from deepwire.model.connections.residual import PreNorm, PreNormConfig
from deepwire.model.context import StackContext
from deepwire.model.introspection import DepthWeights


class LAuReLConfig(ConnectionSection):
    """Pre-norm with learned residual weights (RW), a residual map of low rank (LR), or both."""

    type: Literal["laurel"] = "laurel"
    weights: Literal["softmax", "sigmoid", "none"] = Field(
        "softmax",
        description="RW: branch and stream are multiplied by the softmax, or each by the sigmoid, of two "
        "numbers that begin at 0; none: by 1",
    )
    rank: int | None = Field(
        None,
        ge=1,
        le=MAX_SIZE,
        description="LR: rank of the map that joins the residual path; none without it",
    )
    final_norm: bool = Field(True, description="one more norm after the stack")

    @model_validator(mode="after")
    def _learns(self) -> LAuReLConfig:
        if self.weights == "none" and self.rank is None:
            raise ValueError("weights: none without a rank is pre_norm; set a rank, or connection: pre_norm")
        return self

    def check(self, context: StackContext) -> None:
        """A rank below the width."""
        if self.rank is not None and self.rank >= context.dim:
            raise ValueError(
                f"{context.side}.connection: laurel's rank of {self.rank} is not low in a stream of width "
                f"{context.dim}"
            )

    def droppable(self, context: StackContext) -> Droppable:
        """A sub-layer left out leaves the stream as it is."""
        return "sublayers"

    @property
    def takes_ways(self) -> bool:
        """The residual is the stream."""
        return True

    def build(self, context: StackContext) -> Connection:
        """The connection of a whole stack."""
        return LAuReL(self, context)


class LAuReL(PreNorm):
    """x <- a_k drop(F_k(LN(x))) + c_k x + B_k A_k x.

    Attributes:
        weights: `[K, 2]`, the two numbers behind (a, c) of each of the K calls; None without them.
        down: A of every call, `[r, d]`, normal with variance 1/d; up: B, `[d, r]`, which begins at 0.
    """

    def __init__(self, config: LAuReLConfig, context: StackContext) -> None:
        super().__init__(PreNormConfig(final_norm=config.final_norm), context)
        self.softmax = config.weights == "softmax"
        self.weights: nn.Parameter | None = None
        if config.weights != "none":
            self.weights = nn.Parameter(torch.zeros(len(self.calls), 2))
        maps = range(len(self.calls) if config.rank else 0)
        rank = config.rank or 0
        self.down = nn.ParameterList(torch.empty(rank, context.dim) for _ in maps)
        self.up = nn.ParameterList(torch.zeros(context.dim, rank) for _ in maps)
        for matrix in self.down:
            nn.init.normal_(matrix, std=context.dim**-0.5)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, languages: Tensor | None = None
    ) -> DepthState:
        """Add the output to the learned residual."""
        x, branch = state[0], self.dropout(output)
        if self.weights is None:
            total = x + branch
        else:
            of_branch, of_stream = self._used(self.weights[index]).to(x.dtype).unbind(-1)
            total = torch.addcmul(of_stream * x, of_branch, branch)
        if len(self.down):
            low = functional.linear(x, self.down[index])
            total = total + functional.linear(low, self.up[index])
        return (total,)

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """The weights a and c, for `deepwire analyze weights`."""
        if self.weights is None:
            return ()
        return (
            DepthWeights(
                key="laurel",
                title="Weights of branch and stream",
                values=self._used(self.weights.detach()).T,
                rows=("branch", "stream"),
                columns=tuple(f"{call.layer + 1} {call.kind}" for call in self.calls),
                row_axis="part of the sum",
                column_axis="sub-layer",
            ),
        )

    def _used(self, numbers: Tensor) -> Tensor:
        """(a, c) of pairs `[..., 2]`."""
        return numbers.softmax(-1) if self.softmax else numbers.sigmoid()
