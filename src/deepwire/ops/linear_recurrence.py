"""Element-wise linear recurrences over time: the only sequential part of a parallel LSTM.

On a CPU the recurrence is one fused operation for each position, on the slices of a whole batch; on a GPU it
is one kernel (`linear_recurrence_triton`). It is behind a custom operator where a graph is compiled: that
holds one call then, whatever the length.
"""

from __future__ import annotations

import functools
import importlib
import importlib.util
from types import ModuleType

import torch
from torch import Tensor
from torch.autograd.function import FunctionCtx

from deepwire.ops.over_positions import is_exporting, over_positions

# CPU time on one thread, 64 sentences of width 256: 64 positions take this loop 0.9 ms, and scans of
# logarithmic depth, which read all data several times, 11 (Hillis and Steele) and 3.5 ms (Blelloch); 256
# positions 3.4 ms against 67 and 14. A scan wins for few long sentences only (4 of 256: 0.7 ms against 2.1).


def linear_recurrence(forget: Tensor, update: Tensor, initial: Tensor) -> Tensor:
    """c_t = keep_t * c_{t-1} + update_t, where c before the first position is `initial`.

    Xu et al. 2021 (Multi-Head Highly Parallelized LSTM Decoder), equation 16. No products of gates are
    divided by each other, so gates of any size, 0 included, are stable.

    Args:
        forget, update: `[T, ...]`, of one shape, T at least 1; fastest where the later axes lie together in
            memory.
        initial: `[...]`, or what expands to it.

    Returns:
        `[T, ...]`; in float32, and computed in it, where the arguments are narrower.
    """
    wide = torch.promote_types(torch.promote_types(forget.dtype, update.dtype), torch.float32)
    forget, update, initial = forget.to(wide), update.to(wide), initial.to(wide).expand(update.shape[1:])
    if is_exporting():  # what is exported runs without deepwire's operators
        return over_positions(_next_cell, (initial,), (forget, update))[0].transpose(0, 1)
    cells: Tensor = _Recurrence.apply(forget, update, initial)  # type: ignore[no-untyped-call]
    return cells


def _next_cell(cell: tuple[Tensor, ...], gates: tuple[Tensor, ...]) -> tuple[Tensor, ...]:
    return (torch.addcmul(gates[1], gates[0], cell[0]),)


def sum_of_past(x: Tensor) -> Tensor:
    """s_t = x_0 + ... + x_{t-1}, and 0 at the first position; Xu et al. 2021, equation 9.

    Args:
        x: `[T, ...]`, T at least 1.

    Returns:
        `[T, ...]`; in float32, and summed in it, where x is narrower.
    """
    x = x.to(torch.promote_types(x.dtype, torch.float32))
    # `cumsum` over such an axis takes a CPU several times as long.
    keep, begin = x.new_ones(()).expand_as(x), x.new_zeros(())
    sums = x.cumsum(0) if is_exporting() else linear_recurrence(keep, x, begin)
    return torch.cat((torch.zeros_like(x[:1]), sums[:-1]))


class _Context(FunctionCtx):
    saved_tensors: tuple[Tensor, ...]


class _Recurrence(torch.autograd.Function):
    """d_t = grad_t + keep_{t+1} d_{t+1} is the gradient of update_t, and d_t c_{t-1} that of keep_t."""

    @staticmethod
    def forward(ctx: _Context, forget: Tensor, update: Tensor, initial: Tensor) -> Tensor:
        run = _compiled_recur if torch.compiler.is_compiling() else _recur
        cells = run(forget, update, initial)
        ctx.save_for_backward(forget, initial, cells)
        return cells

    @staticmethod
    def backward(ctx: _Context, grad: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        run = _compiled_recur_back if torch.compiler.is_compiling() else _recur_back
        forget_grad, update_grad, initial_grad = run(grad, *ctx.saved_tensors)
        return forget_grad, update_grad, initial_grad


@functools.cache
def _kernels(device: str) -> ModuleType | None:
    """The kernels for a kind of device; None: the loops. torch brings Triton on Linux."""
    if device != "cuda" or importlib.util.find_spec("triton") is None:
        return None
    return importlib.import_module("deepwire.ops.linear_recurrence_triton")


def _recur(forget: Tensor, update: Tensor, initial: Tensor) -> Tensor:
    kernels = _kernels(forget.device.type)
    cells: Tensor = (_loop if kernels is None else kernels.recur)(forget, update, initial)
    return cells


def _recur_back(
    grad: Tensor, forget: Tensor, initial: Tensor, cells: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    kernels = _kernels(forget.device.type)
    back = _loop_back if kernels is None else kernels.recur_back
    gradients: tuple[Tensor, Tensor, Tensor] = back(grad, forget, initial, cells)
    return gradients


def _loop(forget: Tensor, update: Tensor, initial: Tensor) -> Tensor:
    cells = torch.empty_like(update)
    before = initial
    for gate, added, cell in zip(forget.unbind(), update.unbind(), cells.unbind(), strict=True):
        torch.addcmul(added, gate, before, out=cell)
        before = cell
    return cells


def _loop_back(grad: Tensor, forget: Tensor, initial: Tensor, cells: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    forget_grad, update_grad = torch.empty_like(cells), torch.empty_like(cells)
    arrived, gate, gradient = grad.unbind(), forget.unbind(), update_grad.unbind()
    gradient[-1].copy_(arrived[-1])
    for t in range(len(gradient) - 2, -1, -1):
        torch.addcmul(arrived[t], gate[t + 1], gradient[t + 1], out=gradient[t])
    torch.mul(update_grad[1:], cells[:-1], out=forget_grad[1:])
    torch.mul(gradient[0], initial, out=forget_grad[0])
    return forget_grad, update_grad, gradient[0] * gate[0]


_compiled_recur = torch.library.custom_op("deepwire::linear_recurrence", _recur, mutates_args=())
_compiled_recur_back = torch.library.custom_op(
    "deepwire::linear_recurrence_backward", _recur_back, mutates_args=()
)


@_compiled_recur.register_fake
def _(_forget: Tensor, update: Tensor, _initial: Tensor) -> Tensor:
    return torch.empty_like(update)


@_compiled_recur_back.register_fake
def _(_grad: Tensor, _forget: Tensor, _initial: Tensor, cells: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return torch.empty_like(cells), torch.empty_like(cells), torch.empty_like(cells[0])
