"""LN-LSTM: a long short-term memory with layer norm inside."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor

from deepwire.model.context import Context
from deepwire.model.layers import GroupedLayerNorm, Linear
from deepwire.model.mixers.mixer import State
from deepwire.model.mixers.recurrent import (
    CANDIDATE_ACTIVATIONS,
    AnyLinearMap,
    CandidateActivation,
    Cell,
    GateNorm,
    LinearMap,
    RecurrentSection,
)
from deepwire.model.stack_spec import StackSpec


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

    def cell(self, spec: StackSpec) -> Cell:
        """One LSTM."""
        return LNLSTMCell(
            spec.mixer_width,
            spec.dim,
            eps=spec.norm_eps,
            activation=self.activation,
            gate_norm=self.gate_norm,
            bias=self.bias,
            dropout=spec.dropout.activation,
            languages=spec.languages,
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
        languages: int = 0,
    ) -> None:
        super().__init__()
        self.width, self.dim, self.dropout = width, dim, dropout
        self.linear = Linear(width + dim, 4 * dim, bias=bias, parts=4)
        self.norm = GroupedLayerNorm(4, dim, eps=eps, joint=gate_norm == "joint", languages=languages)
        self.activation = CANDIDATE_ACTIVATIONS[activation]

    def linear_maps(self) -> tuple[LinearMap, LinearMap]:
        """The halves of the one map that read x and h."""
        weight = self.linear.weight
        return LinearMap(weight[:, : self.width], self.linear.bias), LinearMap(weight[:, self.width :], None)

    def forward(
        self,
        projected: Tensor,
        state: State,
        recurrent: AnyLinearMap,
        dropout_mask: Tensor | None,
        context: Context,
    ) -> State:
        """The next (h, c)."""
        output, cell = state
        parts = self.norm(recurrent.add_to(projected, output), context)
        input_gate, forget_gate, output_gate = parts[:, :3].sigmoid().unbind(1)
        hidden = self.activation(parts[:, 3])
        if dropout_mask is not None:
            hidden = hidden * dropout_mask
        cell = torch.addcmul(forget_gate * cell, input_gate, hidden)
        return output_gate * cell, cell
