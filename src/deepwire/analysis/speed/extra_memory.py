"""The most memory that a piece of work takes on top of what was there before."""

from __future__ import annotations

import ctypes
import gc
import platform
import sys
from collections.abc import Callable
from pathlib import Path

import torch

_STATUS, _CLEAR = Path("/proc/self/status"), Path("/proc/self/clear_refs")
# Written to clear_refs, this sets the recorded peak to what the process holds now (man 5 proc).
_RESET_PEAK = "5"


def extra_memory(work: Callable[[], object], device: torch.device) -> int | None:
    """Do `work`; the peak of its memory in bytes, less what was in use before it.

    On a GPU that of torch's tensors; on a CPU that of the whole process, which only Linux tells: None
    elsewhere.
    """
    gc.collect()
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        work()
        return torch.cuda.max_memory_allocated(device) - before
    _give_back()
    known = _reset_peak()
    before_kib = _read("VmRSS") if known else None
    work()
    peak_kib = _read("VmHWM") if known else None
    if before_kib is None or peak_kib is None:
        return None
    return max(0, peak_kib - before_kib) * 1024


def _give_back() -> None:
    """Let glibc return freed memory to the system, so that this work has to ask for its own."""
    if sys.platform.startswith("linux") and platform.libc_ver()[0] == "glibc":
        ctypes.CDLL(None).malloc_trim(0)


def _reset_peak() -> bool:
    try:
        _CLEAR.write_text(_RESET_PEAK)
    except OSError:
        return False
    return True


def _read(name: str) -> int | None:
    """A number of /proc/self/status, in KiB."""
    for line in _STATUS.read_text().splitlines():
        if line.startswith(f"{name}:"):
            return int(line.split()[1])
    return None
