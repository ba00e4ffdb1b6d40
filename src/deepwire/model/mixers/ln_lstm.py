"""LN-LSTM: a long short-term memory with layer norm inside."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.model.context import StackContext
from deepwire.model.languages import TargetLanguages
from deepwire.model.mixers.base import State, TokenMixer
from deepwire.model.mixers.recurrent import (
    CANDIDATE_ACTIVATIONS,
    AnyProduct,
    CandidateActivation,
    Cell,
    GateNorm,
    Product,
    RecurrentMixer,
    RecurrentSection,
)
from deepwire.model.norm import PartsNorm


class LNLSTMConfig(RecurrentSection):
    """LSTM with layer norm (Chen et al. 2018; Xu et al. 2021, Eq. 1 to 8)."""

    type: Literal["ln_lstm"] = "ln_lstm"
    activation: CandidateActivation = Field("tanh", description="of the hidden state, alpha in Eq. 5")
    gate_norm: GateNorm = Field(
        "separate",
        description="statistics of the norms: of each gate and the hidden state its own (Eq. 2-5), or joint "
        "over all four (Neutron)",
    )
    bias: bool = Field(
        False,
        description="biases in front of the norms (in the equations; Neutron and published sizes: none)",
    )

    def build(self, context: StackContext) -> TokenMixer:
        """One LSTM of a decoder."""
        return RecurrentMixer(
            LNLSTMCell(
                context.mixer_input or context.dim,
                context.dim,
                eps=context.norm_eps,
                activation=self.activation,
                gate_norm=self.gate_norm,
                bias=self.bias,
                dropout=context.dropout.activation,
                languages=context.languages,
            )
        )


class LNLSTMCell(Cell):
    """c' = f * c + i * drop(g), h' = o * c', without tanh (Xu et al. 2021, Eq. 1 to 8).

    i, f, o = sigmoid and g = activation of LN(W [x | h] + b). `linear` stacks W_i, W_f, W_o and W_g:
    `[4 d, d_in + d]`. The state is (h, c).
    """

    leaves: ClassVar[int] = 2

    def __init__(
        self,
        width: int,
        dim: int,
        *,
        eps: float,
        activation: CandidateActivation = "tanh",
        gate_norm: GateNorm = "separate",
        bias: bool = False,
        dropout: float = 0.0,
        languages: TargetLanguages | None = None,
    ) -> None:
        super().__init__()
        self.width, self.dim, self.dropout = width, dim, dropout
        self.linear = nn.Linear(width + dim, 4 * dim, bias=bias)
        self.norm = PartsNorm(4, dim, eps=eps, joint=gate_norm == "joint", languages=languages)
        self.activation = CANDIDATE_ACTIVATIONS[activation]

    def products(self) -> tuple[Product, Product]:
        """The halves of the one map that read x and h."""
        weight = self.linear.weight
        return Product(weight[:, : self.width], self.linear.bias), Product(weight[:, self.width :], None)

    def forward(self, given: Tensor, state: State, recurrent: AnyProduct, kept: Tensor | None) -> State:
        """The next (h, c)."""
        output, cell = state
        parts = self.norm(recurrent.onto(given, output))
        let_in, keep, let_out = parts[:, :3].sigmoid().unbind(1)
        hidden = self.activation(parts[:, 3])
        if kept is not None:
            hidden = hidden * kept
        cell = torch.addcmul(keep * cell, let_in, hidden)
        return let_out * cell, cell
