"""The context of a pass: target languages, padding, memory of the encoder and cache position."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple, Self

import torch
from torch import Tensor

from deepwire.model.kv_cache import CacheIndex
from deepwire.ops.attention import Spans, attention, attention_weights, finite_bias


class Memory(NamedTuple):
    """Keys and values of one decoder layer, made once per sentence; never copied per beam.

    Shapes: key and value `[N, K, S, h]` with K heads, bias `[N, 1, 1, S]` (0 at words, the lowest number at
    padding). The spans say the same to the kernel that takes them.
    """

    key: Tensor
    value: Tensor
    bias: Tensor
    spans: Spans | None = None

    @property
    def leaves(self) -> tuple[Tensor, Tensor, Tensor]:
        """Key, value and bias, whose first axis are the sentences."""
        return self.key, self.value, self.bias

    def changed(self, change: Callable[[Tensor], Tensor]) -> Memory:
        """A memory of other sentences or rows: `change` of key, value and bias, without spans."""
        return Memory(change(self.key), change(self.value), change(self.bias))

    def read(self, query: Tensor, dropout: float = 0.0) -> Tensor:
        """Attend from queries `[N, H, T, h]`; the result is `[N, H, T, h]`, with dropout on the weights."""
        return attention(
            query,
            self.key,
            self.value,
            bias=self.bias,
            causal=False,
            dropout=dropout,
            finite=True,
            spans=self.spans,
        )

    def weights(self, query: Tensor) -> Tensor:
        """The weight that each head gives to each source position, `[N, H, T, S]`."""
        return attention_weights(query, self.key, bias=self.bias, causal=False, finite=True)


class Context:
    """Everything that parts of a stack may look at in one pass; models make it, and nobody changes it.

    Attributes:
        languages: Target languages of the rows, `[rows]` int64, or `[1]` for all rows; None where nothing
            depends on them.
        padding: In an encoder `[B, 1, 1, S]`, 0 at words and -inf at padding. None in a decoder, whose causal
            order keeps padding from being seen.
        memory: In a decoder, what each layer reads of the encoder; first axis: sentences.
        spans: In an encoder on a GPU the same as `padding`, for all that attends to `[B, S]`; else None.
        index: In decoding, the position and the cache slots of the rows; None: whole sequences.
    """

    # No dataclass or tuple: torch's sharding looks into those for tensors that learn, and what a sub-layer
    # does not read would get gradients of 0 where there are none.
    def __init__(
        self,
        languages: Tensor | None = None,
        padding: Tensor | None = None,
        memory: tuple[Memory, ...] = (),
        index: CacheIndex | None = None,
        spans: Spans | None = None,
    ) -> None:
        self.languages, self.padding, self.memory, self.index = languages, padding, memory, index
        self.spans = spans

    def replace(self, **changes: Any) -> Self:
        """The same with some attributes exchanged."""
        return type(self)(**(self.__dict__ | changes))

    @property
    def positions(self) -> CacheIndex:
        """The `index` of a pass that has one."""
        assert self.index is not None
        return self.index

    def memory_bias(self, dtype: torch.dtype) -> Tensor:
        """The bias of a `Memory`, made of the padding of an encoder."""
        assert self.padding is not None
        return finite_bias(self.padding, dtype)
