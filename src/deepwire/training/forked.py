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
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import NoReturn

import torch
from torch import Tensor
from torch._C._distributed_c10d import FileStore, Store

from deepwire.ops.precision import has_bfloat16_units
from deepwire.training.config import Precision, TrainingConfig
from deepwire.training.connected import ConnectedProcesses, LostProcessError, together
from deepwire.training.micro_batch import usual_micro_batch
from deepwire.training.shared_sums import SharedSums

# More were not measured.
_MOST = 4
# Tokens of a forward pass that keep a thread busy: with fewer, cores do more as processes of their own.
_A_THREAD = 512
# In bfloat16 threads share the products of larger models as well as processes do, within 2 %, and in much
# less memory; in float32 two processes are 17 % faster (docs/benchmarks.md).
_LARGE = 32_000_000
# Each process has a parameter, its gradient, twice, and two moments, in float32; what is not needed with one
# process may take this part of the memory of the machine.
_BYTES, _SHARE = 20, 4
_PR_SET_PDEATHSIG = 1
_LAST_SECONDS = 10.0


def processes_wanted(config: TrainingConfig, width: int, parameters: Callable[[], int]) -> int:
    """How many processes are to train on the cores of this machine, where torchrun started none.

    Args:
        config: What the run file says.
        width: d of the model.
        parameters: Gives about how many the model has; asked for only where several processes may train.
    """
    if not sys.platform.startswith("linux") or config.sharding != "none" or config.compile:
        return 1
    if config.device != "cpu" and (config.device != "auto" or torch.cuda.is_available()):
        return 1
    if config.processes is not None:
        return config.processes
    cores = config.threads or torch.get_num_threads()
    products = _number_format(config)
    usual = usual_micro_batch("cpu", products, width)
    tokens = min(config.micro_batch_tokens or usual, config.batch_tokens)
    threads = max(1, tokens // _A_THREAD)
    count = max(1, min(cores // threads, _MOST, config.batch_tokens // tokens))
    if count == 1 or (products == "bf16" and parameters() > _LARGE):
        return 1
    memory = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    return min(count, 1 + memory // _SHARE // (_BYTES * parameters()))


def _number_format(config: TrainingConfig) -> Precision:
    """Of the products, as far as it can be told without timing any: no thread may start before the fork."""
    if config.precision == "auto":
        return "bf16" if has_bfloat16_units() else "fp32"
    return config.precision


class ForkedProcesses(ConnectedProcesses):
    """The processes of this machine, the first of which is the one that the user started."""

    def __init__(self, store: Store, rank: int, count: int, sums: SharedSums) -> None:
        super().__init__(store, rank, count, rank, count)
        self._sums = sums

    def add_up(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The sums over the processes, with the same bits in each, in the memory of the tensors."""
        self._sums.add_up(tensors, self.rank, self._meet)
        return list(tensors)

    def _meet(self) -> None:
        self.total([0])

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
def forked(count: int) -> Iterator[ForkedProcesses]:
    """Make `count` processes of this one; all begin and end the block together, and only this one leaves it.

    When another process fails or is killed, this one raises `LostProcessError`. When this one ends, however
    it does, so do the others.
    """
    rank, children, code = 0, list[int](), 1
    sums = SharedSums(count)
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
        with together(_connect(f"/proc/self/fd/{meeting}", rank, count, sums)) as processes:
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


def _connect(store: str, rank: int, count: int, sums: SharedSums) -> ForkedProcesses:
    # Other interfaces may be slow to find, or not there at all without a network.
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    return ForkedProcesses(FileStore(store, count), rank, count, sums)
