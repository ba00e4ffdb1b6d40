"""Depth-wise LSTM: an LSTM over layers takes the place of residual connections, layer norm and feed-forward.

Xu et al. 2024 (Rewiring the Transformer with Depth-Wise LSTMs), sections 2.1 to 2.3, and its 2020 preprint.
One step of the LSTM is one layer; the cell is carried up through the layers of one position.
"""

from __future__ import annotations

import math
from abc import abstractmethod
from collections.abc import Mapping
from functools import partial
from typing import ClassVar, Literal, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from deepwire.config.counts import MAX_SIZE
from deepwire.config.section import Removed
from deepwire.model.connections.connection import Connection, ConnectionSection, DepthState, Droppable
from deepwire.model.context import Context
from deepwire.model.introspection import GateProbe, Place
from deepwire.model.layers import ACTIVATIONS, GroupedLayerNorm, Linear, layer_norm
from deepwire.model.stack_spec import StackSpec, Sublayer
from deepwire.ops.dropout import Dropout
from deepwire.ops.lstm_unit import UnitOptions, lstm_unit, pays

Merge = Literal["add", "concat", "two"]
FirstNorm = Literal["second_attention", "second_layer"]
HiddenKind = Literal["one_layer", "glu", "gelu"]
Scope = Literal["stack", "model"]

_GATES = {
    "input": "the unit's hidden state enters the cell",
    "forget": "the cell of the unit below is kept",
    "output": "the cell leaves the unit",
}


class DepthRecurrent(Connection):
    """Gathers the attention outputs of a layer, merges them, and runs one unit; or a unit for each output.

    The state is (stream, cell...) between units, and (stream, cell..., gathered outputs...) within a layer.

    Attributes:
        carried: Tensors of the state between units.
        units_per_layer: One, or with the merge `two` one for each attention.
        input_width: Width of what a unit reads: the stream and the merged outputs.
    """

    carried: ClassVar[int] = 1

    def __init__(self, config: DepthRecurrentSection, spec: StackSpec) -> None:
        super().__init__(config.calls(spec))
        self.per_layer = len(spec.sublayers)
        self.merge = config.merge if self.per_layer > 1 else "add"
        self.units_per_layer = self.per_layer if self.merge == "two" else 1
        self.input_width = spec.dim * (1 + (self.per_layer if self.merge == "concat" else 1))
        # Attentions without a norm of their query: the first, which reads the embedding, or its whole layer.
        self.without_norm = self.per_layer if config.first_norm == "second_layer" else 1
        self.norms = nn.ModuleList(spec.norm() for _ in self.calls[self.without_norm :])
        closed = "decoder" if config.final_norm == "auto" else config.final_norm
        self.final_norm = spec.norm() if closed in ("both", spec.side) else None
        self.dropout = Dropout(spec.dropout.sublayer)

    @abstractmethod
    def unit(self, number: int, state: DepthState, merged: Tensor, context: Context) -> DepthState:
        """Run unit `number`, from 0 at the bottom, on its merged input; the state between units."""

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """The output of the layer below, plus what this layer has attended to so far; normalised above."""
        # 2020 preprint, section 3.3: cross-attention is asked with the self-attention output and its input.
        stream = state[0]
        for gathered in state[self.carried :]:
            stream = stream + gathered
        if index < self.without_norm:
            return stream
        return self.norms[index - self.without_norm](stream, context)

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Gather the output; run the unit when all of its inputs are there."""
        output = self.dropout(output)
        if self.merge == "two":
            return self.unit(index, state, output, context)
        if not self.calls[index].closes:
            return (*state, output)
        inputs = (*state[self.carried :], output)
        merged = sum(inputs[1:], start=inputs[0]) if self.merge == "add" else torch.cat(inputs, -1)
        return self.unit(index // self.per_layer, state[: self.carried], merged, context)


class Gates(nn.Module):
    """Input, forget and output gate from one product: sigma(LN(W c + b)), Eq. 2 to 4.

    `weight` stacks W_i, W_f and W_o: `[3 d, width]`. With a direct path there is no output gate.
    """

    def __init__(self, config: DepthLSTMConfig, spec: StackSpec, width: int) -> None:
        super().__init__()
        joint, parts = config.gate_norm == "joint", 2 if config.direct_path else 3
        self.linear = Linear(width, parts * spec.dim, bias=config.bias, parts=parts)
        self.norm = GroupedLayerNorm(
            parts, spec.dim, eps=spec.norm_eps, joint=joint, languages=spec.languages
        )
        nn.init.constant_(self.norm.bias[..., 1, :], config.first_bias(spec))

    def forward(self, both: Tensor, context: Context) -> tuple[Tensor, ...]:
        """Input, forget and output gate, each `[B, T, d]`, of `[O_{i-1} | x]`, `[B, T, width]`."""
        return self.norm(self.linear(both), context).sigmoid().unbind(-2)

    def weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """The map, and gain and bias of its norm."""
        return self.linear.weight, self.norm.weight, self.norm.bias


class Hidden(nn.Module):
    """The hidden state of one unit.

    one_layer: GELU(LN(W c + b)), Eq. 5, where `inner` is d. glu: W2 GLU(LN(W1 c + b1)) + b2, Eq. 6, where
    `inner` is the width before the GLU and W2 reads half of it. gelu: the same with GELU, W2 reads all of it
    (2020, Eq. 8).
    """

    def __init__(self, config: DepthRecurrentSection, spec: StackSpec, width: int) -> None:
        super().__init__()
        one_layer, inner = config.hidden == "one_layer", config.inner_width(spec)
        self.activation, narrows = ACTIVATIONS["gelu" if one_layer else config.hidden]
        self.input = nn.Linear(width, inner, bias=config.bias)
        self.norm = layer_norm(inner, spec.norm_eps, spec.languages)
        self.activation_dropout = Dropout(spec.dropout.activation)
        self.output = nn.Identity() if one_layer else nn.Linear(inner // narrows, spec.dim, bias=config.bias)
        self.output_dropout = nn.Identity() if one_layer else Dropout(spec.dropout.sublayer)

    def forward(self, both: Tensor, context: Context) -> Tensor:
        """Map `[O_{i-1} | x]`, `[B, T, width]`, to `[B, T, d]`."""
        active = self.activation_dropout(self.activation(self.norm(self.input(both), context)))
        return self.output_dropout(self.output(active))

    def weights(self) -> tuple[Tensor, Tensor, Tensor]:
        """The first map, and gain and bias of its norm."""
        return self.input.weight, *cast("tuple[Tensor, Tensor]", (self.norm.weight, self.norm.bias))

    def second(self) -> Tensor | None:
        """The second map, where there is one."""
        return self.output.weight if isinstance(self.output, nn.Linear) else None

    def options(self, *, joint: bool) -> UnitOptions:
        """Settings of a unit that has this hidden state."""
        dropouts = [
            part.probability if isinstance(part, Dropout) and part.training else 0.0
            for part in (self.activation_dropout, self.output_dropout)
        ]
        return UnitOptions(self.activation, cast("float", self.norm.eps), joint, *dropouts)


class DepthLSTM(DepthRecurrent):
    """O, C <- LSTM(attention output, O, C), layer by layer (2024 Eq. 1 to 8, Fig. 2 and 3).

    Attributes:
        gates: Gate sets, one for each unit that has its own; unit u uses `gates[gate_of[u]]`.
        hiddens: Hidden parts likewise, with `hidden_of`.
    """

    carried = 2

    def __init__(self, config: DepthLSTMConfig, spec: StackSpec) -> None:
        super().__init__(config, spec)
        self.direct = config.direct_path
        # Biases of maps, and norms of each language, are rare.
        self.in_one = not config.bias and not spec.languages
        units = range(spec.layers * self.units_per_layer)
        in_layer = [unit % self.units_per_layer for unit in units]
        self.gate_of = list(units) if config.share == "none" else in_layer
        self.hidden_of = in_layer if config.share == "all" else list(units)

        make = partial(Gates, config, spec, self.input_width)
        self.gates = nn.ModuleList(
            make() if config.gate_scope == "stack" else spec.shared.get("gate_scope: model", unit, make)
            for unit in sorted({*self.gate_of})
        )
        self.hiddens = nn.ModuleList(Hidden(config, spec, self.input_width) for _ in {*self.hidden_of})

    def start(self, x: Tensor, context: Context) -> DepthState:
        """Output and cell of depth 0 are both the embedding (2024, section 2.2)."""
        return (x, x)

    def unit(self, number: int, state: DepthState, merged: Tensor, context: Context) -> DepthState:
        """O_i and C_i of O_{i-1}, C_{i-1} and the attention output."""
        output, cell = state
        gates = cast("Gates", self.gates[self.gate_of[number]])
        hidden_part = cast("Hidden", self.hiddens[self.hidden_of[number]])
        if self.in_one and torch.is_grad_enabled() and not torch.compiler.is_compiling():
            options = hidden_part.options(joint=gates.norm.joint)
            if pays((output, cell), options):
                weights = (gates.weights(), hidden_part.weights(), hidden_part.second())
                return lstm_unit((output, cell), merged, *weights, options)
        both = torch.cat((output, merged), -1)  # Eq. 1
        input_gate, forget_gate, *output_gate = gates(both, context)  # Eq. 2-4
        hidden = hidden_part(both, context)  # Eq. 5 or 6
        cell = cell * forget_gate + hidden * input_gate  # Eq. 7
        if self.direct:
            cell = cell + merged
            return (cell, cell)
        return (cell * output_gate[0], cell)  # Eq. 8

    def gate_probes(self) -> tuple[GateProbe, ...]:
        """Input, forget and output gate of every unit."""
        calls = self.calls[: self.units_per_layer]
        names = dict(list(_GATES.items())[: 2 if self.direct else 3])

        def place(unit: int) -> Place:
            layer, part = divmod(unit, len(calls))
            return Place(unit, f"{layer + 1} {calls[part].kind}" if len(calls) > 1 else str(layer + 1))

        def read(_inputs: tuple[Tensor, ...], output: object) -> Mapping[str, Tensor]:
            return dict(zip(names, cast("tuple[Tensor, ...]", output), strict=True))

        probes = []
        for number, gates in enumerate(self.gates):
            places = tuple(place(unit) for unit, used in enumerate(self.gate_of) if used == number)
            probes.append(GateProbe("depth-wise LSTM", gates, places, read, names, keeps="forget"))
        return tuple(probes)


class DepthRNN(DepthRecurrent):
    """O <- hidden([O | attention output]): no gates, no cell (2024, section 3.3 and Table 2)."""

    def __init__(self, config: DepthRNNConfig, spec: StackSpec) -> None:
        super().__init__(config, spec)
        self.hiddens = nn.ModuleList(Hidden(config, spec, self.input_width) for _ in range(spec.layers))

    def unit(self, number: int, state: DepthState, merged: Tensor, context: Context) -> DepthState:
        """O_i of O_{i-1} and the attention output."""
        hidden: Tensor = self.hiddens[number](torch.cat((state[0], merged), -1), context)
        return (hidden,)


class DepthRecurrentSection(ConnectionSection):
    """Settings that the depth-wise LSTM and the depth-wise RNN share."""

    # A layer: output and cell are carried past it as they are.
    drops: ClassVar[Droppable] = "layers"
    replaces: ClassVar[frozenset[Sublayer]] = frozenset({"inner_feed_forward", "feed_forward"})

    hidden: HiddenKind = Field(
        "glu", description="hidden state: one_layer (2024 Eq. 5), glu (2024 Eq. 6), gelu (2020 Eq. 8)"
    )
    hidden_size: int | None = Field(
        None,
        ge=2,
        le=MAX_SIZE,
        description="width before the activation of a two-layer hidden; feed_forward without it",
    )
    merge: Merge = Field(
        "add",
        description="decoder: add or concat the two attention outputs, or two units a layer (2024 Fig. 3)",
    )
    bias: bool = Field(
        False,
        description="biases of the equations; the published parameter counts have none in front of a norm "
        "and none after the second layer",
    )
    final_norm: Literal["auto", "none", "both", "encoder", "decoder"] = Field(
        "both",
        description="which stacks have a layer norm of their output; auto, the default of earlier versions: "
        "the decoder. The published counts fix only the number of norms of both stacks",
    )
    first_norm: FirstNorm = Field(
        "second_attention",
        description="the lowest attention that reads a normalised vector: the second of the stack, or the "
        "first of the second layer",
    )

    def check(self, spec: StackSpec) -> None:
        """A width that a GLU can halve."""
        self.inner_width(spec)

    def inner_width(self, spec: StackSpec) -> int:
        """Width of a hidden part before its activation; `ValueError` where a GLU cannot halve it."""
        if self.hidden == "one_layer":
            return spec.dim
        inner = self.hidden_size or spec.feed_forward
        if self.hidden == "glu" and inner % 2:
            where = "feed_forward" if self.hidden_size is None else "connection.hidden_size"
            raise ValueError(f"{spec.side}: {where} must be even with GLU, not {inner}")
        return inner


class DepthLSTMConfig(DepthRecurrentSection):
    """Depth-wise LSTM connections."""

    removed: ClassVar[dict[str, Removed]] = {
        "hidden_scope": Removed(("stack",), "a shared hidden part is that of its stack")
    }
    type: Literal["depth_lstm"] = "depth_lstm"
    share: Literal["none", "gates", "all"] = Field(
        "gates", description="what the layers of a stack share: nothing, the gates, or gates and hidden"
    )
    gate_scope: Scope = Field(
        "stack", description="shared gates: one set per stack, or one for encoder and decoder (model)"
    )
    gate_norm: Literal["separate", "joint"] = Field(
        "separate",
        description="statistics of the gates' norm: each its own (Eq. 2-4), or joint (Neutron's cells)",
    )
    forget_bias: float | Literal["auto"] = Field(
        "auto",
        description="what the forget gates' bias begins with: 0 as published, so that a cell halves at every "
        "layer at first; auto: what leaves half of the embedding in the cell at the top, however deep the "
        "stack is (the encoder where both share their gates)",
    )

    direct_path: bool = Field(
        False,
        description="ours: what attention gives is also added to the cell as it is, and the cell leaves the "
        "unit as it is, without an output gate",
    )

    @model_validator(mode="after")
    def _scopes_fit(self) -> DepthLSTMConfig:
        if self.merge == "concat" and self.direct_path:
            raise ValueError(
                "direct_path adds the merged attention outputs to the cell: take merge: add or two"
            )
        if self.gate_scope == "model" and self.share == "none":
            raise ValueError("gate_scope: model needs share: gates or all")
        if self.merge == "concat" and self.gate_scope == "model":
            raise ValueError(
                "merge: concat makes the decoder's units wider than the encoder's, so they cannot be "
                "shared over both stacks (scope: stack)"
            )
        return self

    def check(self, spec: StackSpec) -> None:
        """One width, and the same settings, for what both stacks share."""
        if self.gate_scope == "model" and spec.memory_width != spec.dim:
            raise ValueError(
                "decoder.connection: what both stacks share (gate_scope: model) needs one width, not "
                f"{spec.memory_width} and {spec.dim}"
            )
        if self.gate_scope == "model":
            settings = self.model_dump(include={"gate_norm", "bias", "forget_bias", "direct_path"})
            spec.shared.agree("gate_scope: model", settings)
        self.inner_width(spec)

    def first_bias(self, spec: StackSpec) -> float:
        """The initial bias of the forget gates of such a stack.

        With it, `auto` lets the gates of n units begin at f = 0.5^(1/n), since a cell keeps f^n of what it
        began with; this is the thought of Tallec and Ollivier 2018 (section 2) with layers in place of time.
        """
        if self.forget_bias != "auto":
            return self.forget_bias
        units = spec.layers * (len(spec.sublayers) if self.merge == "two" else 1)
        gate: float = 0.5 ** (1 / units)
        return math.log(gate / (1 - gate))

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return DepthLSTM(self, spec)


class DepthRNNConfig(DepthRecurrentSection):
    """Depth-wise RNN connections."""

    type: Literal["depth_rnn"] = "depth_rnn"
    merge: Literal["add", "concat"] = Field(
        "add", description="decoder: add or concat the two attention outputs"
    )

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return DepthRNN(self, spec)
