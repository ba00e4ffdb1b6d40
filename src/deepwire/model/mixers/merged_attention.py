"""Merged attention (MAtt): the mean of the past and attention to the encoder in one sub-layer."""

from __future__ import annotations

from typing import ClassVar, Literal

from pydantic import Field
from torch import Tensor

from deepwire.model.context import Context, Memory
from deepwire.model.layers import Linear, Role, split_heads
from deepwire.model.mixers.average_attention import empty_sum, following_mean, running_mean
from deepwire.model.mixers.mixer import Mixer, MixerSection, SourceMixer, State
from deepwire.model.stack_spec import Side, StackSpec, Sublayer


class MergedAttentionConfig(MixerSection):
    """Merged attention (Zhang et al. 2019), in place of a decoder's self-attention and cross-attention."""

    normalises: ClassVar[bool] = False
    type: Literal["merged_attention"] = "merged_attention"
    sides: ClassVar[frozenset[Side]] = frozenset({"decoder"})
    replaces: ClassVar[frozenset[Sublayer]] = frozenset({"cross"})
    has_other_keys: ClassVar[bool] = True
    average_value: Literal["shared", "own"] = Field(
        "shared",
        description="value projection of the average: shared with the attention (the released code), or its "
        "own (five matrices a layer, which the parameter counts of Xu et al. 2024 need)",
    )

    def check(self, spec: StackSpec) -> None:
        """One width for all that a shared projection reads."""
        if self.average_value == "shared" and spec.memory_width != spec.dim:
            raise ValueError(
                "decoder.mixer: merged_attention averages with the value projection that reads the encoder, "
                f"so both have one width, not {spec.dim} and {spec.memory_width}; "
                "set average_value: own"
            )

    def build(self, spec: StackSpec) -> Mixer:
        """One merged attention of a decoder."""
        return MergedAttention(spec, own_value=self.average_value == "own")


class MergedAttention(SourceMixer):
    """(heads(softmax(x Wq (m Wk)^T / sqrt(h)) m Wv) + mean of the past of x Wv) Wo; m is the encoder output.

    Zhang, Titov and Sennrich 2019, "Improving Deep Transformer with Depth-Scaled Initialization and Merged
    Attention": average attention without gates and network, added to the cross-attention before the output
    projection. `own_value` gives the average its own Wv. Dropout is on the attention weights only. The state
    while decoding is the sum of all x Wv so far, `[rows, 1, d]`.
    """

    def __init__(self, spec: StackSpec, *, own_value: bool) -> None:
        super().__init__()
        self.layer, self.heads, self.dim = spec.layer, spec.heads, spec.dim
        self.dropout = spec.dropout.attention
        self.query_scale = spec.scaling.query

        def linear(width: int, role: Role = "cross_attention", *, makes_values: bool = False) -> Linear:
            return Linear(width, spec.dim, bias=spec.attention_bias, role=role, makes_values=makes_values)

        # Apart, not one product: what Glorot's initialisation makes of a matrix depends on its shape.
        self.query, self.key = linear(spec.dim), linear(spec.memory_width)
        self.value = linear(spec.memory_width, makes_values=True)
        self.output = linear(spec.dim, "attention_output")
        self.average_value = linear(spec.dim, makes_values=True) if own_value else None

    def project(self, encoded: Tensor, context: Context) -> Memory:
        """Make the memory of encoder output `[N, S, d]`."""
        key, value = (split_heads(each(encoded), self.heads) for each in (self.key, self.value))
        return Memory(key.contiguous(), value.contiguous(), context.memory_bias(key.dtype))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Mix `[N * W, T, d]`, attending to the memory of N sentences; W rows of one follow each other."""
        return self._join(x, running_mean(self._values(x)), context)

    def init_state(self, rows: int, like: Tensor) -> State:
        """The empty sum."""
        return (empty_sum(rows, self.dim, like),)

    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        """Mix `[rows, T, d]` with the means of all positions up to each, attending to the memory."""
        average, total = following_mean(self._values(x), state[0], context.positions)
        return self._join(x, average, context), (total,)

    def _values(self, x: Tensor) -> Tensor:
        """The values that are averaged, `[B, T, d]`."""
        return (self.value if self.average_value is None else self.average_value)(x)

    def _join(self, x: Tensor, average: Tensor, context: Context) -> Tensor:
        """Attend from x, add the average, and project; both `[N * W, T, d]`."""
        memory = context.memory[self.layer]
        seen = memory.read(self._queries(x, memory.key.size(0)), self.dropout if self.training else 0.0)
        return self.output(seen.transpose(1, 2).reshape(x.shape) + average)

    def source_weights(self, x: Tensor, memory: Memory) -> Tensor:
        """See the base class."""
        return memory.weights(self._queries(x, memory.key.size(0)))

    def _queries(self, x: Tensor, sentences: int) -> Tensor:
        """`[N, H, W * T, h]`: the W rows of a sentence are further queries, as one memory serves all."""
        query = split_heads(self.query(x).reshape(sentences, -1, self.dim), self.heads)
        return query * self.query_scale if self.query_scale != 1 else query
