"""Where a run computes, in which number formats, and its batches there, made while a GPU computes."""

from __future__ import annotations

import platform
import resource
import sys
from collections import deque
from collections.abc import Generator, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager
from dataclasses import dataclass, replace
from itertools import accumulate
from pathlib import Path
from typing import Literal, TypeVar

import numpy as np
import torch
from torch import Tensor

from deepwire.data.batches.batching import StreamPosition, UpdateStream
from deepwire.data.batches.collator import Batch
from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import UsageError
from deepwire.ops.allocator import resident_memory
from deepwire.ops.precision import MatmulPrecision, autocast_dtype, set_fp32_matmul

Item = TypeVar("Item")
Precision = Literal["fp32", "bf16"]


def choose_device(name: str, processes: ProcessGroup, setting: str = "training.device") -> torch.device:
    """The device for ``auto``, ``cpu``, ``cuda`` or ``cuda:N``; ``setting`` is what errors call it.

    ``auto`` takes a GPU if there is one; of several processes on a machine each takes its own.

    Raises:
        UsageError: If a GPU is asked for that is not there, or there are fewer GPUs than processes.
    """
    count = torch.cuda.device_count() if torch.cuda.is_available() else 0
    if name == "auto":
        name = "cuda" if count else "cpu"
    kind, _, number = name.partition(":")
    if kind != "cuda":
        return torch.device(kind)
    if number and processes.count > 1:
        raise UsageError(
            f"{setting}: {name} is one GPU, but there are {processes.count} processes",
            f"set {setting} to cuda; each process takes its own",
        )
    index = int(number) if number else processes.local_rank
    if 0 < count < processes.local_count:
        raise UsageError(
            f"{setting}: {processes.local_count} processes on a machine with {count} usable GPUs",
            f"start torchrun with --nproc-per-node {count}, or set {setting} to cpu",
        )
    if index >= count:
        raise UsageError(
            f"{setting}: {name} was asked for, but there are {count} usable GPUs",
            f"set {setting} to auto or cpu",
        )
    chosen = torch.device("cuda", index)
    torch.cuda.set_device(chosen)
    return chosen


def describe(device: torch.device) -> dict[str, object]:
    """The machine and software of a run, for ``env.json``: device, processor, versions, command."""
    return {
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else _processor(),
        "threads": torch.get_num_threads(),
        "host": platform.node(),
        "system": platform.platform(),
        "python": platform.python_version(),
        "torch": torch.__version__,
        "cuda": torch.version.cuda,
        "command": sys.argv,
    }


def peak_memory(device: torch.device) -> int:
    """Bytes that were in use at most: of the GPU, or of this process on a CPU."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak if sys.platform == "darwin" else peak * 1024


def memory_in_use(device: torch.device) -> int:
    """Bytes in use: the peak on a GPU; what the process holds on a CPU (or held at most)."""
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    return resident_memory() or peak_memory(device)


def is_out_of_memory(error: Exception) -> bool:
    """Whether a GPU, numpy or torch on a CPU has run out of memory."""
    kinds = (torch.OutOfMemoryError, MemoryError)
    return isinstance(error, kinds) or "can't allocate memory" in str(error)


def _processor() -> str:
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        for line in cpuinfo.read_text(errors="replace").splitlines():
            if line.startswith("model name"):
                return line.partition(":")[2].strip()
    return platform.processor() or platform.machine()


@dataclass(frozen=True)
class PrecisionPolicy:
    """How a run computes.

    Attributes:
        precision: ``fp32``, or ``bf16``: products in bfloat16, weights, sums and optimizer in float32.
        products: What ``torch.set_float32_matmul_precision`` is told; on some CPUs ``medium`` selects another
            library that is faster and just as exact.
        device_type: ``cpu`` or ``cuda``: the kind of device that this was chosen for.
    """

    precision: Precision
    products: MatmulPrecision
    device_type: str

    @classmethod
    def choose(cls, setting: Literal["auto", "fp32", "bf16"], device: torch.device) -> PrecisionPolicy:
        """The format that the user asked for; for ``auto``, the one that the device computes faster.

        A format that was asked for involves no timing, so it is the same in every process.
        """
        kind = autocast_dtype(device, setting)
        products = set_fp32_matmul("auto" if setting == "auto" else "highest")
        return cls("bf16" if kind is torch.bfloat16 else "fp32", products, device.type)

    def serves(self, setting: Literal["auto", "fp32", "bf16"], device: torch.device) -> bool:
        """Whether a stored choice is still what the user asks for, on this kind of device."""
        return device.type == self.device_type and setting in ("auto", self.precision)

    def apply(self) -> None:
        """Make this the way the process computes."""
        set_fp32_matmul(self.products)

    def autocast(self) -> AbstractContextManager[object]:
        """The context of every forward pass."""
        return torch.autocast(self.device_type, dtype=torch.bfloat16, enabled=self.precision == "bf16")


def prefetched(items: Iterator[Item], depth: int = 4) -> Generator[Item]:
    """The same items in the same order, up to `depth` of them made ahead in a thread.

    What `items` raises is raised where the item would have come. Closing the generator ends the thread, after
    the item it is working on.
    """
    with ThreadPoolExecutor(1, "prefetch") as thread:
        ahead = deque(thread.submit(next, items, None) for _ in range(depth))
        try:
            while (item := ahead.popleft().result()) is not None:
                ahead.append(thread.submit(next, items, None))
                yield item
        finally:
            thread.shutdown(cancel_futures=True)


@dataclass(frozen=True)
class DeviceBatch:
    """One forward pass on the device; int64, padded with PAD.

    Attributes:
        source: ``[B, S]``.
        target_input: ``[B, T]``.
        target_output: ``[B, T]``.
        languages: ``[B]``, index of the target language of each row; None with one direction.
        links: ``[links, 3]``, row, place in ``target_output`` and place in ``source`` of subwords that belong
            together; None where nobody asks.
    """

    source: Tensor
    target_input: Tensor
    target_output: Tensor
    languages: Tensor | None = None
    links: Tensor | None = None

    def cut(self, pieces: int) -> list[DeviceBatch]:
        """The rows in so many pieces of about the same size, or one a row where there are fewer."""
        pieces = min(pieces, len(self.source))
        if pieces == 1:
            return [self]
        sides = (side.tensor_split(pieces) for side in (self.source, self.target_input, self.target_output))
        parts = [DeviceBatch(*part) for part in zip(*sides, strict=True)]
        if self.links is not None:
            ends = list(accumulate(len(part.source) for part in parts))
            parts = [
                replace(part, links=_links_of(self.links, end - len(part.source), end))
                for part, end in zip(parts, ends, strict=True)
            ]
        if self.languages is None:
            return parts
        languages = self.languages.tensor_split(pieces)
        return [replace(part, languages=rows) for part, rows in zip(parts, languages, strict=True)]


def _links_of(links: Tensor, first: int, end: int) -> Tensor:
    """The links of rows `first` to `end`, counted from there."""
    chosen = links[(links[:, 0] >= first) & (links[:, 0] < end)]
    return chosen - chosen.new_tensor([first, 0, 0])


@dataclass(frozen=True)
class DeviceUpdate:
    """One update on the device.

    Attributes:
        number: Which update this is, from 1.
        epoch: Which epoch it belongs to.
        target_tokens: Real target tokens of the whole update.
        batches: The forward passes of this process; it may have none.
        lines: ``[pairs]``, indices of all its sentence pairs in the store.
        after: The position of the stream after it.
    """

    number: int
    epoch: int
    target_tokens: int
    batches: tuple[DeviceBatch, ...]
    lines: np.ndarray
    after: StreamPosition


def to_device(batch: Batch, device: torch.device) -> DeviceBatch:
    """Copy a batch to ``device``, without waiting for a GPU."""
    return DeviceBatch(
        _tensor(batch.source, device),
        _tensor(batch.target_input, device),
        _tensor(batch.target_output, device),
        None if batch.target_languages is None else _tensor(batch.target_languages, device),
        None if batch.links is None else _tensor(batch.links, device),
    )


def feed(stream: UpdateStream, start: StreamPosition, device: torch.device) -> Generator[DeviceUpdate]:
    """The updates from ``start`` on, on ``device``, without end."""
    updates = (
        DeviceUpdate(
            update.number,
            update.epoch,
            update.target_tokens,
            tuple(to_device(batch, device) for batch in update.batches),
            update.lines,
            after,
        )
        for update, after in stream.updates(start)
    )
    yield from prefetched(updates) if device.type == "cuda" else updates


def _tensor(values: np.ndarray, device: torch.device) -> Tensor:
    tensor = torch.from_numpy(values)
    return tensor.pin_memory().to(device, non_blocking=True) if device.type == "cuda" else tensor
