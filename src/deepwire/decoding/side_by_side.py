"""Several batches at a time on a CPU: a core for each batch does more than all cores for one.

The threads that share a product wait for each other after every operation, and operations too small to share
leave all but one of them idle. Batches need nothing of each other.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Generic, TypeVar

import torch
from torch import Tensor

from deepwire.decoding.contract import StateT, StepModel

Item = TypeVar("Item")
Result = TypeVar("Result")

# Batches at a time at most: each has logits and states of its own in memory, and all share one interpreter.
MOST = 8


class Stopped(Exception):  # noqa: N818 - not an error: nobody waits for the result
    """The work was called off."""


def side_by_side(
    work: Callable[[Item, threading.Event], Result], items: Sequence[Item], device: torch.device
) -> list[Result]:
    """`work(item, stop)` of each item, in their order.

    On a CPU as many items at a time as torch has threads (8 at most), each with its share of them. `stop` is
    set when the results are no longer wanted, as after Ctrl-C or an error in another item: `work` may then
    raise `Stopped`.
    """
    stop, threads = threading.Event(), torch.get_num_threads()
    workers = min(threads, len(items), MOST) if device.type == "cpu" else 1
    if workers <= 1:
        return [work(item, stop) for item in items]
    share = partial(torch.set_num_threads, threads // workers)
    try:
        with ThreadPoolExecutor(workers, "batch", initializer=share) as pool:
            try:
                return list(pool.map(lambda item: work(item, stop), items))
            finally:
                stop.set()
    finally:
        # A thread's number holds for threads that begin later, too.
        torch.set_num_threads(threads)


class Stoppable(Generic[StateT]):
    """A model whose next step raises `Stopped` once `stop` is set."""

    def __init__(self, model: StepModel[StateT], stop: threading.Event) -> None:
        self._model, self._stop = model, stop

    def start(self, source: Tensor, max_length: int) -> StateT:
        """Encode `source` `[N, S]`."""
        return self._model.start(source, max_length)

    def step(self, tokens: Tensor, state: StateT) -> tuple[Tensor, StateT]:
        """Log-probabilities `[rows, V]` of what follows `tokens` `[rows]`."""
        if self._stop.is_set():
            raise Stopped
        return self._model.step(tokens, state)
