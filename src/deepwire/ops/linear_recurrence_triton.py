"""The element-wise linear recurrence on a CUDA GPU: one kernel forward, one backward.

Columns do not depend on each other, so a thread takes a column through all positions and keeps its cell in a
register: every number is read once and written once, and there is one launch where a loop over positions has
as many as positions. What is read does not depend on the cell; four positions are read before the first of
them is needed, since a thread that waited for each would leave most of the memory's rate unused. Positions
may be the first axis in memory or, as with heads one after the other, the second; neither is copied.

Where there is no GPU, tests run both kernels in Triton's interpreter and compile them for GPUs of compute
capability 8.0 and 9.0.
"""

from __future__ import annotations

from contextlib import AbstractContextManager
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

_COLUMNS = 128  # of a program: one for each thread of four warps


def recur(forget: Tensor, update: Tensor, initial: Tensor) -> Tensor:
    """All cells of `deepwire.ops.linear_recurrence.linear_recurrence`, whose shapes these are."""
    update = _dense(update)
    forget, initial, cells = _laid_out(forget, update), initial.contiguous(), torch.empty_like(update)
    layout = _Layout.of(update)
    if layout.width:
        with _on_device_of(cells):
            _forward[layout.programs](forget, update, initial, cells, *layout, _COLUMNS)
    return cells


def recur_back(grad: Tensor, forget: Tensor, initial: Tensor, cells: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Gradients of `forget`, `update` and `initial`, given that of the cells."""
    cells, initial = _dense(cells), initial.contiguous()
    grad, forget = (_laid_out(each, cells) for each in (grad, forget))
    forget_grad, update_grad, initial_grad = (torch.empty_like(each) for each in (cells, cells, initial))
    layout = _Layout.of(cells)
    if layout.width:
        with _on_device_of(cells):
            _backward[layout.programs](
                grad, forget, initial, cells, forget_grad, update_grad, initial_grad, *layout, _COLUMNS
            )
    return forget_grad, update_grad, initial_grad


class _Layout(NamedTuple):
    """Where column c of `[length, ...]` lies: position t at `c // inner * between + c % inner + t * step`."""

    length: int
    width: int
    inner: int
    between: int
    step: int

    @classmethod
    def of(cls, x: Tensor) -> _Layout:
        """The layout of a tensor that is `_dense`."""
        length, width = x.size(0), x[0].numel()
        if x.is_contiguous():
            return cls(length, width, max(1, width), 0, width)
        inner = x[0, 0].numel()
        return cls(length, width, inner, length * inner, inner)

    @property
    def programs(self) -> tuple[int]:
        """One for every `_COLUMNS` columns."""
        return (triton.cdiv(self.width, _COLUMNS),)


def _dense(x: Tensor) -> Tensor:
    """As it is, if positions are the first or the second axis of the memory; otherwise a copy."""
    by_sentence = x.dim() > 1 and x.transpose(0, 1).is_contiguous()
    return x if by_sentence else x.contiguous()


def _on_device_of(x: Tensor) -> AbstractContextManager[None]:
    """Triton launches on the current device, wherever the numbers are."""
    return torch.cuda.device_of(x)  # type: ignore[no-untyped-call]


def _laid_out(x: Tensor, like: Tensor) -> Tensor:
    """With the strides of `like`; copied if it has others."""
    return x if x.stride() == like.stride() else torch.empty_like(like).copy_(x)


@triton.jit
def _read(source, at, step, there0, there1, there2, there3, missing: tl.constexpr):
    """Four positions from `at` on; `missing` where there is none."""
    first = tl.load(source + at, mask=there0, other=missing)
    second = tl.load(source + at + step, mask=there1, other=missing)
    third = tl.load(source + at + 2 * step, mask=there2, other=missing)
    fourth = tl.load(source + at + 3 * step, mask=there3, other=missing)
    return first, second, third, fourth


@triton.jit
def _write(target, at, step, there0, there1, there2, there3, first, second, third, fourth):
    tl.store(target + at, first, mask=there0)
    tl.store(target + at + step, second, mask=there1)
    tl.store(target + at + 2 * step, third, mask=there2)
    tl.store(target + at + 3 * step, fourth, mask=there3)


@triton.jit(do_not_specialize=["length"])
def _forward(forget, update, initial, cells, length, width, inner, between, step, columns: tl.constexpr):
    column = tl.program_id(0).to(tl.int64) * columns + tl.arange(0, columns)
    inside = column < width
    at = column // inner * between + column % inner
    done = tl.full((columns,), 0, tl.int32)
    cell = tl.load(initial + column, mask=inside, other=0.0)
    for _ in range(0, length, 4):
        there0, there1 = inside & (done < length), inside & (done + 1 < length)
        there2, there3 = inside & (done + 2 < length), inside & (done + 3 < length)
        forget0, forget1, forget2, forget3 = _read(forget, at, step, there0, there1, there2, there3, 0.0)
        update0, update1, update2, update3 = _read(update, at, step, there0, there1, there2, there3, 0.0)
        cell0 = forget0 * cell + update0
        cell1 = forget1 * cell0 + update1
        cell2 = forget2 * cell1 + update2
        cell = forget3 * cell2 + update3
        _write(cells, at, step, there0, there1, there2, there3, cell0, cell1, cell2, cell)
        at += 4 * step
        done += 4


@triton.jit(do_not_specialize=["length"])
def _backward(
    grad,
    forget,
    initial,
    cells,
    forget_grad,
    update_grad,
    initial_grad,
    length,
    width,
    inner,
    between,
    step,
    columns: tl.constexpr,
):
    column = tl.program_id(0).to(tl.int64) * columns + tl.arange(0, columns)
    inside = column < width
    at = column // inner * between + column % inner + (length - 1).to(tl.int64) * step
    done = tl.full((columns,), 0, tl.int32)
    first = tl.load(initial + column, mask=inside, other=0.0)
    arrived = tl.full((columns,), 0.0, first.dtype)  # keep_{t+1} d_{t+1}, from the position above
    for _ in range(0, length, 4):
        there0, there1 = inside & (done < length), inside & (done + 1 < length)
        there2, there3 = inside & (done + 2 < length), inside & (done + 3 < length)
        there4 = inside & (done + 4 < length)
        grad0, grad1, grad2, grad3 = _read(grad, at, -step, there0, there1, there2, there3, 0.0)
        # Below the first position nothing changes: what arrived there stays.
        forget0, forget1, forget2, forget3 = _read(forget, at, -step, there0, there1, there2, there3, 1.0)
        cell0, cell1, cell2, cell3 = _read(cells, at - step, -step, there1, there2, there3, there4, 0.0)
        d0 = grad0 + arrived
        d1 = grad1 + forget0 * d0
        d2 = grad2 + forget1 * d1
        d3 = grad3 + forget2 * d2
        arrived = forget3 * d3
        _write(update_grad, at, -step, there0, there1, there2, there3, d0, d1, d2, d3)
        d0 *= tl.where(there1, cell0, first)
        d1 *= tl.where(there2, cell1, first)
        d2 *= tl.where(there3, cell2, first)
        d3 *= tl.where(there4, cell3, first)
        _write(forget_grad, at, -step, there0, there1, there2, there3, d0, d1, d2, d3)
        at -= 4 * step
        done += 4
    tl.store(initial_grad + column, arrived, mask=inside)
