"""The depth-wise LSTM with single causes taken away: what keeps it behind pre-norm layers?

`causes.yaml` says how to train with it. Of what learned best `direct_path` of the connection `depth_lstm` was
made; here the output gate, which has no effect then, keeps its parameters.
"""

from typing import Literal

import torch
from pydantic import Field

from deepwire.model.connections.depth_lstm import DepthLSTM, DepthLSTMConfig


class CausesConfig(DepthLSTMConfig):
    """What a run file may say."""

    type: Literal["causes"] = "causes"  # type: ignore[assignment]
    fixed: Literal["none", "output", "all"] = Field("none", description="gates that stand at 1")
    direct: bool = Field(False, description="what attention gives is added to the cell, beside the gates")
    open_gates: float = Field(0.0, description="what the biases of input and output gates begin with")

    def build(self, spec):
        """The connection of a whole stack."""
        return Causes(self, spec)


class Causes(DepthLSTM):
    """C <- f C + i H + A, O <- o C: with or without A, what attention gave, and gates."""

    def __init__(self, config, spec):
        super().__init__(config, spec)
        self.fixed, self.adds_attention = config.fixed, config.direct
        if self.fixed == "all":
            self.gates = torch.nn.ModuleList()
        for gates in self.gates:
            torch.nn.init.constant_(gates.norm.bias[..., ::2, :], config.open_gates)

    def unit(self, number, state, merged, context):
        """O and C of the unit, of those below and of what attention gave."""
        output, cell = state
        both = torch.cat((output, merged), -1)
        hidden = self.hiddens[self.hidden_of[number]](both, context)
        i = f = o = 1.0
        if self.fixed != "all":
            i, f, o = self.gates[self.gate_of[number]](both, context)
        cell = cell * f + hidden * i
        if self.adds_attention:
            cell = cell + merged
        return (cell if self.fixed == "output" else cell * o, cell)
