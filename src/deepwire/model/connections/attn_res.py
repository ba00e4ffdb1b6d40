"""Attention residuals: each sub-layer attends to the outputs of all sub-layers below, at its own position.

Kimi Team 2026 (Attention Residuals).
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import pairwise
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from deepwire.config.section import Removed
from deepwire.model.connections.connection import Connection, ConnectionSection, DepthState, Droppable
from deepwire.model.connections.residual import PreNorm, PreNormConfig
from deepwire.model.context import Context
from deepwire.model.introspection import DepthWeights, Mixing, single
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.precision import full_precision
from deepwire.ops.weighted_sum import mix_positions

BLOCKS = 8
"""As many blocks are most of the gain of attending to every sub-layer, say the authors."""


class AttnResConfig(ConnectionSection):
    """Attention over depth in the place of the residual sum."""

    # CompleteP has no rates for vectors that meet the text by a product, as those of its weights do.
    # Every sub-layer adds to a source, or is one.
    drops: ClassVar[Droppable] = "sublayers"
    scales_branches: ClassVar[bool] = False
    removed: ClassVar[dict[str, Removed]] = {"source_eps": Removed((1e-6,), "it is always 1e-6")}

    type: Literal["attn_res"] = "attn_res"
    block: Literal["auto", "full"] | int = Field(
        "auto",
        description="sub-layers whose outputs are summed up to one source; full: each is a source (as 1); "
        f"auto: as many as make {BLOCKS} blocks or fewer",
    )
    sources: Literal["outputs", "streams"] = Field(
        "outputs",
        description="what is attended to: sums of outputs of a block (the paper), or the residual stream "
        "as it was at the end of each block",
    )
    bias: float | None = Field(
        None,
        ge=-100,
        le=100,
        description="where a learned number begins that is added to the logit of the newest source; none: "
        "there is no such number (the paper). With sources: streams and 30 it begins as the residual model; "
        "outputs with a number do not",
    )

    @model_validator(mode="after")
    def _fits(self) -> AttnResConfig:
        if isinstance(self.block, int) and self.block < 1:
            raise ValueError(f"block must be auto, full or a number of at least 1, not {self.block}")
        return self

    def block_size(self, spec: StackSpec) -> int:
        """Sub-layers of a block."""
        if self.block == "full":
            return 1
        if self.block == "auto":
            return max(1, math.ceil(len(self.calls(spec)) / BLOCKS))
        return self.block

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return AttnRes(self, spec)


class DepthQuery(nn.Module):
    """p = softmax over sources i of q . RMS(v_i), RMS with gain; a learned number joins the newest logit.

    The query begins at zero, so that every source has the same weight.
    """

    def __init__(self, dim: int, bias: float | None) -> None:
        super().__init__()
        self.query, self.gain = nn.Parameter(torch.zeros(dim)), nn.Parameter(torch.ones(dim))
        self.bias = None if bias is None else nn.Parameter(torch.tensor(bias))

    def forward(self, sources: Sequence[Tensor], scales: Sequence[Tensor]) -> Tensor:
        """The weights `[m, B, T]`, in float32, of m sources `[B, T, d]` whose 1 / RMS is `[B, T]`."""
        # One product for query and gain: the sources are read once and not copied.
        with full_precision(sources[0].device.type):
            query = self.query.float() * self.gain.float()
            logits = [
                torch.mv(v.flatten(0, 1).float(), query).view_as(scale) * scale
                for v, scale in zip(sources, scales, strict=True)
            ]
            if self.bias is not None:
                logits[-1] = logits[-1] + self.bias
            return torch.stack(logits).softmax(0)


class AttnRes(PreNorm):
    """u_k = sum over sources i of p_i v_i, p from query k; then drop(F_k(LN(u_k))) joins the sources.

    Sources are the embedding, the sums of the outputs of every complete block, and the sum so far of the
    current one (section 3 of the paper). The first sub-layer reads the embedding alone. One more query makes
    the result, which the final norm follows. Zero queries weigh all m sources alike, and their mean is the
    residual stream divided by m; the norms do not see that factor, but for their epsilon. So the network
    begins as the pre-norm one, whose parameters have the same names.

    The state is (v_0, ..., v_m, r_0, ..., r_m), r_i `[B, T]` being 1 / RMS of v_i: what does not depend on
    the query is computed once.
    """

    def __init__(self, config: AttnResConfig, spec: StackSpec) -> None:
        super().__init__(PreNormConfig(), spec)
        self.block, self.eps = config.block_size(spec), 1e-6
        self.streams = config.sources == "streams"
        # Calls that see the embedding, or the result of a part of an encoder with rounds, and nothing else.
        layers = [-1, *(call.layer for call in self.calls)]
        steps = enumerate(pairwise(layers))
        self.begins = {n for n, (below, layer) in steps if layer in spec.starts and layer != below}
        # Of all other calls, at their number - 1, and of the result.
        self.queries = nn.ModuleList(
            nn.Identity() if number in self.begins else DepthQuery(spec.dim, config.bias)
            for number in range(1, len(self.calls) + 1)
        )

    def start(self, x: Tensor, context: Context) -> DepthState:
        """The embedding is the first source."""
        return (x, self._scale(x))

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """The normalised mixture that a sub-layer attends to."""
        mixed = state[0] if index in self.begins else self._attend(state, index - 1)
        return self.norms[index](mixed, context)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """A new source where a block begins; otherwise the output joins the newest one."""
        sources, scales = _halves(state)
        output = self.dropout(output)
        begins = index % self.block == 0 or len(sources) == 1
        newest = output if begins and not self.streams else sources[-1] + output
        kept = len(sources) if begins else -1
        return (*sources[:kept], newest, *scales[:kept], self._scale(newest))

    def stream(self, state: DepthState) -> Tensor:
        """The residual stream: the sum of the sources, or the newest one."""
        sources, _ = _halves(state)
        return sources[-1] if self.streams else sum(sources[1:], sources[0])

    def with_stream(self, state: DepthState, x: Tensor) -> DepthState:
        """The newest source takes what the stream has become."""
        sources, scales = _halves(state)
        newest = x if self.streams else sources[-1] + (x - self.stream(state))
        return (*sources[:-1], newest, *scales[:-1], self._scale(newest))

    def result(self, state: DepthState, context: Context) -> Tensor:
        """The mixture of the sources by the last query."""
        return state[0] if len(state) == 2 else self._attend(state, -1)

    def depth_weights(self) -> tuple[DepthWeights, ...]:
        """The numbers that join the logit of the newest source; the weights themselves depend on the text."""
        queries = [(n, query) for n, query in enumerate(self.queries, 2) if isinstance(query, DepthQuery)]
        biases = {n: query.bias for n, query in queries if query.bias is not None}
        if not biases:
            return ()
        names = tuple("result" if n > len(self.calls) else str(n) for n in biases)
        title = "Added to the logit of the newest source"
        return (single("attn-res", title, torch.stack([*biases.values()]), names, "sub-layer"),)

    def mixing(self, state: DepthState, index: int) -> Mixing:
        """The sources are the parts."""
        sources, scales = _halves(state)
        count = len(sources)
        read = self.queries[index - 1](sources, scales) if count > 1 else torch.ones_like(scales[0])[None]
        if index == len(self.calls):
            return Mixing(read.unsqueeze(0))
        write = torch.eye(count + 1, device=read.device)  # the sources, and the output as the newest one
        begins = index % self.block == 0 or count == 1
        if self.streams or not begins:
            write[-1, -2] = 1.0
        if not begins:
            write = torch.cat((write[:-2], write[-1:]))
        return Mixing(read.unsqueeze(0), write.view(*write.shape, 1, 1))

    def _attend(self, state: DepthState, query: int) -> Tensor:
        sources, scales = _halves(state)
        return mix_positions(self.queries[query](sources, scales).unbind(0), sources)

    def _scale(self, source: Tensor) -> Tensor:
        """1 / RMS of every position, `[B, T]`, in float32."""
        norm = torch.linalg.vector_norm(
            source, dim=-1, dtype=torch.promote_types(source.dtype, torch.float32)
        )
        return torch.rsqrt(norm.square() / source.size(-1) + self.eps)


def _halves(state: DepthState) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """The sources, and 1 / RMS of each."""
    middle = len(state) // 2
    return state[:middle], state[middle:]
