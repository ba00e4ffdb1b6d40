"""Keep freed memory in the process, so that every step does not ask the system for it again."""

from __future__ import annotations

import ctypes
import os
import platform
import sys
from pathlib import Path

# Names and numbers of glibc's malloc.h.
_TRIM_THRESHOLD = -1
_TOP_PAD = -2
_MMAP_MAX = -4
_ARENA_MAX = -8
_NEVER = -1
_PAD = 64 << 20
_KERNELS = "128"


def keep_memory() -> bool:
    """Tells glibc to keep freed memory in the process; returns whether it was done, on Linux with glibc.

    By default glibc maps each large block anew and unmaps it when it is freed, and the system clears every
    page again: for the temporary tensors of a training step on a CPU that costs a good part of the step.
    The price is that the process keeps its peak memory until it ends, or until `give_memory_back`. It holds
    for the whole process, other libraries in it included, and cannot be undone.
    """
    if not _has_glibc():
        return False
    mallopt = ctypes.CDLL(None).mallopt
    mallopt.argtypes = (ctypes.c_int, ctypes.c_int)
    mallopt.restype = ctypes.c_int
    done = True
    for name, value in ((_MMAP_MAX, 0), (_TRIM_THRESHOLD, _NEVER), (_TOP_PAD, _PAD)):
        done &= mallopt(name, value) == 1
    return done


def share_memory() -> None:
    """Let all threads share what is kept, in a process that works on texts of any length for months.

    By default glibc gives threads heaps of their own, each of which keeps the peak that a thread once had in
    it; and oneDNN keeps 1,024 kernels made ready, each with memory of its own, though of so many shapes few
    come again. Call it before threads are started and kernels made. Elsewhere than on Linux with glibc only
    the kernels are fewer. `ONEDNN_PRIMITIVE_CACHE_CAPACITY` in the environment keeps its value.
    """
    os.environ.setdefault("ONEDNN_PRIMITIVE_CACHE_CAPACITY", _KERNELS)
    if _has_glibc():
        ctypes.CDLL(None).mallopt(ctypes.c_int(_ARENA_MAX), ctypes.c_int(1))


class Surplus:
    """Gives free memory back whenever the process has grown by more than `most` bytes since it was least."""

    def __init__(self, most: int = 128 << 20) -> None:
        self._most, self._least = most, resident_memory()

    def check(self) -> bool:
        """Give memory back if there is much more than there was; says whether."""
        now = resident_memory()
        grown = now > self._least + self._most
        if grown:
            give_memory_back()
            now = self._least = resident_memory()
        self._least = min(self._least, now)
        return grown


def resident_memory() -> int:
    """Bytes of this process that are in memory; 0 where the system does not say (only Linux does).

    Without pages of files, such as those of a corpus: the system takes them back when it needs room.
    """
    try:
        _, pages, of_files, *_ = map(int, Path("/proc/self/statm").read_text(encoding="ascii").split())
    except OSError:
        return 0
    return (pages - of_files) * os.sysconf("SC_PAGE_SIZE")


def give_memory_back() -> bool:
    """Gives free memory of the heap back to the system, whatever `keep_memory` said; returns whether it did.

    Memory that is needed again is asked for again, at the price of fresh pages: for a process at rest.
    """
    return _has_glibc() and ctypes.CDLL(None).malloc_trim(ctypes.c_size_t(0)) == 1


def _has_glibc() -> bool:
    return sys.platform.startswith("linux") and platform.libc_ver()[0] == "glibc"
