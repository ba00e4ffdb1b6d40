"""Depth-wise LSTM: an LSTM over layers takes the place of residual connections, layer norm and feed-forward.

Xu et al. 2024 (Rewiring the Transformer with Depth-Wise LSTMs), sections 2.1 to 2.3, and its 2020 preprint.
One step of the LSTM is one layer; the cell is carried up through the layers of one position.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import ClassVar, Literal, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from deepwire.config.counts import MAX_SIZE
from deepwire.config.section import UnusedSettings
from deepwire.model.connections.connection import Connection, ConnectionSection, DepthState
from deepwire.model.connections.lstm_cell import GateKind, Gates, Hidden, HiddenKind
from deepwire.model.context import StackContext, Sublayer
from deepwire.model.introspection import GateProbe, Place
from deepwire.ops.dropout import Dropout

Merge = Literal["add", "concat", "two"]
Scope = Literal["stack", "model"]


class _DepthSection(ConnectionSection):
    """What the depth-wise LSTM and the depth-wise RNN have in common."""

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
    final_norm: Literal["auto", "none", "both"] = Field(
        "auto",
        description="layer norm of the stack's output; auto: decoder only, as the published counts demand",
    )

    def unused_settings(self) -> UnusedSettings:
        """The width of a hidden part that has one layer."""
        if self.hidden == "one_layer":
            yield "hidden_size", "hidden: one_layer has no width of its own"

    def check(self, context: StackContext) -> None:
        """A width that a GLU can halve."""
        self.inner_width(context)

    def unused_settings_in(self, context: StackContext) -> UnusedSettings:
        """How to merge a single output."""
        if len(context.sublayers) == 1:
            yield "merge", "it joins the two attentions of a decoder layer, and there is only one here"

    def inner_width(self, context: StackContext) -> int:
        """Width of a hidden part before its activation; `ValueError` where a GLU cannot halve it."""
        if self.hidden == "one_layer":
            return context.dim
        inner = self.hidden_size or context.feed_forward
        if self.hidden == "glu" and inner % 2:
            where = "feed_forward" if self.hidden_size is None else "connection.hidden_size"
            raise ValueError(f"{context.side}: {where} must be even with GLU, not {inner}")
        return inner

    def _has_final_norm(self, context: StackContext) -> bool:
        return self.final_norm == "both" or (self.final_norm == "auto" and context.side == "decoder")


class DepthLSTMConfig(_DepthSection):
    """Depth-wise LSTM connections."""

    type: Literal["depth_lstm"] = "depth_lstm"
    share: Literal["none", "gates", "all"] = Field(
        "gates", description="what the layers of a stack share: nothing, the gates, or gates and hidden"
    )
    gate_scope: Scope = Field(
        "stack", description="shared gates: one set per stack, or one for encoder and decoder (model)"
    )
    hidden_scope: Scope = Field("stack", description="the same for a shared hidden part")
    gate_norm: GateKind = Field(
        "separate",
        description="statistics of the gates' norm: each its own (Eq. 2-4), or joint (Neutron's cells)",
    )
    forget_bias: float = Field(
        0.0,
        description="what the forget gates' bias begins with: 0 as published, so that a cell halves at every "
        "layer at first; 2 keeps 0.88 of it, which very deep stacks need to start quickly",
    )

    def unused_settings_in(self, context: StackContext) -> UnusedSettings:
        """How to merge a single output, and what this stack alone would share with the other."""
        yield from super().unused_settings_in(context)
        for scope in ("gate_scope", "hidden_scope"):
            if getattr(context.other_connection, scope, "stack") != "model":
                yield scope, f"both stacks share only where both have {scope}: model"

    @model_validator(mode="after")
    def _scopes_fit(self) -> DepthLSTMConfig:
        if self.gate_scope == "model" and self.share == "none":
            raise ValueError("gate_scope: model needs share: gates or all")
        if self.hidden_scope == "model" and self.share != "all":
            raise ValueError("hidden_scope: model needs share: all")
        if self.merge == "concat" and "model" in (self.gate_scope, self.hidden_scope):
            raise ValueError(
                "merge: concat makes the decoder's units wider than the encoder's, so they cannot be "
                "shared over both stacks (scope: stack)"
            )
        return self

    def check(self, context: StackContext) -> None:
        """One width, and the same settings, for what both stacks share."""
        if "model" in (self.gate_scope, self.hidden_scope) and context.memory_width != context.dim:
            raise ValueError(
                "decoder.connection: what both stacks share (scope: model) needs one width, not "
                f"{context.memory_width} and {context.dim}"
            )
        if self.gate_scope == "model":
            own = self.model_dump(include={"gate_norm", "bias", "forget_bias"})
            context.shared.agree("gate_scope: model", own)
        inner = self.inner_width(context)
        if self.hidden_scope == "model":
            own = {"hidden": self.hidden, "hidden_size": inner, "bias": self.bias}
            context.shared.agree("hidden_scope: model", own)

    def build(self, context: StackContext) -> Connection:
        """The connection of a whole stack."""
        return DepthLSTM(self, context)


class DepthRNNConfig(_DepthSection):
    """Depth-wise RNN connections."""

    type: Literal["depth_rnn"] = "depth_rnn"
    merge: Literal["add", "concat"] = Field(
        "add", description="decoder: add or concat the two attention outputs"
    )

    def build(self, context: StackContext) -> Connection:
        """The connection of a whole stack."""
        return DepthRNN(self, context)


class _DepthRecurrent(Connection):
    """The walk through a layer that both share: gather attention outputs, merge them, run one unit.

    The state is (stream, cell...) between units, and (stream, cell..., gathered outputs...) within a layer.
    """

    carried: ClassVar[int] = 1

    def __init__(self, config: _DepthSection, context: StackContext) -> None:
        super().__init__(config.calls(context))
        self.per_layer = len(context.sublayers)
        self.merge = config.merge if self.per_layer > 1 else "add"
        self.units_per_layer = self.per_layer if self.merge == "two" else 1
        self.input_width = context.dim * (1 + (self.per_layer if self.merge == "concat" else 1))
        # In front of every attention query, but for the first: the embedding is read as it is.
        self.norms = nn.ModuleList(context.norm() for _ in self.calls[1:])
        self.final_norm = context.norm() if config._has_final_norm(context) else None
        self.dropout = Dropout(context.dropout.sublayer)

    @abstractmethod
    def _unit(self, state: DepthState, index: int, merged: Tensor, languages: Tensor | None) -> DepthState:
        """Run the unit of call number `index` on its merged input; returns the state between units."""

    def _unit_number(self, index: int) -> int:
        return index if self.merge == "two" else index // self.per_layer

    def read(self, state: DepthState, index: int, languages: Tensor | None = None) -> Tensor:
        """The normalised output of the layer below, plus what this layer has attended to so far."""
        # 2020 preprint, section 3.3: cross-attention is asked with the self-attention output and its input.
        stream = state[0]
        for gathered in state[self.carried :]:
            stream = stream + gathered
        if index == 0:
            return stream
        read: Tensor = self.norms[index - 1](stream, languages)
        return read

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, languages: Tensor | None = None
    ) -> DepthState:
        """Gather the output; run the unit when all of its inputs are there."""
        output = self.dropout(output)
        if self.merge == "two":
            return self._unit(state, index, output, languages)
        if not self.calls[index].closes:
            return (*state, output)
        inputs = (*state[self.carried :], output)
        merged = sum(inputs[1:], start=inputs[0]) if self.merge == "add" else torch.cat(inputs, -1)
        return self._unit(state[: self.carried], index, merged, languages)

    def normalise(self, x: Tensor, languages: Tensor | None = None) -> Tensor:
        """The final norm, where there is one."""
        return x if self.final_norm is None else self.final_norm(x, languages)

    def modules_of(self, layer: int) -> tuple[nn.Module, ...]:
        """The norms of the layer and those parts of its units that no other layer has."""
        norms = (self.norms[index - 1] for index in self.calls_of(layer) if index)
        first = layer * self.units_per_layer
        return (*norms, *self._parts_of_units(range(first, first + self.units_per_layer)))

    @abstractmethod
    def _parts_of_units(self, units: range) -> tuple[nn.Module, ...]:
        """Modules that belong to these units alone."""


class DepthLSTM(_DepthRecurrent):
    """O, C <- LSTM(attention output, O, C), layer by layer (2024 Eq. 1 to 8, Fig. 2 and 3).

    Attributes:
        gates: Gate sets, one for each unit that has its own; unit u uses `gates[gate_of[u]]`.
        hiddens: Hidden parts likewise, with `hidden_of`.
    """

    carried = 2

    def __init__(self, config: DepthLSTMConfig, context: StackContext) -> None:
        super().__init__(config, context)
        units = context.layers * self.units_per_layer
        roles = [unit % self.units_per_layer for unit in range(units)]
        own = list(range(units))
        self.gate_of = own if config.share == "none" else roles
        self.hidden_of = roles if config.share == "all" else own

        def gates(number: int) -> Gates:
            def make() -> Gates:
                return Gates(
                    self.input_width,
                    context.dim,
                    context.norm_eps,
                    bias=config.bias,
                    joint=config.gate_norm == "joint",
                    forget_bias=config.forget_bias,
                    languages=context.languages,
                )

            if config.gate_scope == "stack":
                return make()
            return context.shared.get("gate_scope: model", number, make)

        def hidden(number: int) -> Hidden:
            def make() -> Hidden:
                return _hidden(config, context, self.input_width)

            if config.hidden_scope == "stack":
                return make()
            return context.shared.get("hidden_scope: model", number, make)

        self.gates = nn.ModuleList(gates(number) for number in sorted(set(self.gate_of)))
        self.hiddens = nn.ModuleList(hidden(number) for number in sorted(set(self.hidden_of)))

    def start(self, x: Tensor, padding: Tensor | None = None, languages: Tensor | None = None) -> DepthState:
        """Output and cell of depth 0 are both the embedding (2024, section 2.2)."""
        return (x, x)

    def _unit(self, state: DepthState, index: int, merged: Tensor, languages: Tensor | None) -> DepthState:
        number = self._unit_number(index)
        both = torch.cat((state[0], merged), -1)  # Eq. 1
        input_gate, forget_gate, output_gate = self.gates[self.gate_of[number]](both, languages)
        hidden = self.hiddens[self.hidden_of[number]](both, languages)
        cell = state[1] * forget_gate + hidden * input_gate  # Eq. 7
        return (cell * output_gate, cell)  # Eq. 8

    def gate_probes(self) -> tuple[GateProbe, ...]:
        """Input, forget and output gate of every unit."""

        def read(_inputs: tuple[Tensor, ...], output: object) -> Mapping[str, Tensor]:
            gates = cast("tuple[Tensor, Tensor, Tensor]", output)
            return dict(zip(_GATE_MEANING, gates, strict=True))

        def place(unit: int) -> Place:
            layer, part = divmod(unit, self.units_per_layer)
            several = self.units_per_layer > 1
            return Place(unit, f"{layer + 1} {self.calls[part].kind}" if several else str(layer + 1))

        return tuple(
            GateProbe(
                "depth-wise LSTM",
                module,
                tuple(place(unit) for unit, used in enumerate(self.gate_of) if used == number),
                read,
                _GATE_MEANING,
                keeps="forget",
            )
            for number, module in enumerate(self.gates)
        )

    def _parts_of_units(self, units: range) -> tuple[nn.Module, ...]:
        hiddens = (
            self.hiddens[self.hidden_of[u]] for u in units if self.hidden_of.count(self.hidden_of[u]) == 1
        )
        gates = (self.gates[self.gate_of[u]] for u in units if self.gate_of.count(self.gate_of[u]) == 1)
        return (*hiddens, *gates)


class DepthRNN(_DepthRecurrent):
    """O <- hidden([O | attention output]): no gates, no cell (2024, section 3.3 and Table 2)."""

    def __init__(self, config: DepthRNNConfig, context: StackContext) -> None:
        super().__init__(config, context)
        self.hiddens = nn.ModuleList(
            _hidden(config, context, self.input_width) for _ in range(context.layers)
        )

    def start(self, x: Tensor, padding: Tensor | None = None, languages: Tensor | None = None) -> DepthState:
        """Begin with the embedding."""
        return (x,)

    def _unit(self, state: DepthState, index: int, merged: Tensor, languages: Tensor | None) -> DepthState:
        both = torch.cat((state[0], merged), -1)
        hidden: Tensor = self.hiddens[self._unit_number(index)](both, languages)
        return (hidden,)

    def _parts_of_units(self, units: range) -> tuple[nn.Module, ...]:
        return tuple(self.hiddens[unit] for unit in units)


_GATE_MEANING = {
    "input": "the unit's hidden state enters the cell",
    "forget": "the cell of the unit below is kept",
    "output": "the cell leaves the unit",
}


def _hidden(config: _DepthSection, context: StackContext, width: int) -> Hidden:
    return Hidden(
        config.hidden,
        width,
        config.inner_width(context),
        context.dim,
        context.norm_eps,
        bias=config.bias,
        dropout=context.dropout,
        languages=context.languages,
    )
