"""Settings of the whole process: set for good by a program that says so, else given back after use.

Importing this module imports no torch.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock
from typing import TYPE_CHECKING

from deepwire.errors import UsageError

if TYPE_CHECKING:
    import torch

_may_choose_float32_products = False


def configure_process(
    *,
    threads: int | None = None,
    keep_memory: bool = True,
    flush_denormals: bool = True,
    choose_float32_products: bool = True,
) -> None:
    """Set this process up for training and translating on a CPU, as the commands of deepwire do.

    Nothing else in deepwire changes the process for good. All of this holds for other libraries in it too,
    until it ends. Call it before the first computation: threads inherit some of it when they start.

    Args:
        threads: CPU threads of torch; None leaves them as they are.
        keep_memory: Keep freed memory in the process, for good; see `deepwire.ops.allocator.keep_memory`.
        flush_denormals: Take numbers next to zero for zero (`torch.set_flush_denormal`): CPUs are slow with
            them, and the moments of rare words decay into them.
        choose_float32_products: Allow each load of a model in float32 to set
            `torch.set_float32_matmul_precision` to the fastest kind that is true float32 on this machine.

    Raises:
        UsageError: There are to be no threads, or too many; nothing is changed then.
    """
    # Late, as torch: every command imports this module, also one that only shows its help.
    from deepwire.config.counts import MAX_THREADS, require_int

    threads = None if threads is None else require_int(threads, "threads", 1, most=MAX_THREADS)
    import torch

    from deepwire.ops import allocator

    if keep_memory:
        allocator.keep_memory()
    if flush_denormals:
        torch.set_flush_denormal(True)
    if threads is not None:
        torch.set_num_threads(threads)
    allow_float32_choice(choose_float32_products)


@contextmanager
def quick_start() -> Iterator[None]:
    """Within, where a command imports what it needs, no garbage is looked for.

    torch makes hundreds of thousands of objects, which stay. Looking through them over and over takes a fifth
    of the time of a short command. What is there in the end is left out for good, the first time.
    """
    gc.disable()
    try:
        yield
    finally:
        if not gc.get_freeze_count():
            gc.freeze()
        gc.enable()


def allow_float32_choice(allowed: bool = True) -> None:
    """Whether loading a model in float32 may choose how the whole process computes float32 products."""
    global _may_choose_float32_products
    _may_choose_float32_products = allowed


def choose_float32_products() -> None:
    """Take the fastest true float32 products of this machine, if `allow_float32_choice` has said so."""
    if _may_choose_float32_products:
        from deepwire.ops.precision import set_fp32_matmul

        set_fp32_matmul("auto")


@contextmanager
def restore_torch_settings() -> Iterator[None]:
    """Afterwards torch has the float32 products, the threads and the current GPU that it had before."""
    import torch

    products, threads = torch.get_float32_matmul_precision(), torch.get_num_threads()
    gpu = torch.cuda.current_device() if _uses_gpus() else 0
    try:
        yield
    finally:
        torch.set_float32_matmul_precision(products)
        torch.set_num_threads(threads)
        if _uses_gpus():
            torch.cuda.set_device(gpu)


def _uses_gpus() -> bool:
    import torch

    initialized: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]
    return initialized


@contextmanager
def own_random_numbers(device: torch.device) -> Iterator[None]:
    """Afterwards the random numbers of the CPU and of `device` go on as if nothing had been drawn."""
    import torch

    with torch.random.fork_rng([device] if device.type == "cuda" else []):
        yield


def seed_random_numbers(seed: int, device: torch.device) -> None:
    """Seed the random numbers of the CPU and of `device`; `torch.manual_seed` seeds all GPUs."""
    import torch

    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


_TRAINS = RLock()


@contextmanager
def training_lock() -> Iterator[None]:
    """Random numbers, threads and float32 products are those of the process: one thread at a time trains.

    Raises:
        UsageError: Another thread does.
    """
    if not _TRAINS.acquire(blocking=False):
        raise UsageError(
            "another thread of this process trains, and both would draw from the same random numbers",
            "train in a process of its own",
        )
    try:
        yield
    finally:
        _TRAINS.release()
