"""Contextual collaboration: a recurrent summary of the encoder's blocks reaches every layer on both sides.

Wei et al. 2020 (Multiscale Collaborative Deep Models for Neural Machine Translation), where decoder layer k
reads block k of the encoder (fusion `blocks`). Each attention has a partner that looks at the summary, and a
gate decides between the two.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import ClassVar, Literal, cast

import torch
from torch import Tensor, nn

from deepwire.model.connections.connection import Connection, ConnectionSection, DepthState
from deepwire.model.connections.residual import PreNorm, PreNormConfig
from deepwire.model.context import Context, Memory
from deepwire.model.cross_attention import CrossAttention
from deepwire.model.fusions.blocks import block_size
from deepwire.model.introspection import GateProbe, Place
from deepwire.model.layers import Linear
from deepwire.model.stack_spec import StackSpec


class CollaborationConfig(ConnectionSection):
    """Pre-norm with a gated look at the summary of the encoder's blocks; for both stacks together."""

    brings_cross_attention: ClassVar[bool] = True

    type: Literal["collaboration"] = "collaboration"

    def check(self, spec: StackSpec) -> None:
        """Blocks of equal size, a cross-attention to gate, and another stack that collaborates."""
        if spec.side == "encoder":
            block_size(spec)
        elif "cross" not in spec.sublayers:
            raise ValueError(
                "connection: collaboration gates the cross-attention, and the mixer leaves the decoder none"
            )
        other = spec.other_connection
        if not isinstance(other, CollaborationConfig):
            types = {spec.side: self.type, spec.other_side: other.type}
            wanted = spec.dim if spec.side == "encoder" else 2 * spec.memory_width
            raise ValueError(
                f"encoder.connection {types['encoder']} gives vectors of width {spec.memory_width}, "
                f"and decoder.connection {types['decoder']} reads width {wanted}"
            )

    def result_width(self, spec: StackSpec) -> int:
        """Width of an encoder's result: stream and summary."""
        return (2 if spec.side == "encoder" else 1) * spec.dim

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        if spec.side == "encoder":
            return EncoderCollaboration(spec)
        return PreNorm(PreNormConfig(), spec)  # whose cross-attention reads block and summary

    def cross_attention(self, spec: StackSpec) -> CrossAttention:
        """Attention to block and summary."""
        return GatedCrossAttention(spec)


class Gate(nn.Module):
    """g * s + (1 - g) * a with g = sigma(W1 s + b + W2 a), feature by feature."""

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.own = nn.Linear(dim, dim)
        self.context = nn.Linear(dim, dim, bias=False)

    def forward(self, output: Tensor, partner: Tensor) -> Tensor:
        """Mix a sub-layer's own output s with that of its partner a, both `[B, T, d]`."""
        gate = self.value(output, partner)
        return gate * output + (1 - gate) * partner

    def value(self, output: Tensor, partner: Tensor) -> Tensor:
        """The gate g, `[B, T, d]`."""
        return (self.own(output) + self.context(partner)).sigmoid()

    def probe(self, family: str, place: Place, meaning: str) -> GateProbe:
        """Where g can be seen, for analyses."""

        def read(inputs: tuple[Tensor, ...], _output: object) -> Mapping[str, Tensor]:
            return {"gate": self.value(*inputs)}

        return GateProbe(family, self, (place,), read, {"gate": meaning})


class DepthGRU(nn.Module):
    """One step of a gated recurrent unit over depth, the same for every position (Cho et al. 2014).

    h' = (1 - z) * tanh(W_n x + b_n + r * (U_n h + c_n)) + z * h, with the gates r and z each
    sigma(W x + b + U h + c). The rows of both maps are those of r, z and n.
    """

    def __init__(self, dim: int) -> None:
        super().__init__()
        self.input = Linear(dim, 3 * dim, bias=True, parts=3)
        self.hidden = Linear(dim, 3 * dim, bias=True, parts=3)

    def forward(self, x: Tensor, hidden: Tensor) -> Tensor:
        """The next state of input and state, all `[B, T, d]`."""
        of_input, of_hidden = self.input(x).chunk(3, -1), self.hidden(hidden).chunk(3, -1)
        reset = (of_input[0] + of_hidden[0]).sigmoid()
        keep = (of_input[1] + of_hidden[1]).sigmoid()
        new = torch.tanh(of_input[2] + reset * of_hidden[2])
        return new + keep * (hidden - new)


class EncoderCollaboration(PreNorm):
    """Encoder layers read the summary h of the blocks below through an attention beside their mixer.

    With h_0 the embedding and h_k = GRU(output of block k, h_{k-1}), the layers of block k + 1 compute
    n = LN(x), s = mixer(n), a = attention(n, LN'(LN_k(h_k))), x <- x + drop(gate(s, a)),
    x <- x + drop(FFN(LN(x))). There are as many blocks as decoder layers. No norm closes the stack.

    The state is (stream, h, LN_k(h_k)), the result stream and h side by side, `[B, S, 2 d]`.
    """

    def __init__(self, spec: StackSpec) -> None:
        super().__init__(PreNormConfig(final_norm=False), spec)
        self.block = block_size(spec)
        layers = range(spec.layers)
        self.summary = DepthGRU(spec.dim)
        self.summary_norms = nn.ModuleList(spec.norm() for _ in layers[:: self.block])
        self.context_norms = nn.ModuleList(spec.norm() for _ in layers)
        cross_spec = replace(spec, memory_width=spec.dim)  # they read the summary
        self.contexts = nn.ModuleList(CrossAttention(cross_spec) for _ in layers)
        self.gates = nn.ModuleList(Gate(spec.dim) for _ in layers)

    def start(self, x: Tensor, context: Context) -> DepthState:
        """Stream and summary begin with the embedding."""
        return (x, x, self.summary_norms[0](x, context))

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Add the output, the mixer's after its gate; a block that is complete moves the summary on."""
        x, hidden, summary = state
        call = self.calls[index]
        if call.kind == "mixer":
            output = self._gated(call.layer, read, output, summary, context)
        x = x + self.dropout(output)
        if call.closes and (call.layer + 1) % self.block == 0:
            hidden = self.summary(x, hidden)
            following = (call.layer + 1) // self.block
            if following < len(self.summary_norms):
                summary = self.summary_norms[following](hidden, context)
        return (x, hidden, summary)

    def result(self, state: DepthState, context: Context) -> Tensor:
        """Stream and summary side by side, `[B, S, 2 d]`."""
        return torch.cat(state[:2], -1)

    def gate_probes(self) -> tuple[GateProbe, ...]:
        """The gates between mixers and their look at the summary."""
        return tuple(
            cast("Gate", gate).probe(
                "gate of the summary", Place(layer, str(layer + 1)), "the mixer alone is let through"
            )
            for layer, gate in enumerate(self.gates)
        )

    def _gated(self, layer: int, read: Tensor, output: Tensor, summary: Tensor, context: Context) -> Tensor:
        attention = cast("CrossAttention", self.contexts[layer])  # a ModuleList forgets the type
        memory = attention.project(self.context_norms[layer](summary, context), context)
        return self.gates[layer](output, attention(read, memory))


class GatedCrossAttention(CrossAttention):
    """gate(attention(n, LN''(block)), attention(n, LN'''(summary))), each with its own projections.

    The memory holds the heads of both attentions, those to the block first: keys and values `[N, 2 H, S, h]`.
    """

    def __init__(self, spec: StackSpec) -> None:
        spec = replace(spec, memory_width=spec.memory_width // 2)
        super().__init__(spec)
        self.summary = CrossAttention(spec)
        self.block_norm, self.summary_norm = (spec.norm(spec.memory_width) for _ in range(2))
        self.gate = Gate(spec.dim)

    def project(self, encoded: Tensor, context: Context) -> Memory:
        """Make the memory of block output and summary side by side, `[N, S, 2 d]`."""
        block, summary = encoded.chunk(2, -1)
        both = (
            super().project(self.block_norm(block, context), context),
            self.summary.project(self.summary_norm(summary, context), context),
        )
        key, value = (torch.cat([getattr(each, name) for each in both], 1) for name in ("key", "value"))
        return Memory(key, value, both[0].bias)

    def forward(self, x: Tensor, memory: Memory) -> Tensor:
        """Attend from `[N * W, T, d]` to both memories of N sentences, and mix."""
        key, value = memory.key.chunk(2, 1), memory.value.chunk(2, 1)
        block = super().forward(x, Memory(key[0], value[0], memory.bias))
        summary = self.summary(x, Memory(key[1], value[1], memory.bias))
        return self.gate(block, summary)

    def source_weights(self, x: Tensor, memory: Memory) -> Tensor:
        """Weights of both attentions, that to the block first: `[N, 2 H, T, S]` for x `[N, T, d]`."""
        key, value = memory.key.chunk(2, 1), memory.value.chunk(2, 1)
        block = super().source_weights(x, Memory(key[0], value[0], memory.bias))
        return torch.cat((block, self.summary.source_weights(x, Memory(key[1], value[1], memory.bias))), 1)

    def gate_probes(self, place: Place) -> tuple[GateProbe, ...]:
        """The gate between block and summary."""
        meaning = "the encoder's block alone is let through"
        return (self.gate.probe("gate of block and summary", place, meaning),)
