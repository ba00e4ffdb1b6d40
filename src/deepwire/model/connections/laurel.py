"""LAuReL: pre-norm whose residual path is learned: by two weights, a map of low rank, earlier inputs, or all.

Menghani, Kumar, Kumar 2025 (LAuReL: Learned Augmented Residual Layer).
"""

from __future__ import annotations

from math import nan
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.functional import pad

from deepwire.config.counts import MAX_SIZE
from deepwire.model.connections.connection import Connection, ConnectionSection, DepthState, Droppable
from deepwire.model.connections.residual import PreNorm, PreNormConfig
from deepwire.model.context import Context
from deepwire.model.introspection import DepthWeights
from deepwire.model.stack_spec import StackSpec


class LAuReLConfig(ConnectionSection):
    """Pre-norm with learned residual weights (RW), a residual map of low rank (LR), earlier inputs (PA)."""

    # A sub-layer left out leaves the stream as it is.
    drops: ClassVar[Droppable] = "sublayers"
    type: Literal["laurel"] = "laurel"
    weights: Literal["softmax", "sigmoid", "none"] = Field(
        "softmax",
        description="RW: branch and stream are multiplied by the softmax, or each by the sigmoid, of two "
        "learned numbers; none: by 1",
    )
    initial: Literal["average", "even"] = Field(
        "average",
        description="RW at first: average: pre-norm but for the scale of the stream, the mean of all "
        "branches so far; even: halves, which forget the input of a deep stack",
    )
    rank: int | None = Field(
        None,
        ge=1,
        le=MAX_SIZE,
        description="LR: rank of the map that joins the residual path; none without it",
    )
    earlier: int = Field(
        0,
        ge=0,
        le=1000,
        description="PA: inputs of so many earlier sub-layers join the residual path, each times a number of "
        "the sub-layer's own that begins at 0 (the paper: the last 3)",
    )
    final_norm: bool = Field(True, description="one more norm after the stack")

    @model_validator(mode="after")
    def _learns(self) -> LAuReLConfig:
        if self.weights == "none" and self.rank is None and not self.earlier:
            raise ValueError(
                "weights: none without a rank or earlier inputs is pre_norm; set one, or connection: pre_norm"
            )
        return self

    def check(self, spec: StackSpec) -> None:
        """A rank below the width, and inputs before every sub-layer but the first."""
        if self.earlier and len(spec.starts) > 1:
            raise ValueError(
                f"{spec.side}.connection: laurel's earlier inputs are missing where prelude, middle and "
                f"coda begin ({spec.side}.recurrence); leave out earlier"
            )
        if self.rank is not None and self.rank >= spec.dim:
            raise ValueError(
                f"{spec.side}.connection: laurel's rank of {self.rank} is not low in a stream of width "
                f"{spec.dim}"
            )

    @property
    def takes_ways(self) -> bool:
        """The residual is the stream."""
        return True

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return LAuReL(self, spec)


class LAuReL(PreNorm):
    """x_{k+1} = a_k drop(F_k(LN(x_k))) + c_k x_k + B_k A_k x_k + sum_j g_kj x_{k-j}, j from 1.

    The state is (x_k, x_{k-1}, ...), as far back as is read.

    Attributes:
        weights: `[K, 2]`, the two numbers behind (a, c) of each of the K calls; None without them.
        shares: g of every call, as many numbers as there are earlier inputs; [k] has those of call k + 1.
        down: A of every call, `[r, d]`, normal with variance 1/d; up: B, `[d, r]`, which begins at 0.
    """

    def __init__(self, config: LAuReLConfig, spec: StackSpec) -> None:
        super().__init__(PreNormConfig(final_norm=config.final_norm), spec)
        self.softmax = config.weights == "softmax"
        self.weights: nn.Parameter | None = None
        if config.weights != "none":
            self.weights = nn.Parameter(_initial(config, len(self.calls)))
        self.earlier = config.earlier
        reaches = range(1, len(self.calls) if config.earlier else 0)
        self.shares = nn.ParameterList(torch.zeros(min(config.earlier, call)) for call in reaches)
        maps = range(len(self.calls) if config.rank else 0)
        rank = config.rank or 0
        self.down = nn.ParameterList(torch.empty(rank, spec.dim) for _ in maps)
        self.up = nn.ParameterList(torch.zeros(spec.dim, rank) for _ in maps)
        for matrix in self.down:
            nn.init.normal_(matrix, std=spec.dim**-0.5)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
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
        if not self.earlier:
            return (total,)
        if index:
            # Where layers are left out in training, fewer went before.
            for share, before in zip(self.shares[index - 1], state[1:], strict=False):
                total = torch.addcmul(total, share.to(x.dtype), before)
        return (total, *state[: self.earlier])

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """The weights a and c, and g, for `deepwire analyze weights`."""
        names = tuple(f"{call.layer + 1} {call.kind}" for call in self.calls)
        shown = []
        if self.weights is not None:
            shown.append(
                DepthWeights(
                    key="laurel",
                    title="Weights of branch and stream",
                    values=self._used(self.weights.detach()).T,
                    rows=("branch", "stream"),
                    columns=names,
                    row_axis="part of the sum",
                    column_axis="sub-layer",
                )
            )
        if len(self.shares):
            shown.append(
                DepthWeights(
                    key="laurel-earlier",
                    title="Weights of earlier inputs",
                    values=torch.stack(
                        [pad(row.detach(), (0, self.earlier - len(row)), value=nan) for row in self.shares]
                    ),
                    rows=names[1:],
                    columns=tuple(str(back) for back in range(1, self.earlier + 1)),
                    row_axis="sub-layer",
                    column_axis="sub-layers back",
                )
            )
        return tuple(shown)

    def _used(self, numbers: Tensor) -> Tensor:
        """(a, c) of pairs `[..., 2]`."""
        return numbers.softmax(-1) if self.softmax else numbers.sigmoid()


def _initial(config: LAuReLConfig, calls: int) -> Tensor:
    """The numbers behind (a, c) of each call; average: 1/(k + 1) and k/(k + 1) for call k from 1."""
    if config.initial == "even":
        return torch.zeros(calls, 2)
    stream = torch.arange(1.0, calls + 1).log()
    return torch.stack((torch.zeros(calls) if config.weights == "softmax" else -stream, stream), 1)
