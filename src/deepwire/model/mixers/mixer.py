"""The contract of a token mixer."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar

import torch
from torch import Tensor, nn

from deepwire.model.context import Context, Memory
from deepwire.model.cross_attention import CrossAttention
from deepwire.model.stack_spec import SocketSection, StackSpec, Sublayer
from deepwire.plugins import Kind

State = tuple[Tensor, ...]
SideState = tuple[Tensor, ...]
"""Tensors that travel from layer to layer beside the stream, within one pass or step; `()` for none."""


class Mixer(nn.Module, ABC):
    """How a position sees the others; bare, without residual and norm.

    `forward` equals `step` position by position. The state is a tuple of tensors whose first axis is the row,
    so that selecting rows (beam reorder, sentences that leave) is one indexing of every leaf; or a
    `KeyValueCache` where something of every position is kept, which hypotheses of a sentence share.
    """

    @abstractmethod
    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Mix whole sequences, padded on the right: `[B, T, d]` to `[B, T, d]`."""

    @abstractmethod
    def init_state(self, rows: int, like: Tensor) -> State:
        """The state before the first position; type and device as `like`."""

    @abstractmethod
    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        """Mix the next positions, `[rows, T, d]`; consumes the state, returns the next.

        T is 1, or in a prompt, which is read before anything else, its length.
        """

    def depth_weights(self) -> Tensor | None:
        """The weights `[l]` of layers 1 to its own in what it reads, for analyses; None as a rule."""
        return None


class EncoderMixer(Mixer):
    """A mixer that sees what comes after a position, so that it cannot step."""

    def init_state(self, rows: int, like: Tensor) -> State:
        """None: it reads whole sentences."""
        raise NotImplementedError(f"{type(self).__name__} reads whole sentences, not step by step")

    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        """None: it reads whole sentences."""
        raise NotImplementedError(f"{type(self).__name__} reads whole sentences, not step by step")


class SideMixer(Mixer):
    """A mixer that also reads what travels beside the stream, within one pass or step (`SideStack`).

    A connection may evaluate a layer several times: what a layer leaves takes the place of what it left
    before.
    """

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """`forward_beside` of the lowest layer."""
        return self.forward_beside(x, (), context)[0]

    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        """`step_beside` of the lowest layer."""
        return self.step_beside(x, state, (), context)[:2]

    @abstractmethod
    def forward_beside(self, x: Tensor, side: SideState, context: Context) -> tuple[Tensor, SideState]:
        """`forward`, and what goes on to the layer above."""

    @abstractmethod
    def step_beside(
        self, x: Tensor, state: State, side: SideState, context: Context
    ) -> tuple[Tensor, State, SideState]:
        """`step`, and what goes on to the layer above."""


class SourceMixer(Mixer):
    """A mixer that takes the place of cross-attention too, and reads `context.memory[self.layer]`."""

    layer: int

    @abstractmethod
    def project(self, encoded: Tensor, context: Context) -> Memory:
        """Make the memory of encoder output `[N, S, d]`, as `CrossAttention.project` does."""

    def source_weights(self, x: Tensor, memory: Memory) -> Tensor | None:
        """The weight that each head gives to each source position, `[N, H, T, S]`, for x `[N, T, d]`.

        None where it reads the source in another way.
        """
        return None


def one_by_one(mixer: Mixer, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
    """`Mixer.step` of several positions `[rows, T, d]`, one after the other."""
    outputs, index = [], context.positions
    for place in range(x.size(1)):
        here = context.replace(index=index.at(index.position + place))
        output, state = mixer.step(x[:, place : place + 1], state, here)
        outputs.append(output)
    return torch.cat(outputs, 1), state


def step_prompts(mixer: Mixer, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
    """`Mixer.step` of prompts of different lengths that end together, for mixers without key/value cache.

    A row passes by the positions before its own first one (`CacheIndex.skipped`), and its state stays as it
    was; what is given there does not matter.
    """
    index, begin, outputs = context.positions, state, []
    for position in range(index.passing):
        here = context.replace(index=index.at(position))
        output, new = mixer.step(x[:, position : position + 1], state, here)
        outputs.append(output)
        if index.skipped is not None:
            begun = position >= index.skipped
            state = tuple(
                torch.where(begun.view(-1, *(1,) * (after.dim() - 1)), after, before.to(after.dtype))
                for after, before in zip(new, begin, strict=True)
            )
    if index.passing < x.size(1):
        here = context.replace(index=index.at(index.passing))
        output, state = mixer.step(x[:, index.passing :], state, here)
        outputs.append(output)
    return torch.cat(outputs, 1), state


class MixerSection(SocketSection):
    """Base of a mixer's settings."""

    kind: ClassVar[Kind] = "mixer"
    # Sub-layers whose place it takes: {"cross"} where it attends to the encoder too.
    replaces: ClassVar[frozenset[Sublayer]] = frozenset()
    # Whether it brings along the cross-attention of its layer (`cross_attention`).
    brings_cross_attention: ClassVar[bool] = False
    # Whether a sequence travels beside the stream of a stack with it (Luna).
    has_companion: ClassVar[bool] = False
    # Whether mixers read what those of the layers below left (`SideMixer`).
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

    def cross_attention(self, spec: StackSpec) -> CrossAttention | None:
        """The cross-attention of one decoder layer, where it brings one along."""
        return None

    @abstractmethod
    def build(self, spec: StackSpec) -> Mixer:
        """One mixer for one layer of the stack."""
