"""Classic recurrence as a token mixer: a cell is run over the positions, one after the other.

Chen et al. 2018 (The Best of Both Worlds) use it in their decoder, and in both directions in their encoder;
Xu et al. 2021 (Multi-Head Highly Parallelized LSTM Decoder, Table 2) put it in the place of masked
self-attention.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from typing import ClassVar, Literal, NamedTuple

import torch
from pydantic import Field
from torch import Tensor, nn
from torch.nn import functional

from deepwire.model.context import Context
from deepwire.model.layers import GroupedLayerNorm, Linear, layer_norm
from deepwire.model.mixers.both_directions import DirectionalSection
from deepwire.model.mixers.mixer import Mixer, State
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.dropout import dropout
from deepwire.ops.over_positions import in_no_graph, over_positions
from deepwire.ops.packed_linear import Pack, PackedLinear

GateNorm = Literal["separate", "joint"]
CandidateActivation = Literal["tanh", "relu", "gelu"]
CANDIDATE_ACTIVATIONS: Mapping[str, Callable[[Tensor], Tensor]] = {
    "tanh": torch.tanh,
    "relu": functional.relu,
    "gelu": functional.gelu,
}


class RecurrentSection(DirectionalSection, ABC):
    """Settings that recurrent mixers share; an encoder has a cell for each direction."""

    def one_way(self, spec: StackSpec) -> RecurrentMixer:
        """One recurrence."""
        return RecurrentMixer(self.cell(spec), steps=spec.causal)

    @abstractmethod
    def cell(self, spec: StackSpec) -> Cell:
        """A cell that reads vectors of width `spec.mixer_width` and gives those of width `spec.dim`."""


class LinearMap(NamedTuple):
    """One linear map: weight `[out, in]` and bias `[out]`, or no bias."""

    weight: Tensor
    bias: Tensor | None

    def apply(self, x: Tensor) -> Tensor:
        """Apply it to the last axis, in the weight's type."""
        return functional.linear(x.to(self.weight.dtype), self.weight, self.bias)

    def add_to(self, projected: Tensor, x: Tensor) -> Tensor:
        """Add it, without bias, to `projected`; both `[rows, out]`."""
        return torch.addmm(projected, x.to(projected.dtype), self.weight.t())


class PackedLinearMap(NamedTuple):
    """The same with a weight that is laid out for decoding, which reads numbers of type `dtype`."""

    linear: PackedLinear
    dtype: torch.dtype

    def apply(self, x: Tensor) -> Tensor:
        """Apply it to the last axis."""
        return self.linear(x.to(self.dtype))

    def add_to(self, projected: Tensor, x: Tensor) -> Tensor:
        """Add it to `projected`; both `[rows, out]`."""
        return projected + self.apply(x)


AnyLinearMap = LinearMap | PackedLinearMap


class Cell(nn.Module, ABC):
    """One step of a recurrence, as two linear maps and what is done with their results.

    The map of the input does not wait for the previous step, so it is taken of all positions at once; the map
    of the previous output is taken in every step.

    Attributes:
        dim: Width of its output and of each tensor of its state.
        leaves: Tensors of its state, each `[rows, dim]`; the first is the output.
        dropout: Dropout of the candidate.
    """

    leaves: ClassVar[int]
    dim: int
    dropout: float = 0.0

    @abstractmethod
    def linear_maps(self) -> tuple[LinearMap, LinearMap]:
        """The maps of the input and of the previous output."""

    @abstractmethod
    def forward(
        self,
        projected: Tensor,
        state: State,
        recurrent: AnyLinearMap,
        dropout_mask: Tensor | None,
        context: Context,
    ) -> State:
        """The next state.

        Args:
            projected: The map of this step's input, `[rows, n]`.
            state: The state before this step.
            recurrent: The map of the previous output.
            dropout_mask: Factors of dropout for the candidate, `[rows, dim]`, or None.
            context: Of the pass, for norms.
        """


class RecurrentMixer(Mixer):
    """h_t = cell(x_t, h_{t-1}), from a learned state that begins at zero.

    The state while decoding is that of the cell, each tensor `[rows, d]`; it is carried on in float32 or
    wider, as it sums over time. `initial` is `[leaves, d]`. In an encoder it makes no `steps`.
    """

    def __init__(self, cell: Cell, *, steps: bool = True) -> None:
        super().__init__()
        self.cell, self.steps = cell, steps
        self.initial = nn.Parameter(torch.zeros(cell.leaves, cell.dim))
        self.packed: tuple[AnyLinearMap, AnyLinearMap] | None = None

    def pack(self, make: Pack) -> None:
        """Step with maps laid out for decoding from now on, made of the cell's once instead of every step."""
        if not self.steps:
            return
        input_map, recurrent = (
            PackedLinearMap(make(linear.weight, linear.bias), linear.weight.dtype)
            for linear in self.cell.linear_maps()
        )
        self.packed = (input_map, recurrent)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Run over `[B, T, d_in]`, giving `[B, T, d]`; padding on the right is seen by nobody before it."""
        return in_no_graph(self._run)(x, context)

    def _run(self, x: Tensor, context: Context) -> Tensor:
        input_map, recurrent = self.cell.linear_maps()
        # Time first, so that each step reads a contiguous block; the product would copy it otherwise.
        projected = input_map.apply(x.transpose(0, 1).contiguous())
        # Where products have a narrower type (autocast), the weight is converted once, not in every step.
        recurrent = LinearMap(recurrent.weight.to(projected.dtype), recurrent.bias)
        outputs, _ = self._over(projected, self.init_state(x.size(0), x), recurrent, context)
        return outputs.to(x.dtype)

    def _over(
        self, projected: Tensor, state: State, recurrent: AnyLinearMap, context: Context
    ) -> tuple[Tensor, State]:
        """Outputs `[rows, T, d]` of mapped inputs `[T, rows, n]` from a state on, and the last state."""
        dropout_mask = self._dropout_mask(*projected.shape[:2])
        inputs = (projected,) if dropout_mask is None else (projected, dropout_mask)

        def step(state: State, now: tuple[Tensor, ...]) -> State:
            return self.cell(now[0], state, recurrent, now[1] if len(now) > 1 else None, context)

        return over_positions(step, state, inputs)

    def init_state(self, rows: int, like: Tensor) -> State:
        """The learned state, the same in every row."""
        wide = torch.promote_types(like.dtype, torch.float32)
        return tuple(leaf.expand(rows, -1) for leaf in self.initial.to(wide).unbind(0))

    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        """Steps of the cell on `[rows, T, d_in]`; the map of the input is one product."""
        input_map, recurrent = self.packed or self.cell.linear_maps()
        if x.size(1) == 1:
            mask = self._dropout_mask(x.size(0))
            following = self.cell(input_map.apply(x[:, 0]), state, recurrent, mask, context)
            return following[0].unsqueeze(1).to(x.dtype), following
        projected = input_map.apply(x.transpose(0, 1).contiguous())
        outputs, state = self._over(projected, state, recurrent, context)
        return outputs.to(x.dtype), state

    def _dropout_mask(self, *sizes: int) -> Tensor | None:
        if not self.training or self.cell.dropout == 0:
            return None
        return dropout(self.initial.new_ones(*sizes, self.cell.dim), self.cell.dropout, training=True)


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
        return GRUCell(self, spec)


class GRUCell(Cell):
    """h' = (1 - f) * drop(n) + f * h with i, f = sigmoid(LN(W [x | h])) and n = act(LN(W_x x + i * U h)).

    Cho et al. 2014, section 2.3, with layer norm as in Neutron. `gates` stacks W_i and W_f,
    `[2 d, d_in + d]`. The state is (h,).
    """

    leaves: ClassVar[int] = 1

    def __init__(self, config: GRUConfig, spec: StackSpec) -> None:
        super().__init__()
        width, dim, bias, joint = spec.mixer_width, spec.dim, config.bias, config.gate_norm == "joint"
        self.width, self.dim, self.biased, self.dropout = width, dim, bias, spec.dropout.activation
        self.gates = Linear(width + dim, 2 * dim, bias=bias, parts=2)
        self.input = nn.Linear(width, dim, bias=bias)
        self.recurrent = nn.Linear(dim, dim, bias=bias)
        self.gate_norm = GroupedLayerNorm(2, dim, eps=spec.norm_eps, joint=joint, languages=spec.languages)
        self.norm = layer_norm(dim, spec.norm_eps, spec.languages)
        self.activation = CANDIDATE_ACTIVATIONS[config.activation]

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
    both = None if bias is None else torch.cat((bias, candidate.bias))
    return LinearMap(torch.cat((weight, candidate.weight)), both)


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
        return LNLSTMCell(self, spec)


class LNLSTMCell(Cell):
    """c' = f * c + i * drop(g), h' = o * c', without tanh (Xu et al. 2021, Eq. 1 to 8).

    i, f, o = sigmoid and g = activation of LN(W [x | h] + b). `linear` stacks W_i, W_f, W_o and W_g:
    `[4 d, d_in + d]`. The state is (h, c).
    """

    leaves: ClassVar[int] = 2

    def __init__(self, config: LNLSTMConfig, spec: StackSpec) -> None:
        super().__init__()
        width, dim, joint = spec.mixer_width, spec.dim, config.gate_norm == "joint"
        self.width, self.dim, self.dropout = width, dim, spec.dropout.activation
        self.linear = Linear(width + dim, 4 * dim, bias=config.bias, parts=4)
        self.norm = GroupedLayerNorm(4, dim, eps=spec.norm_eps, joint=joint, languages=spec.languages)
        self.activation = CANDIDATE_ACTIVATIONS[config.activation]

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


ATRCarried = Literal["state", "product"]


class ATRConfig(RecurrentSection):
    """Addition-subtraction twin-gated recurrence (Zhang et al. 2018)."""

    normalises: ClassVar[bool] = False
    type: Literal["atr"] = "atr"
    carried: ATRCarried = Field(
        "state",
        description="what the forget gate lets through: the previous state h (the paper), or q = U h + b "
        "(product: Neutron)",
    )
    bias: bool = Field(True, description="biases of both products")

    def cell(self, spec: StackSpec) -> Cell:
        """One recurrence."""
        return ATRCell(self, spec)


class ATRCell(Cell):
    """h' = i * p + f * h with p = W x + b_p, q = U h + b_q, i = sigmoid(p + q), f = sigmoid(p - q).

    Zhang et al. 2018, "Simplifying Neural Machine Translation with Addition-Subtraction Twin-Gated Recurrent
    Networks". Neutron has f * q in the place of f * h. The state is (h,).
    """

    leaves: ClassVar[int] = 1

    def __init__(self, config: ATRConfig, spec: StackSpec) -> None:
        super().__init__()
        self.dim, self.carried = spec.dim, config.carried
        self.input = nn.Linear(spec.mixer_width, spec.dim, bias=config.bias)
        self.recurrent = nn.Linear(spec.dim, spec.dim, bias=config.bias)

    def linear_maps(self) -> tuple[LinearMap, LinearMap]:
        """The two maps."""
        return (
            LinearMap(self.input.weight, self.input.bias),
            LinearMap(self.recurrent.weight, self.recurrent.bias),
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
        past = recurrent.apply(output)
        carried = output if self.carried == "state" else past
        return (
            torch.addcmul((projected + past).sigmoid() * projected, (projected - past).sigmoid(), carried),
        )
