"""SSRU, minGRU and minLSTM: recurrences whose gates see the input alone.

So one product makes all gates of all positions, and only c_t = f_t * c_{t-1} + r_t runs over time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import ClassVar, Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn.functional import softplus

from deepwire.model.context import Context
from deepwire.model.layers import Linear
from deepwire.model.mixers.both_directions import DirectionalSection
from deepwire.model.mixers.mixer import Mixer, State
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.linear_recurrence import linear_recurrence


class LinearRNNSection(DirectionalSection, ABC):
    """Settings that the three share."""

    normalises: ClassVar[bool] = False


class SSRUConfig(LinearRNNSection):
    """Simpler simple recurrent unit (Kim et al. 2019)."""

    type: Literal["ssru"] = "ssru"
    output_matrix: bool = Field(
        False, description="a matrix and a bias behind the unit (Marian's transformer-rnn-projection)"
    )

    def one_way(self, spec: StackSpec) -> Mixer:
        """One unit."""
        return SSRU(spec.mixer_width, spec.dim, output_matrix=self.output_matrix)


class MinimalSection(LinearRNNSection, ABC):
    """Settings that minGRU and minLSTM share."""

    expansion: float = Field(
        1.0, gt=0, le=64, description="width of the state over that of the output; not 1: with output_matrix"
    )
    output_matrix: bool = Field(False, description="a matrix behind the recurrence")

    @model_validator(mode="after")
    def _state_fits(self) -> MinimalSection:
        if self.expansion != 1 and not self.output_matrix:
            raise ValueError(
                f"expansion: a state of {self.expansion:g} times the width needs output_matrix: true"
            )
        return self

    def check(self, spec: StackSpec) -> None:
        """A whole number of features in the state."""
        width = self.each_way(spec).dim
        if not (width * self.expansion).is_integer():
            raise ValueError(
                f"{spec.side}.mixer.expansion: {self.expansion:g} times the width {width} of a direction "
                "is no whole number"
            )

    def width(self, spec: StackSpec) -> int:
        """Width of the state of one direction."""
        return round(spec.dim * self.expansion)


class MinGRUConfig(MinimalSection):
    """Minimal gated recurrent unit (Feng et al. 2024)."""

    type: Literal["min_gru"] = "min_gru"

    def one_way(self, spec: StackSpec) -> Mixer:
        """One unit."""
        return MinGRU(spec.mixer_width, spec.dim, self.width(spec), output_matrix=self.output_matrix)


class MinLSTMConfig(MinimalSection):
    """Minimal LSTM, whose gates sum to one (Feng et al. 2024)."""

    type: Literal["min_lstm"] = "min_lstm"

    def one_way(self, spec: StackSpec) -> Mixer:
        """One unit."""
        return MinLSTM(spec.mixer_width, spec.dim, self.width(spec), output_matrix=self.output_matrix)


class LinearRNN(Mixer, ABC):
    """y_t = W_o read(c_t) with c_t = f_t * c_{t-1} + r_t, both gates made of x_t alone, from c_0 = 0.

    The state while decoding is (c,), `[rows, n]`, in float32 at least, as it sums over time.

    Args:
        width: Of what it reads.
        dim: Of what it gives.
        state_width: n, of the state.
        maps: How many maps of x there are.
        output: W_o; None: `read(c_t)` is given as it is.
    """

    def __init__(
        self, width: int, dim: int, state_width: int, *, maps: int, output: nn.Linear | None
    ) -> None:
        super().__init__()
        if output is None and state_width != dim:
            raise ValueError(f"without output matrix the state has the width {dim}, not {state_width}")
        self.state_width = state_width
        self.maps = Linear(width, maps * state_width, bias=False, parts=maps)
        self.output = output

    @abstractmethod
    def gates(self, mapped: Tensor) -> tuple[Tensor, Tensor]:
        """f and r, each `[..., n]`, of the maps `[..., maps * n]` of x, which are of float32 at least."""

    def read(self, cell: Tensor) -> Tensor:
        """The visible part of the state `[..., n]`."""
        return cell

    def cells(self, x: Tensor, initial: Tensor | None = None) -> Tensor:
        """c of every position, `[T, B, n]`, of x `[B, T, d_in]`; from `initial`, `[B, n]`, or from 0."""
        # Time first, so that each step of the recurrence reads a contiguous block.
        forget, update = self._gates(x.transpose(0, 1).contiguous())
        begin = update.new_zeros(()) if initial is None else initial
        return linear_recurrence(forget, update, begin)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Mix `[B, T, d_in]`; padding on the right is seen by nobody before it."""
        return self._out(self.cells(x).transpose(0, 1), x)

    def init_state(self, rows: int, like: Tensor) -> State:
        """Zero."""
        wide = torch.promote_types(like.dtype, torch.float32)
        return (like.new_zeros(rows, self.state_width, dtype=wide),)

    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        """Steps on `[rows, T, d_in]`, their gates made by one product."""
        if x.size(1) == 1:
            forget, update = self._gates(x[:, 0])
            cell = torch.addcmul(update, forget, state[0])
            return self._out(cell.unsqueeze(1), x), (cell,)
        cells = self.cells(x, state[0])
        return self._out(cells.transpose(0, 1), x), (cells[-1],)

    def _gates(self, x: Tensor) -> tuple[Tensor, Tensor]:
        mapped = self.maps(x)
        # What a cell keeps is multiplied over many positions, and bfloat16 has no number between 0.996 and 1.
        return self.gates(mapped.to(torch.promote_types(mapped.dtype, torch.float32)))

    def _out(self, cells: Tensor, like: Tensor) -> Tensor:
        seen = self.read(cells).to(like.dtype)
        return seen if self.output is None else self.output(seen)


class SSRU(LinearRNN):
    """c_t = f_t * c_{t-1} + (1 - f_t) * W x_t with f_t = s(W_f x_t + b_f), y_t = ReLU(c_t).

    Kim et al. 2019, "From Research to Production and Back: Ludicrously Fast Neural Machine Translation", as
    in Marian. `maps` stacks W_f and W.
    """

    def __init__(self, width: int, dim: int, *, output_matrix: bool = False) -> None:
        super().__init__(
            width,
            dim,
            dim,
            maps=2,
            output=Linear(dim, dim, bias=True, role="attention_output") if output_matrix else None,
        )
        self.forget_bias = nn.Parameter(torch.zeros(dim))

    def gates(self, mapped: Tensor) -> tuple[Tensor, Tensor]:
        """f and (1 - f) * W x."""
        forget, update = mapped.chunk(2, -1)
        forget = (forget + self.forget_bias).sigmoid()
        return forget, update - forget * update

    def read(self, cell: Tensor) -> Tensor:
        """ReLU."""
        return cell.relu()


def positive(x: Tensor) -> Tensor:
    """x + 1/2 for x >= 0, s(x) elsewhere: what minGRU and minLSTM make candidates of."""
    return torch.where(x >= 0, x + 0.5, x.sigmoid())


def _matrix(state_width: int, dim: int, wanted: bool) -> nn.Linear | None:
    return Linear(state_width, dim, bias=False, role="attention_output") if wanted else None


class MinGRU(LinearRNN):
    """h_t = (1 - z_t) * h_{t-1} + z_t * g(W_h x_t) with z_t = s(W_z x_t) and g = `positive`.

    Feng et al. 2024, "Were RNNs All We Needed?", section 3.1. `maps` stacks W_z and W_h.
    """

    def __init__(self, width: int, dim: int, state_width: int, *, output_matrix: bool = False) -> None:
        super().__init__(width, dim, state_width, maps=2, output=_matrix(state_width, dim, output_matrix))

    def gates(self, mapped: Tensor) -> tuple[Tensor, Tensor]:
        """1 - z and z * g(W_h x)."""
        update, candidate = mapped.chunk(2, -1)
        return (-update).sigmoid(), update.sigmoid() * positive(candidate)


class MinLSTM(LinearRNN):
    """h_t = f_t / (f_t + i_t) * h_{t-1} + i_t / (f_t + i_t) * g(W_h x_t), f_t = s(W_f x_t), i_t = s(W_i x_t).

    Feng et al. 2024, section 3.2, g as in `MinGRU`. `maps` stacks W_f, W_i and W_h.
    """

    def __init__(self, width: int, dim: int, state_width: int, *, output_matrix: bool = False) -> None:
        super().__init__(width, dim, state_width, maps=3, output=_matrix(state_width, dim, output_matrix))

    def gates(self, mapped: Tensor) -> tuple[Tensor, Tensor]:
        """The two shares, of which the second weighs the candidate."""
        forget, update, candidate = mapped.chunk(3, -1)
        # log f - log i: both gates may be too small for the quotient.
        ratio = softplus(-update) - softplus(-forget)
        return ratio.sigmoid(), (-ratio).sigmoid() * positive(candidate)
