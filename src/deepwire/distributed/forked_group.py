"""Processes that a command makes itself, to share the cores and the memory of this machine.

Threads that share a product wait for each other after every operation, and small operations leave all but one
of them idle; processes meet once an update, but each has memory of its own and makes all products of its
shapes ready. They are forked, so they start at once and share what was imported.

A gradient is as large as the model. Over a socket each process would write it into the kernel and read
another one out of it; here it is written once and read where it lies.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import signal
import sys
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

import torch
from torch import Tensor
from torch._C._distributed_c10d import FileStore, Store

from deepwire.distributed.distributed_group import DistributedGroup, LostProcessError, process_group_context

# Tensors begin where vector instructions like them to.
_ALIGNMENT = 64


class SharedMemoryReduce:
    """A place for the tensors of each process, made by the first of them before it forks the others.

    Args:
        count: How many processes there will be.
    """

    def __init__(self, count: int) -> None:
        self._count = count
        # Memory with a number like a file's, which the others inherit; it goes when all of them are gone.
        self._file = os.memfd_create("deepwire-sums")
        self._memory = torch.empty(0, dtype=torch.uint8)

    def close(self) -> None:
        """Give the memory back; this process can add up no more."""
        self._memory = torch.empty(0, dtype=torch.uint8)
        os.close(self._file)

    @torch.no_grad()
    def all_reduce_tensors(self, tensors: Sequence[Tensor], rank: int, barrier: Callable[[], object]) -> None:
        """Overwrite CPU tensors, of the same shapes in each process, with their sums over the processes.

        The order of additions is the same everywhere, and so are the bits.

        Args:
            tensors: Those of this process.
            rank: Its number.
            barrier: Returns when all processes have called it.
        """
        places = self._places(tensors)
        for place, tensor in zip(places[rank], tensors, strict=True):
            place.copy_(tensor)
        barrier()
        first, second, *others = places
        for index, tensor in enumerate(tensors):
            torch.add(first[index], second[index], out=tensor)
            for other in others:
                tensor += other[index]
        # Nobody writes again before all have read.
        barrier()

    def _places(self, tensors: Sequence[Tensor]) -> list[list[Tensor]]:
        """For each process, views of its part of the memory with the kinds and shapes of the tensors."""
        sizes = [-(-tensor.nbytes // _ALIGNMENT) * _ALIGNMENT for tensor in tensors]
        needed = sum(sizes) * self._count
        if self._memory.numel() < needed:
            os.ftruncate(self._file, needed)
            self._memory = torch.frombuffer(mmap.mmap(self._file, 0), dtype=torch.uint8)
        parts = torch.split(self._memory[:needed], sizes * self._count)
        views = [
            part[: tensor.nbytes].view(tensor.dtype).view(tensor.shape)
            for part, tensor in zip(parts, [*tensors] * self._count, strict=True)
        ]
        return [views[first : first + len(tensors)] for first in range(0, len(views), len(tensors))]


_PR_SET_PDEATHSIG = 1
_LAST_SECONDS = 10.0


class ForkedGroup(DistributedGroup):
    """The processes of this machine, the first of which is the one that the user started."""

    def __init__(self, store: Store, rank: int, count: int, sums: SharedMemoryReduce) -> None:
        super().__init__(store, rank, count, rank, count)
        self._sums = sums

    def all_reduce_tensors(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The sums over the processes, with the same bits in each, in the memory of the tensors."""
        self._sums.all_reduce_tensors(tensors, self.rank, lambda: self.all_reduce_numbers([0]))
        return list(tensors)

    def threads(self, wanted: int | None) -> int:
        """The share of this process in the cores."""
        return max(1, super().threads(wanted) // self.count)

    def fail(self, error: BaseException) -> NoReturn:
        """End this process because of an error: the first one says what is wrong, whoever found it."""
        self.record(error)
        if self.main and isinstance(error, LostProcessError):
            error.exit_code = self.exit_code(error)
        raise error


@contextmanager
def fork_process_group(count: int) -> Iterator[ForkedGroup]:
    """Fork this process into `count`; all run the block, and only this one leaves it.

    When another process fails or is killed, this one raises `LostProcessError`. When this one ends, however
    it does, so do the others.
    """
    rank, children, code = 0, list[int](), 1
    sums = SharedMemoryReduce(count)
    # A file without a name, which the others inherit: after `kill -9` nothing is left to tidy up. It stays
    # open, because the store looks at it once more when it is destroyed, whenever that is.
    meeting = os.memfd_create("deepwire-store")
    sys.stdout.flush()
    sys.stderr.flush()
    try:
        for other in range(1, count):
            child = _fork()
            if not child:
                rank, children = other, []
                break
            children.append(child)
        # Other interfaces may be slow to find, or not there at all without a network.
        os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
        store = FileStore(f"/proc/self/fd/{meeting}", count)
        with process_group_context(ForkedGroup(store, rank, count, sums)) as processes:
            yield processes
        code = 0
    finally:
        # Files, buffers and what runs at exit are the first's to tidy up.
        if rank:
            os._exit(code)
        sums.close()
        _end(children, kill=code != 0)


def _fork() -> int:
    first = os.getpid()
    with warnings.catch_warnings():
        # Newer Pythons warn of threads that hold a lock: those of numpy's library see to that themselves.
        warnings.simplefilter("ignore", DeprecationWarning)
        child = os.fork()
    if not child:
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != first:  # it was gone before that
            os._exit(1)
    return child


def _end(children: Sequence[int], *, kill: bool) -> None:
    """Wait for the others, which have nothing left to do; not for long, and not after an error."""
    deadline = time.monotonic() + (0.0 if kill else _LAST_SECONDS)
    for child in children:
        with suppress(ChildProcessError, ProcessLookupError):
            while not os.waitpid(child, os.WNOHANG)[0]:
                if time.monotonic() > deadline:
                    os.kill(child, signal.SIGKILL)
                time.sleep(0.01)
