"""GRU: a gated recurrent unit with layer norm inside."""

from __future__ import annotations

from typing import ClassVar, Literal

import torch
from pydantic import Field
from torch import Tensor, nn

from deepwire.model.context import Context
from deepwire.model.layers import GroupedLayerNorm, Linear, layer_norm
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


class GRUConfig(RecurrentSection):
    """Gated recurrent unit with layer norm (Cho et al. 2014; the norms are Neutron's)."""

    type: Literal["gru"] = "gru"
    activation: CandidateActivation = Field("tanh", description="of the candidate")
    gate_norm: GateNorm = Field(
        "joint", description="statistics of the gates' norm: joint over both gates (Neutron), or separate"
    )
    bias: bool = Field(False, description="biases of the products in front of the norms (Neutron: none)")

    def cell(self, spec: StackSpec) -> Cell:
        """One unit."""
        return GRUCell(
            spec.mixer_width,
            spec.dim,
            eps=spec.norm_eps,
            activation=self.activation,
            gate_norm=self.gate_norm,
            bias=self.bias,
            dropout=spec.dropout.activation,
            languages=spec.languages,
        )


class GRUCell(Cell):
    """h' = (1 - f) * drop(n) + f * h with i, f = sigmoid(LN(W [x | h])) and n = act(LN(W_x x + i * U h)).

    Cho et al. 2014, section 2.3, with layer norm as in Neutron. `gates` stacks W_i and W_f,
    `[2 d, d_in + d]`. The state is (h,).
    """

    leaves: ClassVar[int] = 1

    def __init__(
        self,
        width: int,
        dim: int,
        *,
        eps: float,
        activation: CandidateActivation = "tanh",
        gate_norm: GateNorm = "joint",
        bias: bool = False,
        dropout: float = 0.0,
        languages: int = 0,
    ) -> None:
        super().__init__()
        self.width, self.dim, self.biased, self.dropout = width, dim, bias, dropout
        self.gates = Linear(width + dim, 2 * dim, bias=bias, parts=2)
        self.input = nn.Linear(width, dim, bias=bias)
        self.recurrent = nn.Linear(dim, dim, bias=bias)
        self.gate_norm = GroupedLayerNorm(2, dim, eps=eps, joint=gate_norm == "joint", languages=languages)
        self.norm = layer_norm(dim, eps, languages)
        self.activation = CANDIDATE_ACTIVATIONS[activation]

    def linear_maps(self) -> tuple[LinearMap, LinearMap]:
        """Gates and candidate from one product of x, `[3 d, d_in]`, and one of h, `[3 d, d]`."""
        weight, bias = self.gates.weight, self.gates.bias if self.biased else None
        nothing = torch.zeros_like(bias) if bias is not None else None
        return (
            _stacked(weight[:, : self.width], bias, self.input),
            _stacked(weight[:, self.width :], nothing, self.recurrent),
        )

    def forward(
        self,
        projected: Tensor,
        state: State,
        recurrent: AnyLinearMap,
        dropout_mask: Tensor | None,
        context: Context,
    ) -> State:
        """The next (h,)."""
        (output,) = state
        past, gates = recurrent.apply(output), 2 * self.dim
        normal = self.gate_norm(projected[:, :gates] + past[:, :gates], context)
        reset, forget_gate = normal.sigmoid().unbind(1)
        candidate = torch.addcmul(projected[:, gates:], reset, past[:, gates:])
        candidate = self.activation(self.norm(candidate, context))
        if dropout_mask is not None:
            candidate = candidate * dropout_mask
        return (torch.lerp(candidate.to(output.dtype), output, forget_gate.to(output.dtype)),)


def _stacked(weight: Tensor, bias: Tensor | None, candidate: nn.Linear) -> LinearMap:
    """The maps of gates and candidate as one."""
    both = None if bias is None else torch.cat((bias, candidate.bias))
    return LinearMap(torch.cat((weight, candidate.weight)), both)
