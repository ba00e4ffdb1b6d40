"""A loop over positions that a graph of any length can hold.

Otherwise Python runs the loop, and a graph would hold every step of the lengths that it was made with. What
is exported has one `scan` in its place, which runs for as many positions as there are.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor

Carried = tuple[Tensor, ...]
Run = TypeVar("Run", bound=Callable[..., Any])


def is_exporting() -> bool:
    """Whether `torch.export` is at work; torch 2.11 says so of `torch.compile`, too."""
    return torch.compiler.is_exporting() and not torch.compiler.is_dynamo_compiling()


def in_no_graph(run: Run) -> Run:
    """The same function; `torch.compile` takes no layer that calls it.

    A graph would hold every step of a length, and be made anew for every length. Where positions are cut into
    chunks, torch takes minutes to find out what becomes of a length, too.
    """
    if torch.compiler.is_compiling() and not is_exporting():
        return torch.compiler.disable(run)  # type: ignore[no-untyped-call, no-any-return]
    return run


def over_positions(
    step: Callable[[Carried, Carried], Carried], first: Carried, inputs: Carried
) -> tuple[Tensor, Carried]:
    """The first tensor of every state s_t = step(s_{t-1}, inputs at t), `[rows, T, ...]`, and the last state.

    `step` has no side effects; `first` are `[rows, ...]` each, and `inputs` `[T, rows, ...]`, T at least 1.
    """
    if is_exporting():
        return _scan(step, first, inputs)
    state, outputs = first, []
    for now in zip(*(each.unbind() for each in inputs), strict=True):
        state = step(state, now)
        outputs.append(state[0])
    return torch.stack(outputs, 1), state


def _scan(
    step: Callable[[Carried, Carried], Carried], first: Carried, inputs: Carried
) -> tuple[Tensor, Carried]:
    from torch._higher_order_ops.scan import scan

    def body(state: Carried, now: Carried) -> tuple[Carried, Tensor]:
        following = step(state, now)
        # No output may be another one, or an input.
        return tuple(each.clone() for each in following), following[0].clone()

    last, outputs = scan(body, tuple(each.contiguous().clone() for each in first), inputs)
    return outputs.transpose(0, 1), tuple(last)
