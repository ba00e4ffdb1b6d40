"""Luna: a short learned sequence packs the text, and positions attend to what it packed.

Ma et al. 2021 (Luna: Linear Unified Nested Attention). The sequence P travels through the layers beside the
stream: encoder layers write what they packed into it, and the decoder goes on with the encoder's.
"""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.config.counts import MAX_SIZE
from deepwire.config.section import UnusedSettings
from deepwire.model.cross_attention import CrossAttention
from deepwire.model.embedding import SinusoidalConfig, Sinusoids
from deepwire.model.layers import NoNorm
from deepwire.model.mixers.companion import Carried, Companion
from deepwire.model.mixers.luna_attention import (
    LunaCausalAttention,
    LunaCrossAttention,
    LunaSelfAttention,
)
from deepwire.model.mixers.mixer import MixerSection, TokenMixer
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.attention import finite_bias
from deepwire.ops.dropout import Dropout


class LunaConfig(MixerSection):
    """Linear unified nested attention; a decoder with it has Luna in the place of cross-attention too."""

    type: Literal["luna"] = "luna"
    brings_cross_attention: ClassVar[bool] = True
    has_companion: ClassVar[bool] = True
    has_other_keys: ClassVar[bool] = True
    length: int = Field(
        32,
        ge=1,
        le=MAX_SIZE,
        description="rows of the learned sequence P; a decoder goes on with that of the encoder's luna",
    )
    tie: bool = Field(
        True, description="one projection for keys and values; false: two (the paper's untied form)"
    )
    pack_heads: int | None = Field(
        None,
        ge=1,
        le=MAX_SIZE,
        description="heads of the attention from P to the text; those of the model without it",
    )

    def continues(self, spec: StackSpec) -> bool:
        """Whether this is a decoder that goes on with the encoder's P."""
        return spec.side == "decoder" and isinstance(spec.other_mixer, LunaConfig)

    def check(self, spec: StackSpec) -> None:
        """Heads that divide the width, and one width for a P that both stacks have."""
        if spec.dim % (self.pack_heads or spec.heads):
            raise ValueError(
                f"{spec.side}.mixer: {self.pack_heads} pack_heads do not divide the width {spec.dim}"
            )
        if self.continues(spec) and spec.memory_width != spec.dim:
            raise ValueError(
                "decoder.mixer: luna goes on with the sequence of the encoder's luna, so both have one "
                f"width, not {spec.dim} and {spec.memory_width}"
            )

    def unused_settings_in(self, spec: StackSpec) -> UnusedSettings:
        """The length of a sequence that comes from the encoder."""
        if self.continues(spec):
            yield "length", "the decoder goes on with the sequence of the encoder"

    def has_norm(self, spec: StackSpec) -> bool:
        """Whether P has norms."""
        return spec.norm_style != "none"

    def companion(self, spec: StackSpec) -> Companion:
        """P of a whole stack."""
        return LunaSequence(self, spec)

    def cross_attention(self, spec: StackSpec) -> CrossAttention:
        """Luna attention to the encoder."""
        return LunaCrossAttention(spec, pack_heads=self.pack_heads, tied=self.tie)

    def build(self, spec: StackSpec) -> TokenMixer:
        """One Luna self-attention, causal in a decoder."""
        if not spec.causal:
            return LunaSelfAttention(spec, pack_heads=self.pack_heads, tied=self.tie)
        other = spec.other_mixer
        length = other.length if isinstance(other, LunaConfig) else self.length
        return LunaCausalAttention(spec, length=length, tied=self.tie)


class LunaSequence(Companion):
    """P, `[B, l, d]`, with a bias `[B, 1, 1, l]` that hides the rows above the length of the sentence.

    It begins as sqrt(d) E + sinusoids with learned E. Like the stream, it becomes LN(P + drop(Y)) around the
    layers of a connection with norms on outputs, and P + drop(Y) with packing by LN(P) where norms are on
    inputs; in a decoder of the latter kind, causal attention reads P itself, as in the authors' code. Norms
    whose result nobody reads are left out.
    """

    def __init__(self, config: LunaConfig, spec: StackSpec) -> None:
        super().__init__()
        dim, layers = spec.dim, spec.layers
        is_read = spec.side == "encoder" and isinstance(spec.other_mixer, LunaConfig)
        writes = layers if is_read else layers - 1

        def norms(style: str, count: int) -> nn.ModuleList:
            return nn.ModuleList(
                spec.norm() if spec.norm_style == style and layer < count else NoNorm()
                for layer in range(layers)
            )

        self.input_norms, self.output_norms = norms("input", layers), norms("output", writes)
        self.final_norm = spec.norm() if spec.norm_style == "input" and is_read else NoNorm()
        self.dropout = Dropout(spec.dropout.sublayer)
        self.embedding_dropout = Dropout(spec.dropout.embedding)
        self.positions = Sinusoids(SinusoidalConfig(layout="halves"), dim)
        self.table: nn.Parameter | None = None
        if not config.continues(spec):
            self.table = nn.Parameter(torch.empty(config.length, dim))
            nn.init.normal_(self.table, std=dim**-0.5)

    def start(self, padding: Tensor, received: Carried) -> Carried:
        """The encoder's P as it is, or E for each sentence."""
        if self.table is None:
            return received
        length, dim = self.table.shape
        p = self.table * dim**0.5
        positions = self.positions(0, length, p)
        if positions is not None:
            p = p + positions
        words = (padding == 0).sum(-1, keepdim=True)
        hidden = torch.arange(length, device=p.device) >= words
        bias = torch.zeros_like(hidden, dtype=p.dtype).masked_fill(hidden, float("-inf"))
        return self.embedding_dropout(p.expand(padding.size(0), -1, -1)), finite_bias(bias, p.dtype)

    def read(self, carried: Carried, layer: int, languages: Tensor | None = None) -> Carried:
        """P for the packing attention, normalised where norms are on inputs."""
        p, bias = carried
        return self.input_norms[layer](p, languages), bias

    def write(self, carried: Carried, layer: int, moved: Tensor, languages: Tensor | None = None) -> Carried:
        """Add what was packed, and normalise where norms are on outputs."""
        p, bias = carried
        return self.output_norms[layer](p + self.dropout(moved), languages), bias

    def result(self, carried: Carried, languages: Tensor | None = None) -> Carried:
        """P with the final norm, where there is one."""
        p, bias = carried
        return self.final_norm(p, languages), bias
