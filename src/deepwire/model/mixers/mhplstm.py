"""Multi-head highly parallelised LSTM (MHPLSTM): gates and hidden states of all positions at once.

Xu et al. 2021, "Multi-Head Highly Parallelized LSTM Decoder for Neural Machine Translation". The gates see
the input and the sum of the inputs before it, not the last output, so that only an element-wise recurrence
runs over time. Where the released code (Neutron) differs, there is an option.
"""

from __future__ import annotations

import math
from typing import Literal

import torch
from pydantic import Field, model_validator
from torch import Tensor, nn
from torch.nn import functional

from deepwire.config.counts import MAX_SIZE
from deepwire.model.context import Context
from deepwire.model.layers import ACTIVATIONS, ActivationName, of_languages
from deepwire.model.mixers.both_directions import backward_order, turn
from deepwire.model.mixers.mixer import Mixer, MixerSection, State
from deepwire.model.stack_spec import StackSpec
from deepwire.ops.dropout import Dropout
from deepwire.ops.linear_recurrence import linear_recurrence, sum_of_past
from deepwire.ops.lstm_unit import head_cells


class MHPLSTMConfig(MixerSection):
    """Multi-head highly parallelised LSTM; in an encoder one half of the heads reads from the right."""

    type: Literal["mhplstm"] = "mhplstm"
    reads_any_width = True

    heads: int | None = Field(
        None,
        ge=1,
        le=MAX_SIZE,
        description="LSTMs side by side, in each direction; the model's heads without it",
    )
    hidden: Literal["one_layer", "two_layer"] = Field(
        "two_layer", description="hidden state: Eq. 13 (one_layer) or Eq. 14 (two_layer) of the paper"
    )
    gates: Literal["one_layer", "two_layer"] = Field(
        "one_layer",
        description="input and forget gate: Eq. 11 and 12 (one_layer), or each with a network like that of "
        "Eq. 14 in the place of its linear map (two_layer, Table 4)",
    )
    hidden_size: int | None = Field(
        None,
        ge=1,
        le=MAX_SIZE,
        description="width of a two-layer hidden state, and of each two-layer gate, before its activation, "
        "all heads of a direction together; feed_forward without it",
    )
    activation: ActivationName = Field(
        "relu", description="of the hidden state and of two-layer gates; glu with two_layer only"
    )
    norms: Literal["per_head", "joint"] = Field(
        "per_head",
        description="layer norms of each head and gate alone, as in the equations, or with one mean and "
        "variance for all heads and gates together, as released",
    )
    initial_cell: Literal["learned", "zero"] = Field(
        "learned", description="the cell before the first position"
    )
    bias: bool = Field(
        False, description="biases of the equations; the released code has none unless asked for"
    )

    @model_validator(mode="after")
    def _hidden_fits(self) -> MHPLSTMConfig:
        if self.hidden == "one_layer":
            if self.activation == "glu":
                raise ValueError("activation: glu halves the width, so it needs hidden: two_layer")
            if self.hidden_size is not None and self.gates == "one_layer":
                raise ValueError(
                    "hidden_size is that of hidden: two_layer; one_layer has no width of its own"
                )
        return self

    def check(self, spec: StackSpec) -> None:
        """Heads that are wide enough, and that divide the hidden state."""
        heads = self.heads or spec.heads
        for width in (spec.mixer_width, spec.dim):
            if _head_dim(width, heads) == 0:
                raise ValueError(
                    f"{spec.side}.mixer.heads: width {width} is too small for {heads} heads of an mhplstm"
                )
        size = self.hidden_size or spec.feed_forward
        unit = heads * ACTIVATIONS[self.activation][1]
        if "two_layer" in (self.hidden, self.gates) and size % unit:
            raise ValueError(
                f"{spec.side}.mixer.hidden_size: {heads} heads of an mhplstm with {self.activation} need "
                f"a multiple of {unit}, not {size}"
            )

    def build(self, spec: StackSpec) -> Mixer:
        """One mixer of the stack; in an encoder it reads in both directions."""
        return MHPLSTM(self, spec)


class MHPLSTM(Mixer):
    """W_m [o^1 | ... | o^H] + b_m, o^k = HPLSTM^k(i^k), [i^1 | ... | i^H] = W_s x + b_s (Eq. 19 to 21).

    Maps vectors of width `spec.mixer_width` to `spec.dim`. In an encoder there are H heads
    more, which read each sentence from its last word to its first; padding, on the right, then comes last in
    both directions and is never seen.
    The state while decoding is (sum of i, cell), `[rows, H, dh]` and `[rows, H, do]`, in float32 at least.
    """

    def __init__(self, config: MHPLSTMConfig, spec: StackSpec) -> None:
        super().__init__()
        heads = config.heads or spec.heads
        inputs, outputs = spec.mixer_width, spec.dim
        self.directions = 1 if spec.causal else 2
        self.heads = self.directions * heads
        self.input_dim = _head_dim(inputs, heads)
        self.output_dim = _head_dim(outputs, heads)
        self.input = nn.Linear(inputs, self.heads * self.input_dim, bias=config.bias)
        inner = (config.hidden_size or spec.feed_forward) // heads
        self.cells = HeadCells(config, spec, self.heads, self.input_dim, self.output_dim, inner)
        self.output = nn.Linear(self.heads * self.output_dim, outputs, bias=config.bias)

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Mix `[B, T, d]`; see the base class."""
        order = backward_order(x, context.padding) if self.directions == 2 else None
        inputs = _turn_second_half(self.input(x), order)
        cell = self.cells.initial_cell(x)
        mixed = self.cells.together(inputs, cell)
        if mixed is None:
            split = inputs.view(*x.shape[:2], self.heads, self.input_dim)
            # Heads first makes batched products of the maps, and time next one block of each position.
            by_head = split.permute(2, 1, 0, 3).contiguous()
            past = sum_of_past(by_head.transpose(0, 1)).transpose(0, 1)
            mixed, _ = self._over(by_head, past, cell.unsqueeze(1), context)
        return self.output(_turn_second_half(mixed, order))

    def init_state(self, rows: int, like: Tensor) -> State:
        """Nothing summed yet, and the first cell."""
        if self.directions == 2:
            raise NotImplementedError("an MHPLSTM of an encoder reads whole sentences, not step by step")
        wide = torch.promote_types(like.dtype, torch.float32)
        nothing = like.new_zeros(rows, self.heads, self.input_dim, dtype=wide)
        cell = self.cells.initial_cell(like).to(wide)
        return (nothing, cell.expand(rows, -1, -1))

    def step(self, x: Tensor, state: State, context: Context) -> tuple[Tensor, State]:
        """Read `[rows, T, d]`: as `forward`, from other sums and another cell on."""
        split = self.input(x).view(*x.shape[:2], self.heads, self.input_dim)
        by_head = split.permute(2, 1, 0, 3)
        sums, cell = (kept.transpose(0, 1) for kept in state)
        if x.size(1) == 1:
            past = sums.unsqueeze(1)
            forget_gate, update = self.cells.gates(by_head, past, context)
            cells = torch.addcmul(update, forget_gate, cell.unsqueeze(1))
            mixed = self.cells.gated_output(by_head, cells, context)
        else:
            by_head = by_head.contiguous()
            past = sum_of_past(by_head.transpose(0, 1)).transpose(0, 1) + sums.unsqueeze(1)
            mixed, cells = self._over(by_head, past, cell, context)
        following = past[:, -1] + by_head[:, -1], cells[:, -1]
        return self.output(mixed), tuple(each.transpose(0, 1) for each in following)

    def _over(self, by_head: Tensor, past: Tensor, cell: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Outputs `[B, T, H do]` and cells `[H, T, B, do]` of all positions, from a cell on."""
        forget_gate, update = self.cells.gates(by_head, past, context)
        cells = linear_recurrence(forget_gate.transpose(0, 1), update.transpose(0, 1), cell).transpose(0, 1)
        return self.cells.gated_output(by_head, cells, context), cells


class HeadCells(nn.Module):
    """The cells of all heads at once (Eq. 9 to 18); vectors are `[H, T, B, width]`.

    The maps of everything that reads [i_t | LN(s_t)] are one: input gate and forget gate or their first
    layers, and the hidden state or its first layer. Two-layer gates (Table 4) are
    sigma(LN(W_2 act(LN(W_1 v)))) with W_1, W_2 and norms of each gate's own; dropout is where that of the
    hidden state is, after the activation.
    """

    def __init__(
        self, config: MHPLSTMConfig, spec: StackSpec, heads: int, inputs: int, outputs: int, inner: int
    ) -> None:
        super().__init__()
        self.two_layer, self.deep_gates = config.hidden == "two_layer", config.gates == "two_layer"
        self.activation, narrows = ACTIVATIONS[config.activation]
        usual = config.activation == "relu" and config.norms == "per_head" and not config.bias
        self.in_one = usual and self.two_layer and not self.deep_gates and not spec.languages
        self.widths = (2 * (inner if self.deep_gates else outputs), inner if self.two_layer else outputs)
        self.shape = (heads, outputs)

        def norm(parts: int, dim: int) -> HeadNorm:
            joint = config.norms == "joint"
            return HeadNorm(heads, parts, dim, eps=spec.norm_eps, joint=joint, languages=spec.languages)

        self.past_norm = norm(1, inputs)
        self.mix = HeadLinear(heads, 2 * inputs, sum(self.widths), bias=config.bias)
        if self.deep_gates:
            self.inner_gate_norm = norm(2, inner)
            self.gate_outputs = nn.ModuleList(
                HeadLinear(heads, inner // narrows, outputs, bias=config.bias) for _ in range(2)
            )
        # The norm of a one-layer hidden state is one with that of one-layer gates: they may be joint.
        self.gate_norm = norm(2 if self.two_layer or self.deep_gates else 3, outputs)
        if self.two_layer or self.deep_gates:
            self.hidden_norm = norm(1, self.widths[1])
        if self.two_layer:
            self.hidden_output = HeadLinear(heads, inner // narrows, outputs, bias=config.bias)
            self.hidden_dropout = Dropout(spec.dropout.sublayer)
        self.activation_dropout = Dropout(spec.dropout.activation)
        self.output_gate = HeadLinear(heads, inputs + outputs, outputs, bias=config.bias)
        self.output_norm = norm(1, outputs)
        learned = config.initial_cell == "learned"
        self.initial = nn.Parameter(torch.zeros(self.shape)) if learned else None

    def initial_cell(self, like: Tensor) -> Tensor:
        """The cell before the first position, `[H, do]`."""
        return like.new_zeros(self.shape) if self.initial is None else self.initial

    def together(self, inputs: Tensor, cell: Tensor) -> Tensor | None:
        """Outputs `[B, T, H do]` of `[B, T, H dh]` from a cell on; None: take the parts."""
        # A tape of the encoder (`deepwire.ops.cpu_tape`) sees no functions in C.
        if not self.in_one or not torch.is_grad_enabled() or torch.compiler.is_compiling():
            return None
        norms = self.past_norm, self.gate_norm, self.hidden_norm, self.output_norm
        maps = self.mix.weight, self.hidden_output.weight, self.output_gate.weight
        tables = [table for norm in norms for table in (norm.weight, norm.bias)]
        drops = self.activation_dropout, self.hidden_dropout
        first, second = (drop.probability if drop.training else 0.0 for drop in drops)
        return head_cells(inputs, cell.float(), maps, tables, (self.past_norm.eps, first, second))

    def gates(self, inputs: Tensor, past: Tensor, context: Context) -> tuple[Tensor, Tensor]:
        """Forget gate f and update r = h * i of inputs i_t and sums s_t of the inputs before them."""
        normal = self.past_norm(past.to(inputs.dtype), context).squeeze(-2)
        seen = torch.cat((inputs, normal.to(inputs.dtype)), -1)  # Eq. 10
        mixed = self.mix(seen)
        if self.two_layer or self.deep_gates:
            of_gates, of_hidden = mixed.split(self.widths, -1)
            normal = self.gate_norm(self._second_layer(of_gates, context), context)
            hidden = self.activation(self.hidden_norm(of_hidden, context).squeeze(-2))  # Eq. 13
        else:
            normal = self.gate_norm(mixed, context)
            hidden = self.activation(normal[..., 2, :])  # Eq. 13
        # Each gate alone, so that its positions lie together in memory. What a cell keeps is multiplied over
        # many positions, and bfloat16 has no number between 0.996 and 1: so in float32 at least.
        input_gate = normal[..., 0, :].sigmoid()  # Eq. 11
        wide = torch.promote_types(normal.dtype, torch.float32)
        forget_gate = normal[..., 1, :].to(wide).sigmoid()  # Eq. 12
        hidden = self.activation_dropout(hidden)
        if self.two_layer:  # Eq. 14
            hidden = self.hidden_dropout(self.hidden_output(hidden))
        return forget_gate, hidden * input_gate  # Eq. 15

    def _second_layer(self, of_gates: Tensor, context: Context) -> Tensor:
        """Inputs of the norms of the two gates, `[H, T, B, 2 do]`, from the maps of v_t."""
        if not self.deep_gates:
            return of_gates
        active = self.activation_dropout(self.activation(self.inner_gate_norm(of_gates, context)))
        inner = (part.contiguous() for part in active.unbind(-2))
        return torch.cat([output(each) for output, each in zip(self.gate_outputs, inner, strict=True)], -1)

    def gated_output(self, inputs: Tensor, cell: Tensor, context: Context) -> Tensor:
        """The cells behind the output gate (Eq. 17 and 18), `[B, T, H do]`."""
        cell = cell.to(inputs.dtype)
        gate = self.output_gate(torch.cat((inputs, cell), -1))
        gated: Tensor = cell * self.output_norm(gate, context).squeeze(-2).sigmoid()
        return gated.permute(2, 1, 0, 3).flatten(2)


def _head_dim(width: int, heads: int) -> int:
    """Width of one head: width / heads, rounded up, and down to an even number (as released)."""
    return math.ceil(width / heads) // 2 * 2


def _turn_second_half(x: Tensor, order: Tensor | None) -> Tensor:
    """Turn the second half of the features of `[B, T, n]` around in time; unchanged without an order."""
    if order is None:
        return x
    ahead, back = x.chunk(2, -1)
    return torch.cat((ahead, turn(back, order)), -1)


class HeadLinear(nn.Module):
    """y^k = x^k W^k + b^k for every head k.

    Attributes:
        weight: `[heads, inputs, outputs]`, begins uniform in +-1/sqrt(inputs), whatever the initialisation.
        bias: `[heads, 1, outputs]`, begins at 0; None without it.
    """

    def __init__(self, heads: int, inputs: int, outputs: int, *, bias: bool) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.empty(heads, inputs, outputs))
        nn.init.uniform_(self.weight, -(inputs**-0.5), inputs**-0.5)
        self.bias = nn.Parameter(torch.zeros(heads, 1, outputs)) if bias else None

    def forward(self, x: Tensor) -> Tensor:
        """Map `[heads, ..., inputs]` to `[heads, ..., outputs]`."""
        rows = x.flatten(1, -2)
        if self.bias is None:
            mapped = torch.bmm(rows, self.weight)
        else:
            mapped = torch.baddbmm(self.bias, rows, self.weight)
        return mapped.view(*x.shape[:-1], mapped.size(-1))


class HeadNorm(nn.Module):
    """Layer norm of `parts` vectors of width `dim` in every head, each with its own gain and bias.

    Each vector has its own statistics, as in the equations of Xu et al. 2021, where heads do not see each
    other; with `joint`, all parts of all heads have one mean and one variance, as in the released code.
    With L languages, each target language has its own gains and biases: `[L, heads, parts, dim]`.
    """

    def __init__(
        self, heads: int, parts: int, dim: int, *, eps: float, joint: bool, languages: int = 0
    ) -> None:
        super().__init__()
        self.eps, self.joint, self.languages = eps, joint, languages
        self.shape = (heads, parts, dim)
        table = (languages, *self.shape) if languages else self.shape
        self.weight = nn.Parameter(torch.ones(table))
        self.bias = nn.Parameter(torch.zeros(table))

    def forward(self, x: Tensor, context: Context) -> Tensor:
        """Normalise `[heads, T, B, parts * dim]`; the result is `[heads, T, B, parts, dim]`."""
        x = x.view(*x.shape[:-1], *self.shape[1:])
        if self.joint:
            together = x.permute(1, 2, 0, 3, 4)
            if self.languages:
                normal = functional.layer_norm(together, self.shape, None, None, self.eps)
                gain, shift = (
                    of_languages(table, context.languages).to(x.dtype) for table in (self.weight, self.bias)
                )
                together = torch.addcmul(shift, normal, gain)
            else:
                together = functional.layer_norm(together, self.shape, self.weight, self.bias, self.eps)
            return together.permute(2, 0, 1, 3, 4)
        # A fused kernel has one gain for all rows, so the gains of the heads are applied after it, in the
        # type of the vectors: wider gains would widen all that follows.
        normal = functional.layer_norm(x, self.shape[-1:], None, None, self.eps)
        gain, shift = (self._by_head(table, context).to(normal.dtype) for table in (self.weight, self.bias))
        return torch.addcmul(shift, normal, gain)

    def _by_head(self, table: Tensor, context: Context) -> Tensor:
        """Gains or biases as `[heads, 1, B or 1, parts, dim]`."""
        if not self.languages:
            return table[:, None, None]
        return of_languages(table, context.languages).transpose(0, 1).unsqueeze(1)
