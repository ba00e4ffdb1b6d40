"""Recording what is done on a GPU, so that it can be done again with a single start of all its kernels."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol, TypeVar

import torch

Result = TypeVar("Result")


class Recorder(Protocol):
    """Records work whose tensors stay where they are in memory, and whose numbers stay as they are."""

    def record(self, work: Callable[[], Result]) -> tuple[Result, Callable[[], None]]:
        """What `work` returns, and what carries it out: only that fills the tensors which were returned.

        `work` must have been done before, must not look at values of tensors, and must make no tensor from
        numbers of the host.
        """
        ...


class CudaRecorder:
    """Records CUDA graphs. The graphs of one recorder share memory, so they run one after the other."""

    def __init__(self, device: torch.device) -> None:
        self._device = device
        self._pool = torch.cuda.graph_pool_handle()

    def record(self, work: Callable[[], Result]) -> tuple[Result, Callable[[], None]]:
        """See `Recorder`."""
        graph = torch.cuda.CUDAGraph()
        # Other threads, such as those of a server, may go on meanwhile.
        with (
            torch.cuda.device(self._device),
            torch.cuda.graph(graph, pool=self._pool, capture_error_mode="thread_local"),
        ):
            result = work()
        return result, graph.replay
