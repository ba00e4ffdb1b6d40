"""The settings of depth-wise LSTM and depth-wise RNN, and which of them fit together."""

from __future__ import annotations

import math
from typing import ClassVar, Literal

from pydantic import Field, model_validator

from deepwire.config.counts import MAX_SIZE
from deepwire.config.section import UnusedSettings
from deepwire.model.connections.connection import Connection, ConnectionSection, Droppable
from deepwire.model.connections.depth_lstm import DepthLSTM, DepthRNN, Gates, Hidden, HiddenKind
from deepwire.model.connections.depth_recurrent import FirstNorm, Merge
from deepwire.model.stack_spec import StackSpec, Sublayer

Scope = Literal["stack", "model"]


class DepthRecurrentSection(ConnectionSection):
    """Settings that the depth-wise LSTM and the depth-wise RNN share."""

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

    def unused_settings(self) -> UnusedSettings:
        """The width of a hidden part that has one layer."""
        if self.hidden == "one_layer":
            yield "hidden_size", "hidden: one_layer has no width of its own"

    def check(self, spec: StackSpec) -> None:
        """A width that a GLU can halve."""
        self.inner_width(spec)

    def unused_settings_in(self, spec: StackSpec) -> UnusedSettings:
        """How to merge a single output, and which attention of a layer is the second."""
        if len(spec.sublayers) == 1:
            yield "merge", "it joins the two attentions of a decoder layer, and there is only one here"
            yield "first_norm", "the second attention is that of the second layer where a layer has one"

    def inner_width(self, spec: StackSpec) -> int:
        """Width of a hidden part before its activation; `ValueError` where a GLU cannot halve it."""
        if self.hidden == "one_layer":
            return spec.dim
        inner = self.hidden_size or spec.feed_forward
        if self.hidden == "glu" and inner % 2:
            where = "feed_forward" if self.hidden_size is None else "connection.hidden_size"
            raise ValueError(f"{spec.side}: {where} must be even with GLU, not {inner}")
        return inner

    def droppable(self, spec: StackSpec) -> Droppable:
        """A layer: output and cell are carried past it as they are."""
        return "layers"

    def has_final_norm(self, spec: StackSpec) -> bool:
        """Whether a layer norm closes such a stack."""
        having = "decoder" if self.final_norm == "auto" else self.final_norm
        return having in ("both", spec.side)

    def hidden_part(self, spec: StackSpec, width: int) -> Hidden:
        """The hidden part of a unit that reads vectors of this width."""
        return Hidden(
            self.hidden,
            width,
            self.inner_width(spec),
            spec.dim,
            spec.norm_eps,
            bias=self.bias,
            dropout=spec.dropout,
            languages=spec.languages,
        )


class DepthLSTMConfig(DepthRecurrentSection):
    """Depth-wise LSTM connections."""

    type: Literal["depth_lstm"] = "depth_lstm"
    share: Literal["none", "gates", "all"] = Field(
        "gates", description="what the layers of a stack share: nothing, the gates, or gates and hidden"
    )
    gate_scope: Scope = Field(
        "stack", description="shared gates: one set per stack, or one for encoder and decoder (model)"
    )
    hidden_scope: Scope = Field("stack", description="the same for a shared hidden part")
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

    def unused_settings_in(self, spec: StackSpec) -> UnusedSettings:
        """How to merge a single output, and what this stack alone would share with the other."""
        yield from super().unused_settings_in(spec)
        for scope in ("gate_scope", "hidden_scope"):
            if getattr(spec.other_connection, scope, "stack") != "model":
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

    def check(self, spec: StackSpec) -> None:
        """One width, and the same settings, for what both stacks share."""
        if "model" in (self.gate_scope, self.hidden_scope) and spec.memory_width != spec.dim:
            raise ValueError(
                "decoder.connection: what both stacks share (scope: model) needs one width, not "
                f"{spec.memory_width} and {spec.dim}"
            )
        if self.gate_scope == "model":
            settings = self.model_dump(include={"gate_norm", "bias", "forget_bias"})
            spec.shared.agree("gate_scope: model", settings)
        inner = self.inner_width(spec)
        if self.hidden_scope == "model":
            settings = {"hidden": self.hidden, "hidden_size": inner, "bias": self.bias}
            spec.shared.agree("hidden_scope: model", settings)

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
        shared = spec.shared

        def make_gates(number: int, width: int) -> Gates:
            if self.gate_scope == "stack":
                return self._gates(spec, width)
            return shared.get("gate_scope: model", number, lambda: self._gates(spec, width))

        def make_hidden(number: int, width: int) -> Hidden:
            if self.hidden_scope == "stack":
                return self.hidden_part(spec, width)
            return shared.get("hidden_scope: model", number, lambda: self.hidden_part(spec, width))

        return DepthLSTM(
            self.calls(spec),
            spec,
            merge=self.merge,
            first_norm=self.first_norm,
            final_norm=self.has_final_norm(spec),
            share=self.share,
            make_gates=make_gates,
            make_hidden=make_hidden,
        )

    def _gates(self, spec: StackSpec, width: int) -> Gates:
        return Gates(
            width,
            spec.dim,
            spec.norm_eps,
            bias=self.bias,
            joint=self.gate_norm == "joint",
            forget_bias=self.first_bias(spec),
            languages=spec.languages,
        )


class DepthRNNConfig(DepthRecurrentSection):
    """Depth-wise RNN connections."""

    type: Literal["depth_rnn"] = "depth_rnn"
    merge: Literal["add", "concat"] = Field(
        "add", description="decoder: add or concat the two attention outputs"
    )

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return DepthRNN(
            self.calls(spec),
            spec,
            merge=self.merge,
            first_norm=self.first_norm,
            final_norm=self.has_final_norm(spec),
            make_hidden=lambda _, width: self.hidden_part(spec, width),
        )
