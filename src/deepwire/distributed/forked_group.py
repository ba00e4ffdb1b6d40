"""Processes that a command makes itself, to share the cores of this machine.

Threads that share a product wait for each other after every operation, and small operations leave all but one
of them idle; processes meet once an update, but each has memory of its own and makes all products of its
shapes ready. They are forked, so they start at once and share what was imported.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
import time
import warnings
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

from torch import Tensor
from torch._C._distributed_c10d import FileStore, Store

from deepwire.distributed.distributed_group import DistributedGroup, LostProcessError, process_group_context
from deepwire.distributed.shared_memory import SharedMemoryReduce

_PR_SET_PDEATHSIG = 1
_LAST_SECONDS = 10.0


class ForkedGroup(DistributedGroup):
    """The processes of this machine, the first of which is the one that the user started."""

    def __init__(self, store: Store, rank: int, count: int, sums: SharedMemoryReduce) -> None:
        super().__init__(store, rank, count, rank, count)
        self._sums = sums

    def all_reduce_tensors(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The sums over the processes, with the same bits in each, in the memory of the tensors."""
        self._sums.all_reduce_tensors(tensors, self.rank, self._barrier)
        return list(tensors)

    def _barrier(self) -> None:
        self.all_reduce_numbers([0])

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
        group = _connect(f"/proc/self/fd/{meeting}", rank, count, sums)
        with process_group_context(group) as processes:
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


def _connect(store: str, rank: int, count: int, sums: SharedMemoryReduce) -> ForkedGroup:
    # Other interfaces may be slow to find, or not there at all without a network.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return ForkedGroup(FileStore(store, count), rank, count, sums)
