"""Where a run computes, in which number formats, by how many processes, how much in a forward pass."""

from __future__ import annotations

import os
import platform
import resource
import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import torch

from deepwire.distributed.process_group import ProcessGroup
from deepwire.errors import UsageError
from deepwire.ops.allocator import resident_memory
from deepwire.ops.precision import MatmulPrecision, autocast_dtype, has_fast_bfloat16, set_fp32_matmul
from deepwire.training.config import Precision, TrainingConfig


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


def idle_gpus(device: torch.device, processes: ProcessGroup) -> int:
    """How many usable GPUs of this machine a run on ``device`` leaves idle."""
    if device.type != "cuda":
        return 0
    return torch.cuda.device_count() - processes.local_count


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


def memory_in_use(device: torch.device, *, divided: bool = False) -> int:
    """Bytes in use: the peak on a GPU; what the process holds on a CPU (or held at most).

    `divided`: of memory that processes share on Linux, only this one's part, so that their sum is the whole.
    """
    if device.type == "cuda":
        return torch.cuda.max_memory_allocated(device)
    rollup = Path("/proc/self/smaps_rollup")
    if divided and rollup.exists():
        (part,) = (line.split()[1] for line in rollup.read_text().splitlines() if line.startswith("Pss:"))
        return int(part) * 1024
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


# They keep the device busy and its memory in bounds. In float32 a CPU is kept busy by fewer where the model
# is wide, which takes a third less memory; in bfloat16 products are so much faster that rounding the weights
# for every pass shows (docs/reports/performance.md).
_USUAL = {"cpu": 2048, "cuda": 16384}
_WIDE, _OF_WIDE = 256, 512


def usual_micro_batch(device_type: str, precision: Precision, width: int) -> int:
    """Padded tokens of one forward pass on a ``cpu`` or on ``cuda``, of a model of that width."""
    if (device_type, precision) == ("cpu", "fp32") and width >= _WIDE:
        return _OF_WIDE
    return _USUAL[device_type]


# More were not measured.
_MOST = 4
# Tokens of a forward pass that keep a thread busy: with fewer, cores do more as processes of their own.
_A_THREAD = 512
# In bfloat16 threads share the products of larger models as well as processes do, within 2 %, and in much
# less memory; in float32 two processes are 17 % faster (docs/reports/benchmarks.md).
_LARGE = 32_000_000
# Each process has a parameter, its gradient, twice, and two moments, in float32; what is not needed with one
# process may take this part of the memory of the machine.
_BYTES, _SHARE = 20, 4


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
    """The format of products, as far as it is known without a timing: no thread may start before the fork."""
    if config.precision == "auto":
        return "bf16" if has_fast_bfloat16() else "fp32"
    return config.precision


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
