"""mLSTM: an LSTM whose cell is a matrix, with an exponential input gate."""

from __future__ import annotations

from typing import Literal

import torch
from torch import Tensor, nn
from torch.nn.functional import logsigmoid, pad

from deepwire.model.context import Context
from deepwire.model.layers import Linear, split_heads
from deepwire.model.mixers.head_states import (
    HEAD_EPS,
    GatedOutput,
    HeadLayerNorm,
    HeadStateSection,
)
from deepwire.model.mixers.mixer import Mixer, State
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.gated_product import gated_product, gated_state, gated_step
from deepwire.ops.over_positions import is_exporting, over_positions

_EPS = 1e-6


class MLSTMConfig(HeadStateSection):
    """LSTM with matrix memory (Beck et al. 2024, xLSTM)."""

    type: Literal["mlstm"] = "mlstm"

    def one_way(self, spec: StackSpec) -> Mixer:
        """One mixer of one direction."""
        return MLSTM(self, spec)


class MLSTM(Mixer):
    """C_t = f_t C_{t-1} + i_t k_t v_t^T, n_t = f_t n_{t-1} + i_t k_t, o_t = C_t^T q_t / max(|n_t . q_t|, 1).

    f_t = s(w_f x_t + b_f), i_t = exp(w_i x_t + b_i), keys divided by sqrt(h), and y = W_o (LN(o) * s(W_g x))
    with a norm of each head. Beck et al. 2024, "xLSTM: Extended Long Short-Term Memory", equations 19 to 27,
    stabilised as in their appendix: exp(m_t) is taken out of C and n, with m_t = max(log f_t + m_{t-1},
    log i_t). b_f begins between 3 and 6, as in their code, b_i at 0.
    The state while decoding is ([C | n], m), `[rows, H, h, h + 1]` and `[rows, H]`, in float32 at least.
    """

    def __init__(self, config: MLSTMConfig, spec: StackSpec) -> None:
        super().__init__()
        self.heads, self.size = config.heads_in(spec), config.head_size(spec)
        width, inner = spec.mixer_width, self.heads * self.size
        self.query = Linear(width, inner, bias=False, role="self_attention")
        self.key = Linear(width, inner, bias=False, role="self_attention")
        self.value = Linear(width, inner, bias=False)
        self.gates = Linear(width, 2 * self.heads, bias=False, parts=2)
        self.gate_bias = nn.Parameter(
            torch.stack((torch.zeros(self.heads), torch.linspace(3.0, 6.0, self.heads)))
        )
        norm = HeadLayerNorm(self.heads, self.size, eps=HEAD_EPS)
        self.output = GatedOutput(spec, norm, heads=self.heads, size=self.size, activation=torch.sigmoid)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Mix `[B, T, d_in]`; padding on the right is seen by nobody before it."""
        return self.output(matrix_lstm(*self._parts(x)), x)

    def init_state(self, rows: int, like: Tensor) -> State:
        """Nothing stored, and m = 0."""
        wide = torch.promote_types(like.dtype, torch.float32)
        return (
            like.new_zeros(rows, self.heads, self.size, self.size + 1, dtype=wide),
            like.new_zeros(rows, self.heads, dtype=wide),
        )

    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        """Steps on `[rows, T, d_in]`, in chunks."""
        parts = self._parts(x)
        if x.size(1) == 1:
            seen, following = matrix_lstm_step(state, *(part.squeeze(2) for part in parts))
            return self.output(seen.unsqueeze(2), x), following
        seen, following = matrix_lstm_continued(state, *parts)
        return self.output(seen, x), following

    def _parts(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor]:
        """Queries, keys and values `[B, H, T, h]`, and both gates before their functions `[B, H, T]`."""
        query, key, value = (split_heads(each(x), self.heads) for each in (self.query, self.key, self.value))
        gates = self.gates(x)
        wide = torch.promote_types(gates.dtype, torch.float32)
        gates = gates.to(wide).unflatten(-1, (2, self.heads)) + self.gate_bias.to(wide)
        input_gate, forget_gate = gates.permute(2, 0, 3, 1).unbind()
        return query, key, value, input_gate, forget_gate


def matrix_lstm(query: Tensor, key: Tensor, value: Tensor, input_gate: Tensor, forget_gate: Tensor) -> Tensor:
    """The cell of `MLSTM` over all positions, in chunks.

    Divided by exp(m_t), the cell is a state that decays by exp(log f_t + m_{t-1} - m_t) and takes keys times
    exp(log i_t - m_t), both 1 at most.

    Args:
        query, key: `[B, H, T, h]`, T at least 1; keys not yet divided by sqrt(h).
        value: `[B, H, T, n]`.
        input_gate, forget_gate: Before their functions, `[B, H, T]`.

    Returns:
        o, `[B, H, T, n]`, in float32 at least.
    """
    stored, counted, decay, level = _cell_inputs(key, value, input_gate, forget_gate)
    return _normalised(gated_product(query, stored, counted, decay), level)


def matrix_lstm_continued(
    state: State, query: Tensor, key: Tensor, value: Tensor, input_gate: Tensor, forget_gate: Tensor
) -> tuple[Tensor, State]:
    """`matrix_lstm` from a state on, and the next state ([C | n], m)."""
    cell, before = state
    stored, counted, decay, level = _cell_inputs(key, value, input_gate, forget_gate, before)
    mixed = gated_product(query, stored, counted, decay, cell)
    return _normalised(mixed, level), (gated_state(stored, counted, decay, cell), level[..., -1])


def _cell_inputs(
    key: Tensor, value: Tensor, input_gate: Tensor, forget_gate: Tensor, first: Tensor | None = None
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """Keys, values and log decays of the cell as a decaying state, and m, from `first` `[B, H]` or 0 on."""
    wide = torch.promote_types(key.dtype, torch.float32)
    log_input, log_forget = input_gate.to(wide), logsigmoid(forget_gate.to(wide))
    with torch.no_grad():  # the result does not depend on it
        level = _levels(log_input, log_forget, first)
        before = pad(level, (1, 0))[..., :-1]
        if first is not None:
            before = torch.cat((first.unsqueeze(-1), level[..., :-1]), -1)
    decay, strength = log_forget + before - level, (log_input - level).exp()
    stored = key.to(wide) * (strength * key.size(-1) ** -0.5).unsqueeze(-1)
    return stored, pad(value.to(wide), (0, 1), value=1.0), decay.unsqueeze(-1), level


def matrix_lstm_step(
    state: State, query: Tensor, key: Tensor, value: Tensor, input_gate: Tensor, forget_gate: Tensor
) -> tuple[Tensor, State]:
    """One position of `matrix_lstm`: o `[..., n]`, and the next state ([C | n], m); without the axis T."""
    cell, before = state
    log_input, log_forget = input_gate.to(cell.dtype), logsigmoid(forget_gate.to(cell.dtype))
    level = torch.maximum(log_forget + before, log_input)
    decay, strength = log_forget + before - level, (log_input - level).exp()
    stored = key.to(cell.dtype) * (strength * key.size(-1) ** -0.5).unsqueeze(-1)
    counted = pad(value.to(cell.dtype), (0, 1), value=1.0)
    mixed, cell = gated_step(cell, query, stored, counted, decay.unsqueeze(-1))
    return _normalised(mixed, level), (cell, level)


def _levels(log_input: Tensor, log_forget: Tensor, first: Tensor | None = None) -> Tensor:
    """m_t = max(log f_t + m_{t-1}, log i_t) from m_0 = `first` or 0, `[B, H, T]`."""
    if is_exporting():
        first = torch.zeros_like(log_input[..., 0]) if first is None else first
        inputs = (log_forget.movedim(-1, 0), log_input.movedim(-1, 0))
        levels, _ = over_positions(lambda m, now: (torch.maximum(now[0] + m[0], now[1]),), (first,), inputs)
        return levels.movedim(1, -1)
    kept = log_forget.cumsum(-1)
    highest = (log_input - kept).cummax(-1).values
    return kept + (highest.clamp(min=0) if first is None else torch.maximum(highest, first.unsqueeze(-1)))


def _normalised(mixed: Tensor, level: Tensor) -> Tensor:
    """C^T q / (max(|n . q|, exp(-m)) + eps), of both products side by side, `[..., n + 1]`."""
    value, count = mixed[..., :-1], mixed[..., -1:]
    least = (-level).exp().unsqueeze(-1)
    return value / (torch.maximum(count.abs(), least) + _EPS)
