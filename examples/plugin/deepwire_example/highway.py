"""Highway connections: a gate decides how much of a sub-layer's output replaces the stream."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Literal, cast

from pydantic import Field
from torch import Tensor, nn

from deepwire.model.connections.connection import Connection, ConnectionSection, DepthState
from deepwire.model.context import Context
from deepwire.model.introspection import GateProbe, Place
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.dropout import Dropout


class HighwayConfig(ConnectionSection):
    """Highway connections (Srivastava et al. 2015) with a norm in front of each sub-layer."""

    type: Literal["highway"] = "highway"
    bias: float = Field(-1.0, description="what the gates' biases begin with; below 0 the stream goes past")

    def build(self, spec: StackSpec) -> Connection:
        """The connection of a whole stack."""
        return Highway(self, spec)


class Highway(Connection):
    """x <- t * drop(F(LN(x))) + (1 - t) * x with t = sigmoid(W LN(x) + b + bias), each call its own W and b.

    Srivastava et al. 2015 (Highway Networks), equation 3; one norm more closes the stack.
    """

    def __init__(self, config: HighwayConfig, spec: StackSpec) -> None:
        super().__init__(config.calls(spec))
        self.bias = config.bias
        self.norms = nn.ModuleList(spec.norm() for _ in self.calls)
        self.gates = nn.ModuleList(nn.Linear(spec.dim, spec.dim) for _ in self.calls)
        self.final_norm = spec.norm()
        self.dropout = Dropout(spec.dropout.sublayer)

    def read(self, state: DepthState, index: int, context: Context) -> Tensor:
        """The normalised stream."""
        read: Tensor = self.norms[index](state[0], context)
        return read

    def write(
        self, state: DepthState, index: int, read: Tensor, output: Tensor, context: Context
    ) -> DepthState:
        """Let the output in as far as the gate is open."""
        gate = (self.gates[index](read) + self.bias).sigmoid()
        return (state[0] + gate * (self.dropout(output) - state[0]),)

    def gate_probes(self) -> tuple[GateProbe, ...]:
        """The gates, for `deepwire analyze gates`."""

        def read(_inputs: tuple[Tensor, ...], output: object) -> Mapping[str, Tensor]:
            return {"transform": (cast("Tensor", output) + self.bias).sigmoid()}

        meaning = {"transform": "the sub-layer's output replaces the stream"}
        return tuple(
            GateProbe("highway", gate, (Place(index, f"{call.layer + 1} {call.kind}"),), read, meaning)
            for index, (call, gate) in enumerate(zip(self.calls, self.gates, strict=True))
        )
