"""Depth-wise LSTM: an LSTM over layers takes the place of residual connections, layer norm and feed-forward.

Xu et al. 2024 (Rewiring the Transformer with Depth-Wise LSTMs), sections 2.1 to 2.3, and its 2020 preprint.
One step of the LSTM is one layer; the cell is carried up through the layers of one position.

The settings and their rules are in `depth_lstm_settings.py`, how a layer's attention outputs come to its unit
in `depth_recurrent.py`, and what analyses see in `depth_lstm_probes.py`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal

import torch
from torch import Tensor, nn

from deepwire.model.connections.connection import Call, DepthState
from deepwire.model.connections.depth_lstm_probes import gate_probes
from deepwire.model.connections.depth_recurrent import DepthRecurrent, FirstNorm, Merge
from deepwire.model.context import Context
from deepwire.model.introspection import GateProbe
from deepwire.model.layers import ACTIVATIONS, GroupedLayerNorm, Linear, layer_norm
from deepwire.model.stack_spec import DropoutConfig, StackSpec
from deepwire.ops.dropout import Dropout

HiddenKind = Literal["one_layer", "glu", "gelu"]


class Gates(nn.Module):
    """Input, forget and output gate from one product: sigma(LN(W c + b)), Eq. 2 to 4.

    `weight` stacks W_i, W_f and W_o: `[3 d, width]`. The forget gate's norm begins with the bias
    `forget_bias`.
    """

    def __init__(
        self,
        width: int,
        dim: int,
        eps: float,
        *,
        bias: bool,
        joint: bool,
        forget_bias: float = 0.0,
        languages: int = 0,
    ) -> None:
        super().__init__()
        self.linear = Linear(width, 3 * dim, bias=bias, parts=3)
        self.norm = GroupedLayerNorm(3, dim, eps=eps, joint=joint, languages=languages)
        nn.init.constant_(self.norm.bias[..., 1, :], forget_bias)

    def forward(self, both: Tensor, context: Context) -> tuple[Tensor, Tensor, Tensor]:
        """Input, forget and output gate, each `[B, T, d]`, of `[O_{i-1} | x]`, `[B, T, width]`."""
        input_gate, forget_gate, output_gate = self.norm(self.linear(both), context).sigmoid().unbind(-2)
        return input_gate, forget_gate, output_gate


class Hidden(nn.Module):
    """The hidden state of one unit.

    one_layer: GELU(LN(W c + b)), Eq. 5, where `inner` is d. glu: W2 GLU(LN(W1 c + b1)) + b2, Eq. 6, where
    `inner` is the width before the GLU and W2 reads half of it. gelu: the same with GELU, W2 reads all of it
    (2020, Eq. 8).
    """

    def __init__(
        self,
        kind: HiddenKind,
        width: int,
        inner: int,
        dim: int,
        eps: float,
        *,
        bias: bool,
        dropout: DropoutConfig,
        languages: int = 0,
    ) -> None:
        super().__init__()
        one_layer = kind == "one_layer"
        self.activation, narrows = ACTIVATIONS["gelu" if one_layer else kind]
        self.input = nn.Linear(width, inner, bias=bias)
        self.norm = layer_norm(inner, eps, languages)
        self.activation_dropout = Dropout(dropout.activation)
        self.output = nn.Identity() if one_layer else nn.Linear(inner // narrows, dim, bias=bias)
        self.output_dropout = nn.Identity() if one_layer else Dropout(dropout.sublayer)

    def forward(self, both: Tensor, context: Context) -> Tensor:
        """Map `[O_{i-1} | x]`, `[B, T, width]`, to `[B, T, d]`."""
        active = self.activation_dropout(self.activation(self.norm(self.input(both), context)))
        hidden: Tensor = self.output_dropout(self.output(active))
        return hidden


class DepthLSTM(DepthRecurrent):
    """O, C <- LSTM(attention output, O, C), layer by layer (2024 Eq. 1 to 8, Fig. 2 and 3).

    Attributes:
        gates: Gate sets, one for each unit that has its own; unit u uses `gates[gate_of[u]]`.
        hiddens: Hidden parts likewise, with `hidden_of`.
    """

    carried = 2

    def __init__(
        self,
        calls: tuple[Call, ...],
        spec: StackSpec,
        *,
        merge: Merge,
        first_norm: FirstNorm,
        final_norm: bool,
        share: Literal["none", "gates", "all"],
        make_gates: Callable[[int, int], Gates],
        make_hidden: Callable[[int, int], Hidden],
    ) -> None:
        super().__init__(calls, spec, merge=merge, first_norm=first_norm, final_norm=final_norm)
        units = range(spec.layers * self.units_per_layer)
        in_layer = [unit % self.units_per_layer for unit in units]
        self.gate_of = list(units) if share == "none" else in_layer
        self.hidden_of = in_layer if share == "all" else list(units)
        self.gates = nn.ModuleList(make_gates(number, self.input_width) for number in sorted({*self.gate_of}))
        self.hiddens = nn.ModuleList(
            make_hidden(number, self.input_width) for number in sorted({*self.hidden_of})
        )

    def start(self, x: Tensor, context: Context) -> DepthState:
        """Output and cell of depth 0 are both the embedding (2024, section 2.2)."""
        return (x, x)

    def unit(self, number: int, state: DepthState, merged: Tensor, context: Context) -> DepthState:
        """O_i and C_i of O_{i-1}, C_{i-1} and the attention output."""
        output, cell = state
        both = torch.cat((output, merged), -1)  # Eq. 1
        input_gate, forget_gate, output_gate = self.gates[self.gate_of[number]](both, context)  # Eq. 2-4
        hidden = self.hiddens[self.hidden_of[number]](both, context)  # Eq. 5 or 6
        cell = cell * forget_gate + hidden * input_gate  # Eq. 7
        return (cell * output_gate, cell)  # Eq. 8

    def gate_probes(self) -> tuple[GateProbe, ...]:
        """Input, forget and output gate of every unit."""
        return gate_probes(self.gates, self.gate_of, self.calls[: self.units_per_layer])


class DepthRNN(DepthRecurrent):
    """O <- hidden([O | attention output]): no gates, no cell (2024, section 3.3 and Table 2)."""

    def __init__(
        self,
        calls: tuple[Call, ...],
        spec: StackSpec,
        *,
        merge: Merge,
        first_norm: FirstNorm,
        final_norm: bool,
        make_hidden: Callable[[int, int], Hidden],
    ) -> None:
        super().__init__(calls, spec, merge=merge, first_norm=first_norm, final_norm=final_norm)
        self.hiddens = nn.ModuleList(make_hidden(layer, self.input_width) for layer in range(spec.layers))

    def start(self, x: Tensor, context: Context) -> DepthState:
        """Begin with the embedding."""
        return (x,)

    def unit(self, number: int, state: DepthState, merged: Tensor, context: Context) -> DepthState:
        """O_i of O_{i-1} and the attention output."""
        hidden: Tensor = self.hiddens[number](torch.cat((state[0], merged), -1), context)
        return (hidden,)
