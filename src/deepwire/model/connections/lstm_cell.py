"""The parts of a depth-wise LSTM unit: its gates and its hidden state.

Xu et al. 2024, Eq. 2 to 6; the 2020 preprint, Eq. 8, for the two-layer GELU hidden state.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

from deepwire.model.context import DropoutConfig
from deepwire.model.layers import ACTIVATIONS, GroupedLayerNorm, layer_norm
from deepwire.ops.dropout import Dropout

GateKind = Literal["separate", "joint"]
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
        self.linear = nn.Linear(width, 3 * dim, bias=bias)
        self.norm = GroupedLayerNorm(3, dim, eps=eps, joint=joint, languages=languages)
        nn.init.constant_(self.norm.bias[..., 1, :], forget_bias)

    def forward(self, both: Tensor, languages: Tensor | None = None) -> tuple[Tensor, Tensor, Tensor]:
        """Input, forget and output gate, each `[B, T, d]`, of `[O_{i-1} | x]`, `[B, T, width]`."""
        input_gate, forget_gate, output_gate = self.norm(self.linear(both), languages).sigmoid().unbind(-2)
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

    def forward(self, both: Tensor, languages: Tensor | None = None) -> Tensor:
        """Map `[O_{i-1} | x]`, `[B, T, width]`, to `[B, T, d]`."""
        active = self.activation_dropout(self.activation(self.norm(self.input(both), languages)))
        hidden: Tensor = self.output_dropout(self.output(active))
        return hidden
