"""Average attention (AAN): the mean of the past in place of attention weights."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.config.section import Removed
from deepwire.model.context import Context
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.layers import FeedForward
from deepwire.model.mixers.mixer import Mixer, MixerSection, State
from deepwire.model.stack_spec import Side, StackSpec
from deepwire.ops.dropout import Dropout


class AverageAttentionConfig(MixerSection):
    """Average attention (Zhang et al. 2018)."""

    removed: ClassVar[dict[str, Removed]] = {
        "feed_forward_bias": Removed((None,), "set model.bias.feed_forward")
    }
    type: Literal["average_attention"] = "average_attention"
    sides: ClassVar[frozenset[Side]] = frozenset({"decoder"})
    feed_forward: Literal["plain", "normalised", "none"] = Field(
        "plain",
        description="network on the average: plain (the paper), normalised (a norm before its activation: "
        "Neutron's) or none (what the released code and Neutron do unless told otherwise)",
    )

    @property
    def has_feed_forward(self) -> bool:
        """Whether there is a network on the average."""
        return self.feed_forward != "none"

    def has_norm(self, spec: StackSpec) -> bool:
        """In the network on the average alone."""
        return self.feed_forward == "normalised"

    def build(self, spec: StackSpec) -> Mixer:
        """One average attention of a decoder."""
        if self.feed_forward == "none":
            return AverageAttention(spec, None)
        if self.feed_forward == "plain":
            return AverageAttention(spec, spec.feed_forward_network())
        return AverageAttention(spec, NormalisedFeedForward(spec))


class NormalisedFeedForward(FeedForward):
    """drop(W2 drop(act(LN(W1 x)))), the network that Neutron puts on the average."""

    def __init__(self, spec: StackSpec) -> None:
        super().__init__(
            spec.dim,
            spec.feed_forward,
            activation=spec.activation,
            bias="none",
            dropout=spec.dropout.activation,
        )
        self.norm = spec.norm(spec.feed_forward)
        self.output_dropout = Dropout(spec.dropout.sublayer)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Map `[B, T, d]` to `[B, T, d]`, with the norm of each row's target language."""
        inner = self.dropout(self.activation(self.norm(self.input(x), context)))
        return self.output_dropout(self.output(inner))


class AverageAttention(Mixer):
    """i * x + f * g with g_t = FFN(mean of x_1 ... x_t), [i | f] = sigmoid(W [x | g] + b).

    Zhang, Xiong and Su 2018, "Accelerating Neural Transformer via an Average Attention Network", equations 1
    and 2; equation 3, residual and norm, is the connection's. The state while decoding is the sum of all x so
    far, `[rows, 1, d]`.
    """

    def __init__(self, spec: StackSpec, feed_forward: FeedForward | None) -> None:
        super().__init__()
        self.dim = spec.dim
        self.feed_forward = feed_forward
        self.gates = nn.Linear(2 * spec.dim, 2 * spec.dim)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Mix `[B, T, d]`; see the base class."""
        return self.combine(x, running_mean(x), context)

    def init_state(self, rows: int, like: Tensor) -> State:
        """The empty sum."""
        return (empty_sum(rows, self.dim, like),)

    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        """Mix `[rows, T, d]` with the means of all positions up to each."""
        average, total = following_mean(x, state[0], context.positions)
        return self.combine(x, average, context), (total,)

    def combine(self, x: Tensor, average: Tensor, context: Context) -> Tensor:
        """Gate the input and its averages, both `[B, T, d]`; the averages pass the network first."""
        seen = average if self.feed_forward is None else self.feed_forward(average, context)
        gates: Tensor = self.gates(torch.cat((x, seen), -1)).sigmoid()
        input_gate, average_gate = gates.chunk(2, -1)
        return input_gate * x + average_gate * seen


def running_mean(x: Tensor) -> Tensor:
    """Mean of each position and all before it: `[B, T, d]` to `[B, T, d]`, summed in float32 at least."""
    wide = _wide(x)
    count = torch.arange(1, x.size(1) + 1, device=x.device, dtype=wide)
    return (x.cumsum(1, dtype=wide) / count.unsqueeze(-1)).to(x.dtype)


def following_mean(x: Tensor, total: Tensor, index: CacheIndex) -> tuple[Tensor, Tensor]:
    """Means up to each of the next positions `[rows, T, d]`, and the sum behind them, from `total` on."""
    if x.size(1) == 1:
        total = total + x
        return (total / index.count).to(x.dtype), total
    totals = total + x.cumsum(1, dtype=total.dtype)
    counts = index.count + torch.arange(x.size(1), device=x.device).unsqueeze(-1)
    return (totals / counts).to(x.dtype), totals[:, -1:]


def empty_sum(rows: int, dim: int, like: Tensor) -> Tensor:
    """Zeros `[rows, 1, d]` of the type in which `running_mean` sums, so that steps add up to the same."""
    return like.new_zeros(rows, 1, dim, dtype=_wide(like))


def _wide(x: Tensor) -> torch.dtype:
    return torch.promote_types(x.dtype, torch.float32)
