"""A unit of a depth-wise LSTM, or the cells of an MHPLSTM, in one function that keeps little for gradients.

Norms, gates and activations are computed again in the backward pass. On a CPU, all between the products is
functions in C (`lstm_unit.c`), which go over the numbers once; torch makes some sixty passes.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx, once_differentiable
from torch.nn import functional

from deepwire.ops.compiled_c import compiled_library
from deepwire.ops.dropout import keep_mask
from deepwire.ops.precision import product_type

_SOURCE = Path(__file__).with_suffix(".c")
# Sums are vectorised.
_SUMS = ("-fno-signed-zeros", "-fassociative-math", "-freciprocal-math")


class UnitOptions(NamedTuple):
    """Settings of a unit.

    Attributes:
        activation: Of the hidden state: maps `[..., inner]` to what its second map reads.
        eps: Of all norms.
        joint: Whether the gates have one mean and one variance.
        inner_dropout: Probability of dropout after the activation.
        dropout: Probability of dropout after the second map of the hidden state.
    """

    activation: Callable[[Tensor], Tensor]
    eps: float
    joint: bool
    inner_dropout: float
    dropout: float


def lstm_unit(
    state: tuple[Tensor, Tensor],
    merged: Tensor,
    gates: tuple[Tensor, Tensor, Tensor],
    hidden: tuple[Tensor, Tensor, Tensor],
    second: Tensor | None,
    options: UnitOptions,
) -> tuple[Tensor, Tensor]:
    """Output and cell of a unit, `[..., d]`: Xu et al. 2024, Eq. 1 to 8, without biases of the maps.

    Without an output gate, the merged outputs are added to the cell, which is the output, too.

    Args:
        state: Output and cell of the unit below, `[..., d]`.
        merged: The merged outputs of attention, `[..., n]`.
        gates: The map of input, forget and output gate, `[3 d, d + n]`; gain and bias of its norm, `[3, d]`.
            Without an output gate `[2 d, 2 d]` and `[2, d]`.
        hidden: The first map of the hidden state, `[inner, d + n]`; gain and bias of its norm, `[inner]`.
        second: Its second map, `[d, inner]` or `[d, inner / 2]`; None: there is none.
        options: See there.
    """
    made: tuple[Tensor, ...] = _LstmUnit.apply(  # type: ignore[no-untyped-call]
        *state, merged, *gates, *hidden, second, options
    )
    return made[0], made[-1]


def pays(state: tuple[Tensor, Tensor], options: UnitOptions) -> bool:
    """Whether `lstm_unit` trains better than the parts one by one: not on CPUs without a C compiler."""
    below, cell = state
    return below.is_cuda or _library(product_type(below), cell, options) is not None


class _Context(FunctionCtx):
    saved_tensors: tuple[Any, ...]
    options: UnitOptions
    scales: tuple[float, float]


class _LstmUnit(torch.autograd.Function):
    """Keeps what it reads, what the first product gives, the hidden state, and masks of dropout."""

    @staticmethod
    def forward(ctx: _Context, *given: Any) -> tuple[Tensor, ...]:
        below, cell, merged, gates, gain, shift, hidden, hidden_gain, hidden_shift, second, options = given
        kind, shape, width = product_type(below), cell.shape, gain.numel()
        below, cell, merged = (x.flatten(0, -2).contiguous() for x in (below, cell, merged))
        maps = _joined(gates, hidden, kind, 0)
        mapped = _joined(below, merged, kind, 1) @ maps.t()
        library, measures = _library(kind, cell, options), _measures(mapped, gain, options)
        direct = merged.to(kind) if len(gain) == 2 else None
        inner = mapped.new_empty(len(cell), second.size(1) if second is not None else cell.size(1))
        inner_mask, inner_scale = keep_mask(inner, options.inner_dropout)
        if library is None:
            (active,) = _active(mapped[:, width:], hidden_gain, hidden_shift, options)
            inner = _dropped(active.to(kind), inner_mask, inner_scale)
        else:
            read = (mapped, hidden_gain, hidden_shift, inner_mask)
            _run(library.hidden, len(cell), len(hidden), 2, *measures, inner_scale, *read, inner)
        state, mask, scale = inner, None, 1.0
        if second is not None:
            second = second.to(kind)
            state = inner @ second.t()
            mask, scale = keep_mask(state, options.dropout)
        if library is None:
            state = _dropped(state, mask, scale)
            results = _cell(mapped[:, :width], gain, shift, state, cell, options)
            results = results if direct is None else (results[0] + direct,)
        else:
            results = tuple(torch.empty_like(cell) for _ in range(len(gain) - 1))
            output = results[0] if direct is None else None
            places = (mapped, gain, shift, mask, state, direct, cell, output, results[-1])
            _run(library.cell, *cell.shape, *measures, scale, *places)
        kept = (below, cell, merged, maps, gain, shift, hidden_gain, hidden_shift, second)
        ctx.save_for_backward(*kept, mapped, state, inner_mask, mask)  # type: ignore[arg-type]
        ctx.options, ctx.scales = options, (inner_scale, scale)
        return tuple(each.view(shape) for each in results)

    @staticmethod
    @once_differentiable
    def backward(ctx: _Context, *given: Tensor) -> tuple[Tensor | None, ...]:
        below, cell, merged, maps, gain, shift, hidden_gain, hidden_shift, second, *rest = ctx.saved_tensors
        mapped, state, inner_mask, mask = rest
        options, (inner_scale, scale), shape, width = ctx.options, ctx.scales, given[0].shape, gain.numel()
        function: Callable[..., tuple[Tensor, ...]]
        inputs: tuple[Tensor, ...]
        places: tuple[Tensor | None, ...]
        of_results = tuple(x.flatten(0, -2).contiguous() for x in given)
        of_output = of_results[0] if len(gain) == 3 else None
        of_mapped, of_cell, of_state = (torch.empty_like(x) for x in (mapped, cell, state))
        library, measures = _library(mapped.dtype, cell, options), _measures(mapped, gain, options)
        if library is None:
            function, inputs = partial(_cell, options=options), (mapped[:, :width], gain, shift, state, cell)
            found, _ = _pulled(function, inputs, of_results)
            of_mapped[:, :width], of_gain, of_shift, of_state, of_cell = found
            of_state = _dropped(of_state, mask, scale)
        else:
            places = (mapped, gain, shift, mask, state, cell, of_output, of_results[-1])
            places += (of_cell, of_state, of_mapped)
            sums = _run(library.cell_back, *cell.shape, *measures, scale, *places, sums=width)
            of_gain, of_shift = sums.view(2, *gain.shape)
        of_inner = of_state if second is None else of_state @ second
        if library is None:
            function = partial(_active, options=options)
            inputs = mapped[:, width:], hidden_gain, hidden_shift
            found, (inner,) = _pulled(function, inputs, (_dropped(of_inner, inner_mask, inner_scale),))
            of_mapped[:, width:], of_hidden_gain, of_hidden_shift = found
            inner = _dropped(inner.to(mapped.dtype), inner_mask, inner_scale)
        else:
            inner, length = of_inner, hidden_gain.numel()
            measures = (length, 2, *measures, inner_scale)
            places = (mapped, hidden_gain, hidden_shift, inner_mask, inner, of_mapped)
            sums = _run(library.hidden_back, len(cell), *measures, *places, sums=length)
            of_hidden_gain, of_hidden_shift = sums
        of_below, of_merged = (of_mapped @ maps).split((below.size(1), merged.size(1)), -1)
        if of_output is None:
            of_merged = of_merged + of_results[-1].to(mapped.dtype)
        of_maps = _of_weight(of_mapped, _joined(below, merged, mapped.dtype, 1))
        return (
            *(of_below.view(shape), of_cell.view(shape), of_merged.view(*shape[:-1], merged.size(1))),
            *(of_maps[:width], of_gain, of_shift, of_maps[width:], of_hidden_gain, of_hidden_shift),
            *(None if second is None else _of_weight(of_state, inner), None),
        )


def head_cells(
    inputs: Tensor,
    initial: Tensor,
    maps: tuple[Tensor, Tensor, Tensor],
    norms: Sequence[Tensor],
    options: tuple[float, float, float],
) -> Tensor | None:
    """Outputs `[B, T, H m]` of H heads: Xu et al. 2021, Eq. 9 to 18, with ReLU, without biases of the maps.

    None where no functions in C know such numbers.

    Args:
        inputs, initial: `[B, T, H n]`, and the first cells, `[H, m]`.
        maps: Of [i_t | LN(s_t)] to both gates and the hidden state, `[H, 2 n, 2 m + inner]`; the second of
            the hidden state, `[H, inner, m]`; of [i_t | c_t] to the output gate, `[H, n + m, m]`.
        norms: Gain and bias, `[H, parts, width]`, for s_t, gates, hidden state and output gate.
        options: Eps, and the probabilities of dropout as in `UnitOptions`.
    """
    if _functions(product_type(inputs), norms[0]) is None:
        return None
    made: Tensor = _HeadCells.apply(options, inputs, initial, *maps, *norms)  # type: ignore[no-untyped-call]
    return made


class _HeadCells(torch.autograd.Function):
    """Keeps what the products read and give, but for the hidden state, and masks of dropout."""

    @staticmethod
    def forward(ctx: Any, options: tuple[float, float, float], *given: Tensor) -> Tensor:
        inputs, initial, mix, second, gate, *norms = given
        inputs = inputs.to(product_type(inputs)).contiguous()
        (batch, length, _), (heads, width), read = inputs.shape, initial.shape, mix.size(1) // 2
        gate = torch.cat((gate[:, read:], gate[:, :read]), 1)  # cells lie before inputs
        mix, second, gate = (each.to(inputs.dtype) for each in (mix, second, gate))
        past, gates, hidden, output = zip(norms[::2], norms[1::2], strict=True)
        run = _runner(inputs.shape, initial, mix, options[0])
        seen = inputs.new_empty(heads, length * batch, width + 2 * read)
        run("past", 1.0, inputs, *past, seen)
        mapped = torch.bmm(seen[..., width:], mix)
        inner = inputs.new_empty(*seen.shape[:2], second.size(1))
        inner_mask, inner_scale = keep_mask(inner, options[1])
        run("relu", inner_scale, mapped, *hidden, inner_mask, inner)
        state = torch.bmm(inner, second)
        mask, scale = keep_mask(state, options[2])
        run("cells", scale, mapped, *gates, mask, state, initial, seen)
        opened = torch.bmm(seen[..., : width + read], gate)
        outputs = inputs.new_empty(batch, length, heads * width)
        run("gated", 1.0, opened, *output, seen, outputs)
        ctx.save_for_backward(
            initial, mix, second, gate, inner_mask, mask, seen, mapped, state, opened, *norms
        )
        ctx.options = inputs.shape, options[0], inner_scale, scale
        return outputs

    @staticmethod
    @once_differentiable
    def backward(ctx: Any, of_outputs: Tensor) -> tuple[Tensor | None, ...]:
        initial, mix, second, gate, inner_mask, mask, seen, mapped, state, opened, *norms = ctx.saved_tensors
        past, gates, hidden, output = zip(norms[::2], norms[1::2], strict=True)
        shape, eps, inner_scale, scale = ctx.options
        run, (heads, width) = _runner(shape, initial, mix, eps), initial.shape
        of_gate, of_state, of_mapped = (torch.empty_like(each) for each in (opened, state, mapped))
        of_initial, of_inputs = initial.new_zeros(heads, shape[0], width), mapped.new_empty(shape)
        of_outputs = of_outputs.contiguous()
        of_output = run("gated_back", 1.0, opened, *output, seen, of_outputs, of_gate, of_state)
        of_pair = torch.bmm(of_gate, gate.transpose(1, 2))
        of_gate = torch.bmm(seen[..., : gate.size(1)].transpose(1, 2), of_gate)
        of_gate = torch.cat((of_gate[:, width:], of_gate[:, :width]), 1)
        read = mapped, *gates, mask, state, initial, seen, of_pair
        of_gates = run("cells_back", scale, *read, of_state, of_mapped, of_initial)
        inner = torch.bmm(of_state, second.transpose(1, 2))  # its gradient, until the next call
        of_hidden = run("relu_back", inner_scale, mapped, *hidden, inner_mask, inner, of_mapped)
        of_second = torch.bmm(inner.transpose(1, 2), of_state)
        of_seen = torch.bmm(of_mapped, mix.transpose(1, 2))
        of_mix = torch.bmm(seen[..., width:].transpose(1, 2), of_mapped)
        of_past = run("past_back", 1.0, seen, *past, of_seen, of_pair, of_inputs)
        of_norms = (*of_past, *of_gates, *of_hidden, *of_output)
        return None, of_inputs, of_initial.sum(1), of_mix, of_second, of_gate, *of_norms


def _runner(shape: torch.Size, initial: Tensor, mix: Tensor, eps: float) -> Callable[..., tuple[Tensor, ...]]:
    """Calls a function in C with a scale and its arguments, then gain and bias; gives gradients of these."""
    library, (heads, width), (_, inputs, span) = _functions(mix.dtype, initial), initial.shape, mix.shape
    measures = heads, shape[1], shape[0], inputs // 2, width, span, mix.dtype != torch.float32, eps

    def run(name: str, *arguments: Any) -> tuple[Tensor, ...]:
        gain = arguments[2]
        sums = gain.numel() if name.endswith("_back") else 0
        total = _run(getattr(library, name), shape[0], *measures, *arguments, sums=sums)
        return total.view(heads, 2, *gain.shape[1:]).unbind(1) if sums else ()

    return run


def _active(x: Tensor, gain: Tensor, shift: Tensor, options: UnitOptions) -> tuple[Tensor]:
    """The hidden state behind its activation, in float32 at least."""
    wide = torch.promote_types(x.dtype, torch.float32)
    x, gain, shift = (each.to(wide) for each in (x, gain, shift))
    return (options.activation(functional.layer_norm(x, gain.shape, gain, shift, options.eps)),)


def _cell(
    x: Tensor, gain: Tensor, shift: Tensor, state: Tensor, cell: Tensor, options: UnitOptions
) -> tuple[Tensor, ...]:
    """Output and cell from what the norms of the gates read, the hidden state, and the cell below.

    Without an output gate, the cell alone.
    """
    x = x.to(torch.promote_types(x.dtype, torch.float32)).reshape(len(x), *gain.shape)
    over = gain.shape if options.joint else gain.shape[1:]
    normal = torch.addcmul(shift, functional.layer_norm(x, over, None, None, options.eps), gain)
    input_gate, forget_gate, *output_gate = normal.sigmoid().unbind(-2)
    above = cell * forget_gate + state * input_gate
    return (*(above * gate for gate in output_gate), above)


def _pulled(
    function: Callable[..., tuple[Tensor, ...]], inputs: Sequence[Tensor], gradients: Sequence[Tensor]
) -> tuple[tuple[Tensor, ...], tuple[Tensor, ...]]:
    """Gradients of the inputs of a function from those of its results, and these."""
    with torch.enable_grad():
        leaves = [each.detach().requires_grad_() for each in inputs]
        results = function(*leaves)
    into = [gradient.to(result.dtype) for gradient, result in zip(gradients, results, strict=True)]
    return torch.autograd.grad(results, leaves, into), tuple(each.detach() for each in results)


def _functions(kind: torch.dtype, like: Tensor) -> ctypes.CDLL | None:
    """The functions in C, where they know the formats of products and of what is kept."""
    known = kind in (torch.float32, torch.bfloat16) and like.dtype == torch.float32
    return compiled_library(_SOURCE, *_SUMS) if known and like.device.type == "cpu" else None


def _library(kind: torch.dtype, cell: Tensor, options: UnitOptions) -> ctypes.CDLL | None:
    return _functions(kind, cell) if options.activation is functional.glu else None


def _measures(mapped: Tensor, gain: Tensor, options: UnitOptions) -> tuple[float, ...]:
    """Width of a row, norms of the gates, whether numbers are narrow, and eps."""
    return mapped.size(1), 1 if options.joint else len(gain), mapped.dtype != torch.float32, options.eps


def _run(
    function: Callable[..., None], rows: int, *arguments: Tensor | float | None, sums: int = 0
) -> Tensor:
    """Call a function of `lstm_unit.c` on all rows, shared by threads; the sums, `[2, sums]`, it adds up."""
    parts = max(1, min(torch.get_num_threads(), rows))
    totals = torch.zeros(parts, 2, sums, dtype=torch.float32)
    given = [_as_c(argument) for argument in arguments]

    def work(part: int) -> None:
        place = (_as_c(totals[part]),) if sums else ()
        function(_as_c(rows * part // parts), _as_c(rows * (part + 1) // parts), *given, *place)

    if parts == 1:
        work(0)
    else:
        with ThreadPoolExecutor(parts) as pool:
            list(pool.map(work, range(parts)))
    return totals.sum(0)


def _as_c(value: Tensor | float | None) -> object:
    if value is None or isinstance(value, Tensor):
        return ctypes.c_void_p(None if value is None else value.data_ptr())
    return ctypes.c_int64(value) if isinstance(value, int) else ctypes.c_float(value)


def _dropped(x: Tensor, mask: Tensor | None, scale: float) -> Tensor:
    return x if mask is None else (x * mask).mul_(scale)


def _joined(first: Tensor, second: Tensor, kind: torch.dtype, axis: int) -> Tensor:
    """Two matrices one behind the other on that axis, in that number format."""
    shape = list(first.shape)
    shape[axis] += second.size(axis)
    both = first.new_empty(shape, dtype=kind)
    for place, part in zip(both.tensor_split([first.size(axis)], axis), (first, second), strict=True):
        place.copy_(part)
    return both


def _of_weight(gradient: Tensor, x: Tensor) -> Tensor:
    """The gradient of a weight `[out, in]` from that of its product, `[N, out]`, and its input `[N, in]`."""
    if gradient.device.type != "cpu" or gradient.element_size() != 2:
        return gradient.t() @ x
    # oneDNN takes half the time where the rows of the first matrix lie together.
    if x.size(1) < gradient.size(1):
        return (x.t().contiguous() @ gradient).t()
    return gradient.t().contiguous() @ x
