"""The contract of a token mixer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from deepwire.model.cross_attention import CrossAttention, Memory
from deepwire.model.kv_cache import CacheIndex
from deepwire.model.mixers.companion import Carried, Companion
from deepwire.model.stack_spec import SocketSection, StackSpec, Sublayer
from deepwire.plugins import Kind

State = tuple[Tensor, ...]
Below = tuple[Tensor, ...]
"""What mixers leave for those of the layers above, within one pass or step; `()` for the first."""


class TokenMixer(nn.Module, ABC):
    """How a position sees the others; bare, without residual and norm.

    `parallel(x)[:, t]` equals the t-th `step`. The state is a tuple of tensors whose first axis is the row,
    so that selecting rows (beam reorder, sentences that leave) is one indexing of every leaf; or a
    `KeyValueCache` where something of every position is kept, which hypotheses of a sentence share.

    Attributes:
        reads_below: Whether it reads what the mixers of the layers below left: `parallel_above` and
            `step_above` are then called. Nothing of that is kept over time.
    """

    reads_below: bool = False

    @abstractmethod
    def parallel(
        self,
        x: Tensor,
        padding: Tensor | None,
        memory: Memory | None = None,
        languages: Tensor | None = None,
    ) -> Tensor:
        """Mix a whole sequence: `[B, T, d]` to `[B, T, d]`.

        Args:
            x: The sequence, padded on the right.
            padding: `[B, 1, 1, T]`, 0 at words and -inf at padding; None for a decoder, whose causal order
                keeps padding from being seen.
            memory: What `project` made, for a mixer that takes the place of cross-attention too.
            languages: The target languages of the rows, `[B]` or `[1]`, for the norms of `spec.norm`.
        """

    @abstractmethod
    def init_state(self, rows: int, like: Tensor) -> State:
        """The state before the first position; type and device as `like`."""

    @abstractmethod
    def step(
        self,
        x: Tensor,
        state: State,
        cache_index: CacheIndex,
        memory: Memory | None = None,
        languages: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """Mix position `cache_index.position`, `[rows, 1, d]`; consumes the state, returns the next."""

    def prefill(
        self,
        x: Tensor,
        state: State,
        cache_index: CacheIndex,
        memory: Memory | None = None,
        languages: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """Mix the first T positions at once, `[rows, T, d]`: as T steps would, and the state behind them.

        A row passes by the positions before its own first one (`CacheIndex.skipped`), and its state stays as
        it was; what is given there does not matter. Mixers without a key/value cache need not override it.
        """
        passing, skipped = cache_index.passing, cache_index.skipped
        outputs, begin = list[Tensor](), self.init_state(x.size(0), x) if passing else ()
        for position in range(passing):
            index = cache_index.at(position)
            output, new = self.step(x[:, position : position + 1], state, index, memory, languages)
            outputs.append(output)
            if skipped is not None:
                begun = position >= skipped
                state = tuple(_of_rows(begun, *pair) for pair in zip(new, begin, strict=True))
        if passing < x.size(1):
            index = cache_index.at(passing)
            rest, state = self.continued(x[:, passing:], state, index, memory, languages)
            outputs.append(rest)
        return torch.cat(outputs, 1), state

    def continued(
        self,
        x: Tensor,
        state: State,
        cache_index: CacheIndex,
        memory: Memory | None = None,
        languages: Tensor | None = None,
    ) -> tuple[Tensor, State]:
        """Several steps from a state on, `[rows, T, d]`: one after the other, unless there is a faster form.

        `cache_index` is that of the first of them.
        """
        outputs = []
        for place in range(x.size(1)):
            index = cache_index.at(cache_index.position + place)
            output, state = self.step(x[:, place : place + 1], state, index, memory, languages)
            outputs.append(output)
        return torch.cat(outputs, 1), state

    def parallel_above(
        self,
        x: Tensor,
        padding: Tensor | None,
        below: Below,
        memory: Memory | None = None,
        languages: Tensor | None = None,
        of_keys: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, Below]:
        """`parallel` of a mixer with `reads_below`, or with `takes_ways`: also what the layer above gets.

        A connection may evaluate a layer several times: what a layer leaves takes the place of what it left
        before. `of_keys` is what keys and values are made of, `[B, T, d]` each; None: of `x`.
        """
        raise NotImplementedError(f"{type(self).__name__} reads nothing of the layers below")

    def step_above(
        self,
        x: Tensor,
        state: State,
        cache_index: CacheIndex,
        below: Below,
        memory: Memory | None = None,
        languages: Tensor | None = None,
        of_keys: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, State, Below]:
        """`step` likewise."""
        raise NotImplementedError(f"{type(self).__name__} reads nothing of the layers below")

    def prefill_above(
        self,
        x: Tensor,
        state: State,
        cache_index: CacheIndex,
        below: Below,
        memory: Memory | None = None,
        languages: Tensor | None = None,
        of_keys: tuple[Tensor, Tensor] | None = None,
    ) -> tuple[Tensor, State, Below]:
        """`prefill` likewise."""
        raise NotImplementedError(f"{type(self).__name__} reads nothing of the layers below")

    def depth_weights(self) -> Tensor | None:
        """The weights `[l]` of layers 1 to its own in what it reads, for analyses; None as a rule."""
        return None

    def project(self, encoded: Tensor, bias: Tensor, languages: Tensor | None = None) -> Memory:
        """Make the memory of encoder output `[N, S, d]`, as `CrossAttention.project` does.

        Only mixers whose section says that they take the place of cross-attention have one.
        """
        raise NotImplementedError(f"{type(self).__name__} does not look at the encoder")

    def source_weights(self, x: Tensor, memory: Memory) -> Tensor | None:
        """The weight that each head gives to each source position, `[N, H, T, S]`, for x `[N, T, d]`.

        Only mixers that take the place of cross-attention have them; None where it has none either.
        """
        return None

    def accompany(
        self, x: Tensor, carried: Carried, padding: Tensor | None, languages: Tensor | None = None
    ) -> tuple[Tensor, Tensor]:
        """`parallel` in an encoder with a companion: also what the companion is moved by.

        Only mixers whose section has a `companion` have it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no companion")

    def remember(self, carried: Carried) -> Memory:
        """Make the memory of what a decoder's companion carries into the layer, once per sentence.

        Only mixers whose section has a `companion` have it.
        """
        raise NotImplementedError(f"{type(self).__name__} has no companion")


def _of_rows(begun: Tensor, new: Tensor, begin: Tensor) -> Tensor:
    """`new` for rows that have begun, `[rows]` bool, else `begin`."""
    return torch.where(begun.view(-1, *(1,) * (new.dim() - 1)), new, begin.to(new.dtype))


class MixerSection(SocketSection):
    """Base of a mixer's settings."""

    kind: ClassVar[Kind] = "mixer"
    # Sub-layers whose place it takes: {"cross"} where it attends to the encoder too.
    replaces: ClassVar[frozenset[Sublayer]] = frozenset()
    # Whether it brings along the cross-attention of its layer (`cross_attention`).
    brings_cross_attention: ClassVar[bool] = False
    # Whether something travels beside the stream of a stack with it (`companion`).
    has_companion: ClassVar[bool] = False
    # Whether mixers read what those of the layers below left (`TokenMixer.reads_below`).
    reads_below: ClassVar[bool] = False
    # Whether keys and values may be made of vectors of their own (`AggregationSection.gives_ways`).
    takes_ways: ClassVar[bool] = False
    # Whether it can read vectors wider than the stream (`spec.mixer_width`).
    reads_any_width: ClassVar[bool] = False
    # Whether it puts a norm in front of its last matrix where the model wants one (`spec.inner_norm`).
    has_inner_norm: ClassVar[bool] = False
    # Whether it turns queries and keys by their positions where the model wants it (`spec.rotary`).
    has_rotary: ClassVar[bool] = False
    # Whether its attention has keys of its own kind, without `spec.key_value_heads` and `spec.qk_norm`.
    has_other_keys: ClassVar[bool] = False

    @property
    def has_feed_forward(self) -> bool:
        """Whether a feed-forward network with the model's activation and biases is part of it."""
        return False

    def check_sublayer(self, spec: StackSpec) -> None:
        """Refuse settings of all sub-layers that it has no place for, with a `ValueError`."""
        side = spec.side
        if spec.inner_norm and not self.has_inner_norm:
            raise ValueError(
                f"inner_norm: true needs mixers with a place for it, but {side}.mixer is {self.type}; "
                "self_attention has one"
            )
        if spec.rotary is not None and not self.has_rotary:
            raise ValueError(
                f"{side}.positions: rotary positions turn queries and keys of self_attention, but "
                f"{side}.mixer is {self.type}; set {side}.positions to sinusoidal, learned or none"
            )
        if self.has_other_keys and (spec.qk_norm or spec.key_heads < spec.heads):
            setting = "qk_norm" if spec.qk_norm else "key_value_heads"
            raise ValueError(
                f"{setting}: {side}.mixer {self.type} has keys of another kind; use self_attention, or leave "
                f"{setting} out"
            )

    def companion(self, spec: StackSpec) -> Companion | None:
        """The value beside the stream of a whole stack with such mixers; None as a rule."""
        return None

    def cross_attention(self, spec: StackSpec) -> CrossAttention | None:
        """The cross-attention of one decoder layer, where it brings one along."""
        return None

    @abstractmethod
    def build(self, spec: StackSpec) -> TokenMixer:
        """One mixer for one layer of the stack."""
