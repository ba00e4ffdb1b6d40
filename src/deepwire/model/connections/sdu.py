"""Self-dependency units: a gated map of a sub-layer's input joins the stream beside its output.

Chai et al. 2020 (Highway Transformer: Self-Gating Enhanced Self-Attentive Networks), a language model; in
encoder and decoder as in Neutron, which made the row of Xu et al. 2024, Table 6.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal, cast

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn

from deepwire.model.connections.connection import Connection, DepthState, Droppable
from deepwire.model.connections.residual import NormFirstSection, PreNorm, Residual
from deepwire.model.context import Context
from deepwire.model.introspection import GateProbe, Place
from deepwire.model.layers import Linear
from deepwire.model.stack_spec import StackSpec

Form = Literal["add", "highway", "gated"]


class SDUConfig(NormFirstSection):
    """Residual connections with self-dependency units."""

    # Every sub-layer is an addition, with its unit.
    drops: ClassVar[Droppable] = "sublayers"
    adds_in_proportion: ClassVar[bool] = False  # a unit joins the stream beside the output

    type: Literal["sdu"] = "sdu"
    residual: Residual = Field(
        "normalised",
        description="what a sub-layer's output is added to: its normalised input (the papers' post-norm, "
        "but for a norm of the embedding), or its input (pre-norm)",
    )
    form: Form = Field(
        "add",
        description="add: output, unit and residual (the pseudo-highway connection); highway: the gate takes "
        "from the residual what it lets through; gated: it takes from the output",
    )
    gate: Literal["sigmoid", "tanh"] = Field("sigmoid", description="activation of the gate")
    layers: int | None = Field(None, ge=1, description="units in so many lowest layers only; all without it")

    @model_validator(mode="after")
    def _gate_fits(self) -> SDUConfig:
        if self.form != "add" and self.gate != "sigmoid":
            raise ValueError(f"form: {self.form} needs gate: sigmoid, as 1 - gate is a weight there")
        return self

    def check(self, spec: StackSpec) -> None:
        """No more layers with units than there are."""
        if self.layers is not None and self.layers > spec.layers:
            raise ValueError(
                f"{spec.side}.connection.layers: {self.layers} layers with units, but the "
                f"{spec.side} has {spec.layers}"
            )

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return SDU(self, spec)


class SDU(PreNorm):
    """x <- r + drop(F(u)) + drop(SDU(u)), SDU(u) = g * (W_2 u + b_2), g = sigma(W_1 u + b_1), u = LN(x).

    The residual r is u or x. Highway: (1 - g) * r in place of r. Gated: (1 - g) * drop(F(u)) in place of it.
    (Chai et al. 2020, sections on SDU, the pseudo-highway connection and its variants.)

    Attributes:
        units: One for each call, a linear map from d to 2 d; the first half of its output is W_2 u + b_2, the
            second half W_1 u + b_1. Above the layers with units there is nothing in it.
    """

    def __init__(self, config: SDUConfig, spec: StackSpec) -> None:
        super().__init__(config, spec)
        self.form: Form = config.form
        self.squash = torch.sigmoid if config.gate == "sigmoid" else torch.tanh
        self.layers = config.layers or spec.layers
        self.units = nn.ModuleList(
            Linear(spec.dim, 2 * spec.dim, bias=True, parts=2) if call.layer < self.layers else nn.Identity()
            for call in self.calls
        )

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Add the output, the unit and the residual."""
        residual, output = self.residual(state, read), self.dropout(output)
        if self.calls[index].layer >= self.layers:
            return (residual + output,)
        value, gate = self.units[index](read).chunk(2, -1)
        gate = self.squash(gate)
        if self.form == "highway":
            residual = residual * (1 - gate)
        elif self.form == "gated":
            output = output * (1 - gate)
        return (residual + output + self.dropout(value * gate),)

    def gate_probes(self) -> tuple[GateProbe, ...]:
        """The gates of the units."""

        def read(_inputs: tuple[Tensor, ...], output: object) -> Mapping[str, Tensor]:
            return {"gate": self.squash(cast("Tensor", output).chunk(2, -1)[1])}

        return tuple(
            GateProbe(
                "self-dependency units",
                self.units[index],
                (Place(index, f"{call.layer + 1} {call.kind}"),),
                read,
                {"gate": "the unit's map of its input is let through"},
            )
            for index, call in enumerate(self.calls)
            if call.layer < self.layers
        )
