"""A group of several processes, by torch.distributed; and that of the processes which torchrun started."""

from __future__ import annotations

import json
import os
import re
import time
import traceback
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import timedelta
from typing import NoReturn, TypeVar

import torch
import torch.distributed as dist
from torch import Tensor
from torch._C._distributed_c10d import Store
from torch.distributed.rendezvous import rendezvous

from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import DeepwireError, ResourceError

Result = TypeVar("Result")
Group = TypeVar("Group", bound="DistributedGroup")

# Of a collective, and so for the slowest disk; a process that dies is noticed at once.
TIMEOUT = timedelta(minutes=30)
_POLL_SECONDS = 0.1
# A process that ends because of another lets that one end first, so that torchrun names the right one.
_COURTESY_SECONDS = 5.0
# The first process that fails needs no more to say so.
_WORD = timedelta(seconds=10)
_BUCKET_BYTES = 32 << 20
# Names in the store.
_FAILURES, _REASON, _CODE = "deepwire/failures", "deepwire/reason", "deepwire/code"
_STEP = "deepwire/step"


class LostProcessError(DeepwireError):
    """Another process of the job is gone."""


class DistributedGroup(ProcessGroup):
    """Processes that meet in a store, which lasts at least as long as they do.

    Numbers and texts travel through host memory by gloo, tensors between the devices that they are on: by
    nccl between GPUs, by gloo between CPUs.

    Raises:
        LostProcessError: In every method that talks, if another process is gone.
    """

    def __init__(self, store: Store, rank: int, count: int, local_rank: int, local_count: int) -> None:
        super().__init__(rank, count, local_rank, local_count)
        gpus = torch.cuda.is_available() and dist.is_nccl_available()
        self._store = store
        self._steps = 0
        with self._lost_process_errors():
            dist.init_process_group(
                "cpu:gloo,cuda:nccl" if gpus else "gloo",
                store=store,
                rank=self.rank,
                world_size=self.count,
                timeout=TIMEOUT,
            )

    def all_reduce_numbers(self, numbers: Sequence[float]) -> list[float]:
        """The sums over the processes."""
        sums = torch.tensor(numbers, dtype=torch.float64)
        with self._lost_process_errors():
            dist.all_reduce(sums)
        result: list[float] = sums.tolist()
        return result

    def all_reduce_tensors(self, tensors: Sequence[Tensor]) -> list[Tensor]:
        """The sums over the processes, with the same bits in each."""
        buckets = _buckets(tensors)
        flats = [_flat(bucket) for bucket in buckets]
        with self._lost_process_errors():
            under_way = [dist.all_reduce(flat, async_op=True) for flat in flats]
            for work in under_way:
                if work is not None:
                    work.wait()
        return [part for flat, bucket in zip(flats, buckets, strict=True) for part in _parts(flat, bucket)]

    @torch.no_grad()
    def broadcast_tensors(self, tensors: Sequence[Tensor]) -> None:
        """Overwrite the tensors with those of the main process."""
        for bucket in _buckets(tensors):
            flat = _flat(bucket)
            with self._lost_process_errors():
                dist.broadcast(flat, 0)
            for tensor, part in zip(bucket, _parts(flat, bucket), strict=True):
                tensor.copy_(part)

    def gather(self, value: object) -> list[object]:
        """The value of each process in the order of ranks."""
        content = _bytes(value)
        sizes = [int(size) for size in self._all_gather(torch.tensor([len(content)]))]
        padded = torch.zeros(max(sizes), dtype=torch.uint8)
        padded[: len(content)] = content
        return [_value(data[:size]) for data, size in zip(self._all_gather(padded), sizes, strict=True)]

    def broadcast_value(self, value: object) -> object:
        """The value of the main process."""
        content = _bytes(value if self.main else None)
        size = torch.tensor([len(content)])
        with self._lost_process_errors():
            dist.broadcast(size, 0)
            data = content if self.main else torch.zeros(int(size), dtype=torch.uint8)
            dist.broadcast(data, 0)
        return _value(data)

    def run_on_main_first(self, work: Callable[[], Result]) -> Result:
        """Do the same work in every process, in the main process first."""
        self._steps += 1
        done = f"{_STEP}/{self._steps}"
        if self.main:
            result = work()
            with self._lost_process_errors():
                self._store.set(done, "done")
            return result
        with self._lost_process_errors():
            # Not a collective, which would give up after a while: preparing a corpus may take hours.
            while not self._store.check([done]):
                if self._store.check([_CODE]):
                    raise RuntimeError("the main process failed")
                time.sleep(_POLL_SECONDS)
        return work()

    def require_same(self, tensors: Sequence[Tensor], name: str) -> None:
        """Check that float32 tensors are the same in all processes, by sums over their bits."""
        sums = torch.stack([tensor.detach().view(torch.int32).sum(dtype=torch.int64) for tensor in tensors])
        sums_of_ranks = self.gather(sums.tolist())
        strangers = [str(rank) for rank, other in enumerate(sums_of_ranks) if other != sums_of_ranks[0]]
        if strangers:
            raise ResourceError(
                f"{name} are no longer the same in all {self.count} processes: "
                f"process {', '.join(strangers)} differs from process 0",
                "a device computes wrongly, or the machines differ; the same command goes on from the last "
                "checkpoint",
            )

    def fail(self, error: BaseException) -> NoReturn:
        """End this process because of an error: as itself in the first that fails, silently in the others.

        Those end with the exit code of the first, whatever befell them after it.
        """
        if not self.record(error):
            time.sleep(_COURTESY_SECONDS)
            raise SystemExit(self.exit_code(error)) from error
        raise error

    def record(self, error: BaseException) -> bool:
        """Leave word of an error for the other processes; says whether this process is the first to fail."""
        first = True
        with suppress(RuntimeError):  # the store is gone with another process, so nobody knows
            first = self._store.add(_FAILURES, 1) == 1
            if first:
                # The code comes last: who finds it finds the reason too.
                self._store.set(_REASON, f"process {self.rank} of {self.count} failed: {_line(error)}")
                self._store.set(_CODE, str(_code(error)))
        if first and not isinstance(error, DeepwireError | KeyboardInterrupt):
            traceback.print_exception(error)
        return first

    def exit_code(self, error: BaseException) -> int:
        """The exit code of the process that failed first; of this error where nobody knows."""
        with suppress(RuntimeError):
            if self._store.check([_FAILURES]):
                self._store.wait([_CODE], _WORD)
                return int(self._store.get(_CODE))
        return _code(error)

    def _all_gather(self, tensor: Tensor) -> list[Tensor]:
        gathered = [torch.empty_like(tensor) for _ in range(self.count)]
        with self._lost_process_errors():
            dist.all_gather(gathered, tensor)
        return gathered

    @contextmanager
    def _lost_process_errors(self) -> Iterator[None]:
        try:
            yield
        except torch.OutOfMemoryError:
            raise
        except RuntimeError as error:
            reason = f"another process ended without an error message ({_connection(error)})"
            with suppress(RuntimeError):
                if self._store.check([_REASON]):
                    reason = self._store.get(_REASON).decode()
            raise LostProcessError(
                f"the job cannot go on: {reason}", "the same command goes on from what was saved"
            ) from error


@contextmanager
def process_group_context(processes: Group) -> Iterator[Group]:
    """The block begins and ends in all processes at once; see `join_process_group`."""
    try:
        yield processes
        processes.all_reduce_numbers([0])
    except BaseException as error:  # whatever it is, the others must not wait for this process
        processes.fail(error)
    # Not after an error: the connection stays until the error is printed, and goes with the process.
    dist.destroy_process_group()


def _buckets(tensors: Sequence[Tensor]) -> list[list[Tensor]]:
    """Stretches of tensors of one kind, large enough for the network."""
    buckets: list[list[Tensor]] = []
    room, kind = 0, None
    for tensor in tensors:
        if kind != (tensor.dtype, tensor.device) or room <= 0:
            buckets.append([])
            room, kind = _BUCKET_BYTES, (tensor.dtype, tensor.device)
        buckets[-1].append(tensor)
        room -= tensor.nbytes
    return buckets


def _flat(bucket: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.detach().reshape(-1) for tensor in bucket])


def _parts(flat: Tensor, bucket: Sequence[Tensor]) -> list[Tensor]:
    parts = torch.split(flat, [tensor.numel() for tensor in bucket])
    return [part.view(tensor.shape) for part, tensor in zip(parts, bucket, strict=True)]


def _bytes(value: object) -> Tensor:
    return torch.frombuffer(bytearray(json.dumps(value).encode()), dtype=torch.uint8)


def _value(data: Tensor) -> object:
    value: object = json.loads(data.numpy().tobytes())
    return value


def _connection(error: RuntimeError) -> str:
    """The message of gloo or nccl, without the place in their code and the advice."""
    return re.sub(r"^\[\S*\] ", "", _line(error).removeprefix("RuntimeError: ")).partition(". ")[0]


def _code(error: BaseException) -> int:
    return error.exit_code if isinstance(error, DeepwireError) else 1


def _line(error: BaseException) -> str:
    if isinstance(error, DeepwireError):
        return error.message
    return f"{type(error).__name__}: {(str(error).splitlines() or ['no message'])[0]}"


class TorchrunGroup(DistributedGroup):
    """The processes that the environment describes; they connect through the store of torchrun."""

    after_stop = "torchrun may report the signal below, with a traceback of its own: nothing is wrong"

    def __init__(self) -> None:
        names = ("RANK", "WORLD_SIZE", "LOCAL_RANK", "LOCAL_WORLD_SIZE")
        store, _, _ = next(rendezvous("env://", timeout=TIMEOUT))
        super().__init__(store, *(int(os.environ[name]) for name in names))
